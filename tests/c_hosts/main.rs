//! C and C++ programs on the header and the two libraries: they compile without a warning, refuse what must be refused,
//! leak nothing, and give the recorded tokens.
#![cfg(all(unix, not(target_os = "macos")))]

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/executorch.rs"]
mod executorch;

mod classes;
mod headers;
mod packaging;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

/// What a static link needs besides the library; `rustc --print native-static-libs` names them.
const NATIVE_LIBS: [&str; 7] = ["-lgcc_s", "-lutil", "-lrt", "-lpthread", "-lm", "-ldl", "-lc"];
const WARNINGS: [&str; 6] = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror"];

#[derive(Clone, Copy)]
enum Link {
    Shared,
    Static,
}

/// A compiler and what it is told.
#[derive(Clone, Copy, Debug)]
struct Compiler {
    program: &'static str,
    flags: &'static [&'static str],
}

const GCC: Compiler = Compiler { program: "gcc", flags: &["-std=c99"] };
const GXX: Compiler = Compiler { program: "g++", flags: &["-std=c++17"] };
const CLANG: Compiler = Compiler { program: "clang", flags: &["-std=c99"] };
const CLANGXX: Compiler = Compiler { program: "clang++", flags: &["-std=c++17"] };
const GCC_ASAN: Compiler =
    Compiler { program: "gcc", flags: &["-std=c99", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover"] };

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The directory with the libraries of this build: cargo leaves them beside the test program, or one level up.
fn library_dir() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let dirs = program.ancestors().skip(1).take(2);
    let found = dirs
        .map(Path::to_owned)
        .find(|dir| dir.join("libllama_runner.so").is_file() && dir.join("libllama_runner.a").is_file());
    found.unwrap_or_else(|| panic!("no libllama_runner.so and .a near {}", program.display()))
}

fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

fn compile(compiler: Compiler) -> Command {
    let mut command = Command::new(compiler.program);
    command.args(compiler.flags).args(WARNINGS).arg("-I").arg(root().join("include"));
    command
}

fn link(command: &mut Command, how: Link) {
    let dir = library_dir();
    match how {
        Link::Shared => {
            // Where the loader looks, too.
            command.arg("-L").arg(&dir).arg("-lllama_runner").arg(format!("-Wl,-rpath,{}", dir.display()));
        }
        Link::Static => {
            command.arg(dir.join("libllama_runner.a")).args(NATIVE_LIBS);
        }
    }
}

/// A program of `cpp-harness`, built into a directory of its own.
struct Built {
    dir: TempDir,
    program: PathBuf,
}

impl Built {
    fn new(compiler: Compiler, source: &str, how: Link) -> Self {
        let dir = TempDir::new().unwrap();
        let program = dir.path().join("program");
        let mut command = compile(compiler);
        command.arg("-o").arg(&program).arg(root().join("cpp-harness").join(source));
        link(&mut command, how);
        run(&mut command);
        std::fs::create_dir(dir.path().join("scratch")).unwrap();
        Self { dir, program }
    }

    fn command(&self) -> Command {
        on_this_build(Command::new(&self.program))
    }

    fn scratch(&self) -> PathBuf {
        self.dir.path().join("scratch")
    }
}

/// The loader looks into cargo's `LD_LIBRARY_PATH` first, which may name an older build.
fn on_this_build(mut command: Command) -> Command {
    command.env("LD_LIBRARY_PATH", library_dir());
    command
}

fn errors(compiler: Compiler, how: Link) {
    let built = Built::new(compiler, "errors.c", how);
    let output = run(built.command().arg(built.scratch()).env("ASAN_OPTIONS", "detect_leaks=1"));
    assert_eq!(String::from_utf8(output.stdout).unwrap().lines().count(), 6, "a message for each way to fail");
}

#[test]
fn o24_errors_with_the_shared_library() {
    errors(GCC, Link::Shared);
}

#[test]
fn o24_errors_with_the_static_library() {
    errors(GCC, Link::Static);
}

#[test]
fn errors_under_address_sanitizer() {
    errors(GCC_ASAN, Link::Shared);
    errors(GCC_ASAN, Link::Static);
}

#[test]
fn two_runners_and_a_cancelled_turn_under_address_sanitizer() {
    let built = Built::new(GCC_ASAN, "threads.c", Link::Static);
    let output = run(built.command().env("ASAN_OPTIONS", "detect_leaks=1"));
    assert!(output.stdout.starts_with(b"right, "), "{output:?}");
}

#[cfg_attr(not(have_clang), ignore = "needs clang and clang++")]
#[test]
fn errors_with_clang() {
    errors(CLANG, Link::Shared);
}

#[cfg_attr(not(have_valgrind), ignore = "needs valgrind")]
#[test]
fn errors_under_valgrind() {
    let built = Built::new(GCC, "errors.c", Link::Shared);
    run(valgrind(&built.program).arg(built.scratch()));
}

/// Every race between the host's threads and with what callbacks are lent; Rust's locks are instructions and futex calls,
/// which helgrind cannot see, so the library's own races are for ThreadSanitizer: `scripts/test-sanitizers tsan`.
#[cfg_attr(not(have_valgrind), ignore = "needs valgrind")]
#[test]
fn two_runners_and_a_cancelled_turn_under_helgrind() {
    let built =
        Built::new(Compiler { program: "gcc", flags: &["-std=c99", "-g", "-pthread"] }, "threads.c", Link::Shared);
    let mut command = Command::new("valgrind");
    command.args(["--tool=helgrind", "--quiet", "--error-exitcode=99"]);
    command.arg(format!("--suppressions={}", root().join("scripts/helgrind.supp").display()));
    let output = run(on_this_build(command).arg(&built.program).arg("2"));
    assert!(output.stdout.starts_with(b"right, "), "{output:?}");
}

fn valgrind(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("valgrind");
    command.args(["--quiet", "--error-exitcode=99", "--leak-check=full", "--errors-for-leak-kinds=definite,indirect"]);
    command.arg(program);
    on_this_build(command)
}

/// A real program and tokenizer are opened, then the vendor's library is missing: everything must be given back. (The
/// simulator itself is too slow and too noisy for Valgrind.)
fn refused_load(mut command: Command) {
    let empty = TempDir::new().unwrap();
    command.arg("--qnn-lib-dir").arg(empty.path()).arg(common::model(MODEL)).arg(common::model(TOKENIZER)).arg("Once");
    let output = command.env_remove("LLR_QNN_LIB_DIR").env("ASAN_OPTIONS", "detect_leaks=1").output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.starts_with("load: LLR_STATUS_LIBRARY_UNAVAILABLE: "), "{said}");
    assert!(said.contains(empty.path().to_str().unwrap()), "does not say where it looked: {said}");
}

