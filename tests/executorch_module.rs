//! ExecuTorch's own Module under this runner: the same tokens as natively, in one process by the header and from the
//! programs by the adapter library.

#[path = "common/cli.rs"]
mod cli;
mod common;

use cli::qnn_llama_runner;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

/// Programs that plain ExecuTorch runs: of each backend, and one whose embedding is on the CPU beside QNN.
const PROGRAMS: [&str; 5] = [
    "portable/portable_s260k_fp32_kv.pte",
    "xnnpack/xnn_s260k_fp32_kv.pte",
    "xnnpack/xnn_s260k_8da4w_emb432_kv.pte",
    "qnn/ec8f0994ff.pte",
    "qnn/qnn_s260k_hybrid_ar32_emb432.pte",
];
const TOKENIZER: &str = "tok512.et.bin";
const LIBRARIES: [&str; 6] =
    ["", "_backend_qnn", "_backend_xnnpack", "_kernels_quantized", "_kernels_optimized", "_threadpool"];

/// Compiles a file of `cpp-harness/executorch_module` against ExecuTorch.
fn compile(source: &str, made: &Path, more: &[OsString]) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let executorch = PathBuf::from(std::env::var_os("LLR_EXECUTORCH_DIR").unwrap());
    let (include, lib) = (executorch.join("include"), executorch.join("lib").display().to_string());
    let mut command = Command::new("g++");
    command.args(["-std=c++17", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror"]);
    command
        .arg("-DC10_USING_CUSTOM_GENERATED_MACROS")
        .arg("-I")
        .arg(root.join("include"))
        .arg("-isystem")
        .arg(&include);
    command.arg("-isystem").arg(include.join("executorch/runtime/core/portable_type/c10"));
    command.arg(root.join("cpp-harness/executorch_module").join(source)).arg("-o").arg(made).args(more);
    // They register themselves, and nothing names them.
    command.args([format!("-L{lib}"), format!("-Wl,-rpath,{lib}"), "-Wl,--no-as-needed".to_owned()]);
    command.args(LIBRARIES.map(|name| format!("-lexecutorch{name}")));
    succeeds(&mut command);
}

#[track_caller]
fn succeeds(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    assert!(output.status.success(), "{command:?}: {}\n{}\n{}", output.status, said[0], said[1]);
    output
}

/// Where cargo left the library of this build: beside the test program, or one level up.
fn own_library() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let found = program.ancestors().skip(1).take(2).find(|dir| dir.join("libllama_runner.so").is_file());
    found.expect("libllama_runner.so is built").to_owned()
}

fn both_ways(dir: &Path) {
    let program = dir.join("both_ways");
    let own = own_library();
    let link = [format!("-L{}", own.display()), "-lllama_runner".to_owned(), format!("-Wl,-rpath,{}", own.display())];
    compile("both_ways.cpp", &program, &link.map(OsString::from));
    let mut command = Command::new(program);
    // What ExecuTorch's QNN backend loads by name, and before it this build of our own library.
    let path = std::env::join_paths([own, common::qnn_lib_dir().unwrap()]).unwrap();
    command.env("LD_LIBRARY_PATH", path).arg(common::model(TOKENIZER)).arg("6");
    let output = succeeds(command.args(PROGRAMS.map(common::model)));
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(said.lines().filter(|line| line.ends_with(" equal")).count(), PROGRAMS.len(), "{said}");
}

/// What `llama_main` says to a prompt: exit code, text before the statistics, complaints.
fn llama_main(more: &[OsString]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_llama_main"));
    let common =
        ["--temperature=0", "--prompt=Once upon a time", "--num_bos=1", "--max_new_tokens=12", "--tokenizer_path"];
    let output = command.args(common).arg(common::model(TOKENIZER)).args(more).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let text = text.split_once("PyTorchObserver").map_or(text.clone(), |(text, _)| text.to_owned());
    (output.status.code(), text, String::from_utf8_lossy(&output.stderr).into_owned())
}

fn flag(name: &str, value: impl Into<OsString>) -> OsString {
    let mut flag = OsString::from(format!("--{name}="));
    flag.push(value.into());
    flag
}

