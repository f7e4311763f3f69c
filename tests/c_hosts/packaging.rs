//! What is installed is found: by CMake's `find_package`, by pkg-config, by the loader; and it is of one version.

use super::{NATIVE_LIBS, exports_are_exactly_the_functions_of_the_header, library_dir, root, run};
use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The SONAME that follows from the version.
fn soname() -> String {
    match env!("CARGO_PKG_VERSION_MAJOR") {
        "0" => format!("libllama_runner.so.0.{}", env!("CARGO_PKG_VERSION_MINOR")),
        major => format!("libllama_runner.so.{major}"),
    }
}

/// Installed by CMake, which `how` tells where the libraries come from.
fn install_by_cmake(prefix: &Path, how: &[String]) {
    let build = TempDir::new().unwrap();
    let mut configure = Command::new("cmake");
    configure.arg("-S").arg(root()).arg("-B").arg(build.path()).args(how).env_remove("CARGO_TARGET_DIR");
    run(&mut configure);
    run(Command::new("cmake").arg("--build").arg(build.path()));
    run(Command::new("cmake").arg("--install").arg(build.path()).arg("--prefix").arg(prefix));
}

/// Stands for cargo, which would build everything once more, and over the libraries that other tests are using: takes
/// what CMake asks of it, and gives this build's libraries.
fn stand_in_for_cargo(path: &Path) {
    let script = format!(
        r#"#!/bin/sh
[ "$1 $2 $3 $4 $5 $6 $#" = "build --lib --locked --profile dev --target-dir 7" ] || exit 1
mkdir -p "$7/debug" && cp "{0}/libllama_runner.so" "{0}/libllama_runner.a" "$7/debug"
"#,
        library_dir().display()
    );
    std::fs::write(path, script).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// The files in `dir` and below, by their paths from there.
fn files(dir: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut waiting = vec![dir.to_owned()];
    while let Some(next) = waiting.pop() {
        for entry in std::fs::read_dir(&next).unwrap().map(|entry| entry.unwrap().path()) {
            match entry.is_dir() {
                true => waiting.push(entry),
                false => assert!(found.insert(entry.strip_prefix(dir).unwrap().to_owned())),
            }
        }
    }
    found
}

/// Headers, libraries, their names and versions; what is exported.
fn is_complete(prefix: &Path) {
    let lib = prefix.join("lib");
    for name in [&soname(), "libllama_runner.so"] {
        let real = std::fs::canonicalize(lib.join(name)).unwrap();
        assert_eq!(real, std::fs::canonicalize(&lib).unwrap().join(format!("libllama_runner.so.{VERSION}")));
    }
    assert!(lib.join("libllama_runner.a").is_file() && lib.join("pkgconfig/llama-runner.pc").is_file());
    assert_eq!(files(&prefix.join("include")), files(&root().join("include")));
    assert_eq!(soname_of(&lib.join("libllama_runner.so")), soname());
    exports_are_exactly_the_functions_of_the_header(&lib.join("libllama_runner.so"));
}

fn soname_of(library: &Path) -> String {
    let said = String::from_utf8(run(Command::new("readelf").arg("-d").arg(library)).stdout).unwrap();
    let name = said.split_once("Library soname: [").and_then(|(_, rest)| rest.split_once(']'));
    name.unwrap_or_else(|| panic!("{said}")).0.to_owned()
}

/// What `pkg-config` says of the installation.
fn pkg_config(prefix: &Path, arguments: &[&str]) -> Vec<String> {
    let mut command = Command::new("pkg-config");
    command.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig")).args(arguments).arg("llama-runner");
    let said = String::from_utf8(run(&mut command).stdout).unwrap();
    said.split_whitespace().map(str::to_owned).collect()
}

/// The archive, and what it needs.
fn static_libraries(prefix: &Path) -> Vec<String> {
    let libraries = pkg_config(prefix, &["--static", "--libs-only-l"]);
    let natives = libraries.into_iter().filter(|flag| flag != "-lllama_runner");
    let archive = format!("{}/libllama_runner.a", pkg_config(prefix, &["--variable=libdir"])[0]);
    [archive].into_iter().chain(natives).collect()
}

/// What the sample says, built with pkg-config's flags: shared, then static.
fn stories_by_pkg_config(prefix: &Path, scratch: &Path) -> [String; 2] {
    assert_eq!(pkg_config(prefix, &["--modversion"]), [VERSION]);
    let built = |libraries, library_path: Option<&Path>| {
        let program = scratch.join("app");
        let mut command = Command::new("c++");
        command.arg("-std=c++17").arg("-o").arg(&program).arg(root().join("examples/cpp-app/main.cpp"));
        run(command.args(pkg_config(prefix, &["--cflags"])).args::<Vec<String>, _>(libraries));
        story(&program, library_path)
    };
    [built(pkg_config(prefix, &["--libs"]), Some(&prefix.join("lib"))), built(static_libraries(prefix), None)]
}

/// The text that the sample prints; the loader knows nothing but what the program says.
fn story(program: &Path, library_path: Option<&Path>) -> String {
    let mut command = Command::new(program);
    command.arg("Once upon a time").env_remove("LD_LIBRARY_PATH");
    if let Some(dir) = library_path {
        command.env("LD_LIBRARY_PATH", dir);
    }
    String::from_utf8(run(&mut command).stdout).unwrap()
}

#[cfg_attr(not(have_cmake), ignore = "needs cmake")]
#[cfg_attr(all(have_cmake, not(have_pkg_config)), ignore = "needs pkg-config")]
#[test]
fn sample_builds_on_the_installation_by_cmake_and_pkg_config_shared_and_static() {
    let home = TempDir::new().unwrap();
    let (first, cargo) = (home.path().join("first"), home.path().join("cargo"));
    stand_in_for_cargo(&cargo);
    install_by_cmake(&first, &[format!("-DCARGO={}", cargo.display()), "-DLLR_CARGO_PROFILE=dev".to_owned()]);
    // An installation may be moved.
    let prefix = home.path().join("moved");
    std::fs::rename(&first, &prefix).unwrap();
    is_complete(&prefix);
    install_by_cmake(&first, &[format!("-DLLR_PREBUILT_DIR={}", library_dir().display())]);
    assert_eq!(files(&first), files(&prefix), "libraries that a packager has built already");

    assert_eq!(pkg_config(&prefix, &["--variable=static_libs"]), static_libraries(&prefix));

    let mut stories = stories_by_pkg_config(&prefix, home.path()).to_vec();
    for linked in ["OFF", "ON"] {
        let build = home.path().join(format!("cmake-{linked}"));
        let mut configure = Command::new("cmake");
        configure.arg("-S").arg(root().join("examples/cpp-app")).arg("-B").arg(&build);
        run(configure.arg(format!("-DAPP_STATIC={linked}")).arg(format!("-DCMAKE_PREFIX_PATH={}", prefix.display())));
        run(Command::new("cmake").arg("--build").arg(&build));
        stories.push(story(&build.join("app"), None));
    }
    assert!(stories[0].starts_with("Once upon a time, there was"), "{}", stories[0]);
    assert_eq!(stories, vec![stories[0].clone(); 4]);
}

/// Builds everything in a directory of its own, as quickly as it can: minutes the first time.
#[cfg_attr(not(have_cargo_c), ignore = "needs cargo-c: cargo capi")]
#[cfg_attr(all(have_cargo_c, not(have_pkg_config)), ignore = "needs pkg-config")]
#[test]
fn sample_builds_on_the_installation_by_cargo_c_shared_and_static() {
    let home = TempDir::new().unwrap();
    let prefix = home.path().join("prefix");
    let mut install = Command::new(env!("CARGO"));
    install.args(["capi", "install", "--locked", "--debug", "--libdir", "lib", "--target-dir"]);
    install.arg(Path::new(env!("CARGO_TARGET_TMPDIR")).join("capi")).arg("--prefix").arg(&prefix);
    install.env("CARGO_PROFILE_DEV_OPT_LEVEL", "0").env("CARGO_PROFILE_DEV_DEBUG", "0");
    run(install.current_dir(root()));
    is_complete(&prefix);
    let stories = stories_by_pkg_config(&prefix, home.path());
    assert!(stories[0].starts_with("Once upon a time, there was"), "{}", stories[0]);
    assert_eq!(stories[0], stories[1]);
}

#[test]
fn soname_is_that_of_the_version() {
    assert_eq!(soname_of(&library_dir().join("libllama_runner.so")), soname());
    assert_eq!(std::fs::read_link(library_dir().join(soname())).unwrap(), PathBuf::from("libllama_runner.so"));
    // `llama_runner.h`'s own version is compared in tests/header.rs.
    let header = std::fs::read_to_string(root().join("include/llama_runner.hpp")).unwrap();
    let number = env!("CARGO_PKG_VERSION_MAJOR").parse::<u32>().unwrap() * 1_000_000
        + env!("CARGO_PKG_VERSION_MINOR").parse::<u32>().unwrap() * 1000
        + env!("CARGO_PKG_VERSION_PATCH").parse::<u32>().unwrap();
    assert!(header.contains(&format!("static_assert(LLR_VERSION_NUMBER == {number},")), "llama_runner.hpp");
}

#[test]
fn every_place_names_the_same_native_libraries() {
    // That they suffice is what the static links here show.
    let flags = NATIVE_LIBS.join(" ");
    let names = NATIVE_LIBS.map(|flag| flag.strip_prefix("-l").unwrap()).join(" ");
    for (file, wanted) in [
        ("include/llama_runner.h", flags.as_str()),
        ("CMakeLists.txt", &format!("set(LLR_NATIVE_LIBRARIES {names})")),
        ("cpp-harness/CMakeLists.txt", &names),
    ] {
        assert!(std::fs::read_to_string(root().join(file)).unwrap().contains(wanted), "{file}");
    }
}
