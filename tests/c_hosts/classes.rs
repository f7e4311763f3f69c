//! The C++ classes of `include/llama_runner.hpp`: what they do, how cleanly they compile, and that they are ExecuTorch's
//! own interface where its headers are.

use super::{CLANGXX, Compiler, GXX, Link, WARNINGS, compile, link, on_this_build, root, run};
use crate::executorch;
use std::process::Command;
use tempfile::TempDir;

const GXX_ASAN: Compiler =
    Compiler { program: "g++", flags: &["-std=c++17", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover"] };

/// `classes.cpp`, compiled and run.
fn run_classes(compiler: Compiler, how: Link) {
    let dir = TempDir::new().unwrap();
    let program = dir.path().join("program");
    let scratch = dir.path().join("scratch");
    std::fs::create_dir(&scratch).unwrap();
    let mut command = compile(compiler);
    command.arg("-pthread").arg("-o").arg(&program).arg(root().join("cpp-harness/classes.cpp"));
    link(&mut command, how);
    run(&mut command);
    let mut classes = on_this_build(Command::new(program));
    run(classes.arg(scratch).arg(root().join("assets/story.pte")).env("ASAN_OPTIONS", "detect_leaks=1"));
}

#[test]
fn turn_stop_reset_and_fail_as_values_under_address_sanitizer() {
    run_classes(GXX_ASAN, Link::Shared);
}

#[cfg_attr(not(have_clang), ignore = "needs clang and clang++")]
#[test]
fn do_the_same_built_by_clang_with_the_static_library() {
    run_classes(Compiler { program: CLANGXX.program, flags: &["-std=c++20"] }, Link::Static);
}

#[test]
fn compile_without_exceptions() {
    let mut command = compile(GXX);
    command.args(["-fno-exceptions", "-DLLAMA_RUNNER_AS_UPSTREAM=2", "-fsyntax-only", "-x", "c++"]);
    run(command.arg(root().join("include/llama_runner.hpp")));
}

#[cfg_attr(not(have_executorch), ignore = "needs LLR_EXECUTORCH_DIR: ExecuTorch's headers and libraries")]
#[test]
fn are_executorchs_irunner_where_its_headers_are() {
    let dir = TempDir::new().unwrap();
    let program = dir.path().join("program");
    let source = root().join("cpp-harness/executorch/irunner.cpp");
    let stand_in = root().join("cpp-harness/executorch/stand_in");
    let compiled = |compiler: Compiler, revision: &str| {
        let mut command = Command::new(compiler.program);
        command
            .args(compiler.flags)
            .args(WARNINGS)
            .arg("-Woverloaded-virtual")
            .arg(format!("-DSTAND_IN_REVISION={revision}"));
        command.arg("-I").arg(root().join("include")).arg("-isystem").arg(&stand_in);
        command.args(executorch::include_flags()).arg(&source);
        command
    };
    // Revisions that differ in what IRunner, GenerationConfig and Stats have.
    for revision in ["202508", "202509", "202602", "202603"] {
        run(compiled(GXX, revision).arg("-fsyntax-only"));
    }
    if cfg!(have_clang) {
        run(compiled(CLANGXX, "202608").arg("-fsyntax-only"));
    }
    let mut newest = compiled(GXX, "202608");
    let libraries = executorch::library_dir();
    newest.arg("-o").arg(&program).arg("-L").arg(&libraries).arg("-lexecutorch");
    newest.arg(format!("-Wl,-rpath,{}", libraries.display()));
    link(&mut newest, Link::Shared);
    run(&mut newest);
    let text = run(&mut on_this_build(Command::new(&program))).stdout;
    let text = String::from_utf8(text).unwrap();
    assert!(text.starts_with("Once upon a time,"), "{text}");
}