fn programs(adapter: &Path) {
    let executorch = [flag("module", "executorch"), flag("module_library", adapter)];
    let run = |program: &str, module: &[OsString]| {
        llama_main(&[&[flag("model_path", common::model(program))], module].concat())
    };
    let native = run(PROGRAMS[1], &[]);
    assert!(native.0 == Some(0) && native.1.starts_with("Once upon a time,"), "{native:?}");
    let hosted = run(PROGRAMS[1], &executorch);
    assert_eq!((hosted.0, hosted.1.as_str()), (Some(0), native.1.as_str()), "{}", hosted.2);

    // Its errors, with ExecuTorch's number and words.
    let (code, text, said) = run("xnnpack/xnn_s260k_fp32_kv_sdpa.pte", &executorch);
    assert_eq!((code, text.as_str()), (Some(1), ""), "{said}");
    for words in ["OperatorMissing (0x14)", "llama::custom_sdpa.out"] {
        assert!(said.contains(words), "{said}");
    }
    assert!(!said.contains("\nE "), "ExecuTorch's log is in the error, not beside it: {said}");

    let qnn = |module: &[OsString]| {
        let paths = [flag("model_path", common::model(PROGRAMS[3])), flag("tokenizer_path", common::model(TOKENIZER))];
        let flags = ["--prompt=Once upon a time", "--max_decode_steps=5"].map(OsString::from);
        qnn_llama_runner([&paths[..], &flags, module].concat())
    };
    let (native, hosted) = (qnn(&[]), qnn(&executorch));
    assert_eq!((hosted.code, native.code), (Some(0), Some(0)), "{}", hosted.stderr);
    assert_eq!(hosted.tokens(), native.tokens());
    assert!(hosted.stdout.trim_start().starts_with("PyTorchObserver "), "{}", hosted.stdout);

    // Floats in the file, integers in the QNN context: natively right, here refused and not silently wrong.
    let model = flag("model_path", common::model("qnn/595baeef2c.respec.pte"));
    let tokenizer = flag("tokenizer_path", common::model(TOKENIZER));
    let refused = qnn_llama_runner([&[model, tokenizer], &executorch[..]].concat());
    assert!(refused.failed_cleanly() && refused.code == Some(16), "{}", refused.stderr);
    assert!(refused.errors()[0].contains("states floats"), "{}", refused.stderr);
}

/// `llr compare` with ExecuTorch's Module as its side B.
fn compared(adapter: &Path) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_llr"));
    command.args([OsString::from("compare"), flag("model_path", common::model(PROGRAMS[1]))]);
    command.args([flag("tokenizer_path", common::model(TOKENIZER)), flag("module_b", "executorch")]);
    let output = succeeds(command.arg(flag("module_library_b", adapter)).arg("--max_new_tokens=40"));
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("summary: of 1 prompt, 1 equal, 0 diverged; 40 of 40 tokens the same"), "{said}");
}

#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
#[cfg_attr(all(have_shared, not(have_qnn)), ignore = "needs LLR_QNN_LIB_DIR: libQnnHtp.so")]
#[cfg_attr(
    all(have_shared, have_qnn, not(have_executorch)),
    ignore = "needs LLR_EXECUTORCH_DIR: ExecuTorch's headers and libraries"
)]
fn executorch_under_this_runner_gives_the_tokens_of_this_runner_alone() {
    let dir = TempDir::new().unwrap();
    let shared = ["-shared", "-fPIC", "-fvisibility=hidden"].map(OsString::from);
    let adapter = dir.path().join("libllr_module_executorch.so");
    std::thread::scope(|scope| {
        scope.spawn(|| both_ways(dir.path()));
        compile("adapter.cpp", &adapter, &shared);
        programs(dir.path());
        compared(dir.path());
    });
}

#[test]
fn a_missing_adapter_is_said_with_where_it_was_looked_for_and_how_it_is_built() {
    let dir = TempDir::new().unwrap();
    let model = flag("model_path", "any.pte");
    let run = qnn_llama_runner([flag("module", "executorch"), flag("module_library", dir.path()), model]);
    assert!(run.failed_cleanly() && run.code == Some(65), "{}", run.stderr);
    for words in [dir.path().to_str().unwrap(), "libllr_module_executorch.so", "given path", "executorch_module"] {
        assert!(run.errors()[0].contains(words), "{}", run.stderr);
    }
    // A library, but none that makes modules.
    let other = own_library().join("libllama_runner.so");
    let run = qnn_llama_runner([flag("module", "executorch"), flag("module_library", other)]);
    assert!(run.failed_cleanly() && run.code == Some(65), "{}", run.stderr);
    for words in ["libllama_runner.so is no module adapter", "llr_module_open_v1"] {
        assert!(run.errors()[0].contains(words), "{}", run.stderr);
    }
}
