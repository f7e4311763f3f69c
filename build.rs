//! Tells tests at compile time which outside material this machine has, so that a test without it is reported as ignored.

use std::path::Path;

fn main() {
    for (name, present) in [
        // Real models and recorded runs of the C++ runner.
        ("have_shared", Path::new("../shared/goldens").is_dir()),
        // Qualcomm's libQnnHtp.so with the x86 HTP simulator.
        ("have_qnn", std::env::var_os("LLR_QNN_LIB_DIR").is_some_and(|dir| !dir.is_empty())),
        // The same for several SDKs: a list of directories, separated by colons.
        ("have_qnn_sdks", std::env::var_os("LLR_QNN_SDK_DIRS").is_some_and(|dirs| !dirs.is_empty())),
        // What the C programs of `cpp-harness` are tried with, beside gcc.
        ("have_clang", on_path("clang") && on_path("clang++")),
        ("have_cmake", on_path("cmake")),
        ("have_valgrind", on_path("valgrind")),
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
}

fn on_path(program: &str) -> bool {
    std::env::var_os("PATH").is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(program).is_file()))
}