#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
#[test]
fn load_without_the_vendor_library_leaks_nothing_under_address_sanitizer() {
    let built = Built::new(GCC_ASAN, "host_c99.c", Link::Shared);
    refused_load(built.command());
}

#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
#[cfg_attr(all(have_shared, not(have_valgrind)), ignore = "needs valgrind")]
#[test]
fn load_without_the_vendor_library_leaks_nothing_under_valgrind() {
    let built = Built::new(GCC, "host_c99.c", Link::Shared);
    refused_load(valgrind(&built.program));
}

#[cfg_attr(not(have_cmake), ignore = "needs cmake")]
#[test]
fn cmake_builds_the_programs_and_its_test_passes() {
    // One program is enough to see a static link.
    for (use_static, target) in [("OFF", "all"), ("ON", "errors")] {
        let dir = TempDir::new().unwrap();
        let mut configure = Command::new("cmake");
        configure.arg("-S").arg(root().join("cpp-harness")).arg("-B").arg(dir.path());
        configure.arg(format!("-DLLR_LIB_DIR={}", library_dir().display())).arg(format!("-DLLR_STATIC={use_static}"));
        run(&mut configure);
        run(Command::new("cmake").arg("--build").arg(dir.path()).args(["--target", target]));
        run(on_this_build(Command::new("ctest")).current_dir(dir.path()));
    }
}

#[test]
fn nothing_but_the_api_is_exported() {
    exports_are_exactly_the_functions_of_the_header(&library_dir().join("libllama_runner.so"));
}

fn exports_are_exactly_the_functions_of_the_header(library: &Path) {
    let output = run(Command::new("nm").args(["-D", "--defined-only"]).arg(library));
    let text = String::from_utf8(output.stdout).unwrap();
    let mut exported = text.lines().filter_map(|line| line.split(' ').next_back()).collect::<Vec<_>>();
    exported.sort_unstable();
    let header = std::fs::read_to_string(root().join("include/llama_runner.h")).unwrap();
    let mut declared = header
        .split("\nLLR_API")
        .skip(1)
        .filter_map(|declaration| declaration.split('(').next()?.rsplit([' ', '*']).next())
        .collect::<Vec<_>>();
    declared.sort_unstable();
    assert_eq!(exported, declared);
}

const MODEL: &str = "qnn/ec8f0994ff.pte";
const TOKENIZER: &str = "tok512.et.bin";

/// The recorded answer to "Once upon a time" with seq_len 128: ids, text.
fn recorded() -> (Vec<u64>, String) {
    let path = common::shared().join("goldens/runner/cff6f4dd-m1-once-128.json");
    let json: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let ids = json["generated_tokens"][0].as_array().unwrap().iter().map(|id| id.as_u64().unwrap()).collect();
    let text = json["text"].as_str().unwrap().strip_prefix("Once upon a time").unwrap().to_owned();
    (ids, text)
}

