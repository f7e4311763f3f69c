//! What is installed is found: by CMake's `find_package`, by pkg-config, by the loader; and it is of one version.

use super::{NATIVE_LIBS, library_dir, root, run};
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

/// What this build made, installed as a packager does it.
fn install(prefix: &Path) {
    let build = TempDir::new().unwrap();
    let mut configure = Command::new("cmake");
    configure.arg("-S").arg(root()).arg("-B").arg(build.path());
    configure.arg(format!("-DLLR_PREBUILT_DIR={}", library_dir().display()));
    run(&mut configure);
    run(Command::new("cmake").arg("--install").arg(build.path()).arg("--prefix").arg(prefix));
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
    let first = home.path().join("first");
    install(&first);
    // An installation may be moved.
    let prefix = home.path().join("moved");
    std::fs::rename(&first, &prefix).unwrap();
    let lib = prefix.join("lib");
    for name in [&soname(), "libllama_runner.so"] {
        let real = std::fs::canonicalize(lib.join(name)).unwrap();
        assert_eq!(real, std::fs::canonicalize(&lib).unwrap().join(format!("libllama_runner.so.{VERSION}")));
    }
    let sample = root().join("examples/cpp-app");
    let mut stories = Vec::new();

    for linked in ["OFF", "ON"] {
        let build = home.path().join(format!("cmake-{linked}"));
        let mut configure = Command::new("cmake");
        configure.arg("-S").arg(&sample).arg("-B").arg(&build).arg(format!("-DAPP_STATIC={linked}"));
        run(configure.arg(format!("-DCMAKE_PREFIX_PATH={}", prefix.display())));
        run(Command::new("cmake").arg("--build").arg(&build));
        stories.push(story(&build.join("app"), None));
    }

    let pkg_config = |argument: &str| {
        let mut command = Command::new("pkg-config");
        command.env("PKG_CONFIG_PATH", lib.join("pkgconfig")).args([argument, "llama-runner"]);
        let said = String::from_utf8(run(&mut command).stdout).unwrap();
        said.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(pkg_config("--modversion"), [VERSION]);
    for (libraries, library_path) in [("--libs", Some(&*lib)), ("--variable=static_libs", None)] {
        let program = home.path().join("app");
        let mut command = Command::new("c++");
        command.arg("-std=c++17").arg("-o").arg(&program).arg(sample.join("main.cpp"));
        run(command.args(pkg_config("--cflags")).args(pkg_config(libraries)));
        stories.push(story(&program, library_path));
    }

    assert!(stories[0].starts_with("Once upon a time, there was"), "{}", stories[0]);
    assert_eq!(stories, vec![stories[0].clone(); 4]);
}

#[test]
fn soname_is_that_of_the_version() {
    let output = run(Command::new("readelf").arg("-d").arg(library_dir().join("libllama_runner.so")));
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains(&format!("Library soname: [{}]", soname())), "{said}");
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
