//! Gives the shared library its SONAME, and tells tests at compile time which outside material this machine has, so that
//! a test without it is reported as ignored.

use std::path::Path;

fn main() {
    name_shared_library();
    for (name, present) in [
        // Real models and recorded runs of the C++ runner.
        ("have_shared", Path::new("../shared/goldens").is_dir()),
        // Qualcomm's libQnnHtp.so with the x86 HTP simulator.
        ("have_qnn", std::env::var_os("LLR_QNN_LIB_DIR").is_some_and(|dir| !dir.is_empty())),
        // The same for several SDKs: a list of directories, separated by colons.
        ("have_qnn_sdks", std::env::var_os("LLR_QNN_SDK_DIRS").is_some_and(|dirs| !dirs.is_empty())),
        // The GGUF file of SmolLM2, which scripts/fetch-models fetches.
        ("have_gguf", std::env::var_os("LLR_GGUF_SMOLLM2").is_some_and(|file| !file.is_empty())),
        // ExecuTorch's headers and libraries, to run exported programs in.
        ("have_executorch", std::env::var_os("LLR_EXECUTORCH_DIR").is_some_and(|dir| !dir.is_empty())),
        // bindgen's reader of C headers.
        ("have_libclang", have_libclang()),
        // What the C programs of `cpp-harness` are tried with, beside gcc.
        ("have_clang", on_path("clang") && on_path("clang++")),
        ("have_cmake", on_path("cmake")),
        ("have_pkg_config", on_path("pkg-config")),
        ("have_valgrind", on_path("valgrind")),
        // The other way to install the C library.
        ("have_cargo_c", on_path("cargo-capi")),
    ] {
        println!("cargo::rustc-check-cfg=cfg({name})");
        if present {
            println!("cargo::rustc-cfg={name}");
        }
    }
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=../shared/goldens");
    println!("cargo::rerun-if-env-changed=LLR_QNN_LIB_DIR");
    println!("cargo::rerun-if-env-changed=LLR_QNN_SDK_DIRS");
    println!("cargo::rerun-if-env-changed=LLR_GGUF_SMOLLM2");
    println!("cargo::rerun-if-env-changed=LLR_EXECUTORCH_DIR");
    println!("cargo::rerun-if-env-changed=LIBCLANG_PATH");
}

/// `libllama_runner.so.0.1`: the part of the version that changes when something that worked stops working. The loader
/// asks for this name, so it stands beside the library for programs that run from cargo's own directory.
fn name_shared_library() {
    if !matches!(var("CARGO_CFG_TARGET_OS").as_str(), "linux" | "android") {
        return;
    }
    let (major, minor) = (var("CARGO_PKG_VERSION_MAJOR"), var("CARGO_PKG_VERSION_MINOR"));
    let name = match major.as_str() {
        "0" => format!("libllama_runner.so.0.{minor}"),
        _ => format!("libllama_runner.so.{major}"),
    };
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,{name}");
    #[cfg(unix)]
    if let Some(dir) = Path::new(&var("OUT_DIR")).ancestors().nth(3) {
        for dir in [dir.to_owned(), dir.join("deps")] {
            // It may be there already; without it only such programs miss it, and their loader names it.
            let _ = std::os::unix::fs::symlink("libllama_runner.so", dir.join(&name));
        }
    }
}

fn var(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}

/// Looks where bindgen looks on a usual machine.
fn have_libclang() -> bool {
    let holds_libclang = |dir: &Path| {
        std::fs::read_dir(dir).into_iter().flatten().flatten().any(|entry| {
            let name = entry.file_name();
            let rest = name.to_str().and_then(|name| name.strip_prefix("libclang")).unwrap_or("");
            rest.starts_with(".so") || rest.starts_with("-1") && rest.contains(".so")
        })
    };
    if let Some(path) = std::env::var_os("LIBCLANG_PATH") {
        let path = Path::new(&path);
        return path.is_file() || holds_libclang(path);
    }
    let llvm = std::fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    let llvm =
        llvm.filter(|entry| entry.file_name().to_string_lossy().starts_with("llvm")).map(|e| e.path().join("lib"));
    let usual = ["/usr/lib", "/usr/lib64", "/usr/local/lib", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu"];
    usual.iter().map(Into::into).chain(llvm).any(|dir| holds_libclang(&dir))
}

fn on_path(program: &str) -> bool {
    std::env::var_os("PATH").is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(program).is_file()))
}