/// How much of the recorded run is repeated; the simulator takes its time for each token.
#[derive(PartialEq)]
enum Extent {
    Whole,
    Beginning,
}

fn main_job(compiler: Compiler, source: &str, how: Link, extent: Extent) {
    let built = Built::new(compiler, source, how);
    let host = |flags: &[&str]| {
        let mut command = built.command();
        command.args(flags).arg(common::model(MODEL)).arg(common::model(TOKENIZER)).arg("Once upon a time");
        // Leaks of the vendor's library are not ours to find here.
        command.env("ASAN_OPTIONS", "detect_leaks=0");
        String::from_utf8(run(&mut command).stdout).unwrap()
    };
    let (ids, text) = recorded();
    if extent == Extent::Whole {
        assert_eq!(host(&["--seq-len", "128"]).strip_suffix('\n'), Some(text.as_str()));
    }
    let printed = host(&["--tokens", "--eval-mode", "1", "--max-new-tokens", "20"]);
    let printed = printed.split_whitespace().map(|id| id.parse::<u64>().unwrap()).collect::<Vec<_>>();
    assert_eq!(printed, ids[..20]);
}

#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
#[cfg_attr(all(have_shared, not(have_qnn)), ignore = "needs LLR_QNN_LIB_DIR: libQnnHtp.so")]
#[test]
fn c_host_gives_the_recorded_tokens_and_text() {
    main_job(GCC, "host_c99.c", Link::Shared, Extent::Whole);
    main_job(GCC_ASAN, "host_c99.c", Link::Static, Extent::Beginning);
}

#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
#[cfg_attr(all(have_shared, not(have_qnn)), ignore = "needs LLR_QNN_LIB_DIR: libQnnHtp.so")]
#[test]
fn cpp_host_gives_the_recorded_tokens_and_text() {
    main_job(GXX, "host_cpp17.cpp", Link::Shared, Extent::Whole);
    main_job(GXX, "host_cpp17.cpp", Link::Static, Extent::Beginning);
}

#[cfg_attr(not(have_clang), ignore = "needs clang and clang++")]
#[cfg_attr(all(have_clang, not(have_shared)), ignore = "needs ../shared: real models and recorded runs")]
#[cfg_attr(all(have_clang, have_shared, not(have_qnn)), ignore = "needs LLR_QNN_LIB_DIR: libQnnHtp.so")]
#[test]
fn hosts_built_by_clang_give_the_same() {
    main_job(CLANG, "host_c99.c", Link::Shared, Extent::Beginning);
    main_job(CLANGXX, "host_cpp17.cpp", Link::Shared, Extent::Beginning);
}

#[test]
fn hosts_report_a_missing_model_by_name() {
    for (compiler, source) in [(GCC, "host_c99.c"), (GXX, "host_cpp17.cpp")] {
        let built = Built::new(compiler, source, Link::Shared);
        let output = built.command().args(["no-such.pte", "no-such.bin", "Once"]).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(1), &b""[..]));
        assert!(said.contains("create: LLR_STATUS_ACCESS_FAILED: model file no-such.pte"), "{said}");
    }
}

/// Resident memory goes up and down a little; over many cycles it must not climb. One heap for all threads: with glibc's
/// many, how much of each is in pages that cannot be returned is chance.
fn fifty_cycles_keep_memory_flat(arguments: &[PathBuf]) {
    let built = Built::new(GCC, "load_cycles.c", Link::Shared);
    let output = run(built.command().env("MALLOC_ARENA_MAX", "1").arg("50").args(arguments));
    let kib = String::from_utf8(output.stdout).unwrap();
    let kib = kib.lines().map(|line| line.parse::<i64>().unwrap()).collect::<Vec<_>>();
    assert_eq!(kib.len(), 50);
    let [early, late] = [&kib[..25], &kib[25..]].map(|half| *half.iter().max().unwrap());
    assert!(early > 0 && (late - early) * 20 < early, "KiB after each cycle: {kib:?}");
}

#[test]
fn o22_fifty_load_and_free_cycles_of_the_built_in_model_keep_memory_flat() {
    fifty_cycles_keep_memory_flat(&[]);
}

#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
#[cfg_attr(all(have_shared, not(have_qnn)), ignore = "needs LLR_QNN_LIB_DIR: libQnnHtp.so")]
#[test]
fn o22_fifty_load_and_free_cycles_keep_memory_flat() {
    fifty_cycles_keep_memory_flat(&[common::model(MODEL), common::model(TOKENIZER)]);
}
