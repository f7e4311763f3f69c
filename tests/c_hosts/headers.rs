//! The headers by themselves: each compiles without a warning in every standard that it is for, as often as it is
//! included, and defines nothing, so that any number of units of a program may have it.

use super::{Compiler, compile, root, run};
use crate::executorch;
use std::ffi::OsString;
use std::process::Command;
use tempfile::TempDir;

/// A unit with nothing but these headers, each twice.
fn defines_nothing(compiler: Compiler, headers: &[&str], more: &[OsString]) {
    let dir = TempDir::new().unwrap();
    let unit = dir.path().join("unit.c");
    let text = headers.iter().map(|name| format!("#include \"{name}\"\n").repeat(2)).collect::<String>();
    std::fs::write(&unit, text).unwrap();
    let object = dir.path().join("unit.o");
    let language = if compiler.program.ends_with("++") { "c++" } else { "c" };
    run(compile(compiler).args(more).args(["-x", language, "-c"]).arg(unit).arg("-o").arg(&object));
    let symbols = run(Command::new("nm").arg("--defined-only").arg(object)).stdout;
    let symbols = String::from_utf8(symbols).unwrap();
    // Constants of the standard library and of ExecuTorch are theirs.
    let ours =
        symbols.lines().filter(|line| line.contains("llama_runner") || line.contains("llr_")).collect::<Vec<_>>();
    assert!(ours.is_empty(), "{compiler:?} defines {ours:#?}");
}

fn in_c_and_cpp(c: &'static str, cpp: &'static str) {
    defines_nothing(Compiler { program: c, flags: &["-std=c99", "-Wstrict-prototypes"] }, &["llama_runner.h"], &[]);
    defines_nothing(Compiler { program: c, flags: &["-std=c11", "-Wmissing-declarations"] }, &["llama_runner.h"], &[]);
    defines_nothing(Compiler { program: cpp, flags: &["-std=c++17", "-Wold-style-cast"] }, &["llama_runner.hpp"], &[]);
    // In the order in which they do not include each other.
    let parts = std::fs::read_dir(root().join("include/llama_runner")).unwrap();
    let mut parts = parts.map(|part| part.unwrap().file_name().into_string().unwrap()).collect::<Vec<_>>();
    parts.sort_unstable();
    let parts = parts.iter().rev().map(|name| format!("llama_runner/{name}")).collect::<Vec<_>>();
    assert!(parts.len() > 5, "{parts:?}");
    let parts = parts.iter().map(String::as_str).collect::<Vec<_>>();
    defines_nothing(Compiler { program: cpp, flags: &["-std=c++20", "-Woverloaded-virtual"] }, &parts, &[]);
}

#[test]
fn compile_in_every_standard_with_gcc() {
    in_c_and_cpp("gcc", "g++");
}

#[cfg_attr(not(have_clang), ignore = "needs clang and clang++")]
#[test]
fn compile_in_every_standard_with_clang() {
    in_c_and_cpp("clang", "clang++");
}

#[cfg_attr(not(have_executorch), ignore = "needs LLR_EXECUTORCH_DIR: ExecuTorch's headers and libraries")]
#[test]
fn compile_with_executorchs_headers() {
    let headers = ["llama_runner_executorch.hpp", "llama_runner.hpp"];
    let flags = executorch::include_flags();
    defines_nothing(Compiler { program: "g++", flags: &["-std=c++20"] }, &headers, &flags);
    if cfg!(have_clang) {
        defines_nothing(Compiler { program: "clang++", flags: &["-std=c++17"] }, &headers, &flags);
    }
}
