//! ExecuTorch itself loads and runs exported programs, and says what the recorded runs of the same weights say.

mod common;
mod export_common;
mod forward_common;

use export_common::{Backend, Options, dynamic, export, forward, hybrid};
use forward_common::{golden, ids};
use llama_runner::export::{KvLayout, MethodSpec};
use llama_runner::runtime::Execution;
use llama_runner::tensor::DType;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// Libraries of ExecuTorch's package that register what programs need, so that they must be linked though nothing
/// names them.
const LIBRARIES: [&str; 5] = [
    "-lexecutorch",
    "-lexecutorch_backend_xnnpack",
    "-lexecutorch_kernels_quantized",
    "-lexecutorch_kernels_optimized",
    "-lexecutorch_threadpool",
];

fn compile(folder: &Path) -> PathBuf {
    let executorch = PathBuf::from(std::env::var_os("LLR_EXECUTORCH_DIR").unwrap());
    let (include, lib) = (executorch.join("include"), executorch.join("lib"));
    let host = folder.join("host");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("cpp-harness/executorch/host.cpp");
    let output = Command::new("g++")
        .args(["-std=c++17", "-Wall", "-DC10_USING_CUSTOM_GENERATED_MACROS"])
        .arg(source)
        .arg("-isystem")
        .arg(&include)
        .arg("-isystem")
        .arg(include.join("executorch/runtime/core/portable_type/c10"))
        .arg(format!("-L{}", lib.display()))
        .arg("-Wl,--no-as-needed")
        .args(LIBRARIES)
        .arg(format!("-Wl,-rpath,{}", lib.display()))
        .arg("-o")
        .arg(&host)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    host
}

fn run(host: &Path, program: &Path, prompt: &[i64], steps: usize) -> Vec<i64> {
    let output = Command::new(host)
        .arg(program)
        .arg(steps.to_string())
        .args(prompt.iter().map(i64::to_string))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.split_whitespace().map(|id| id.parse().unwrap()).collect()
}

#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
#[cfg_attr(not(have_executorch), ignore = "needs LLR_EXECUTORCH_DIR: ExecuTorch's headers and libraries")]
fn executorch_runs_what_is_exported() {
    let golden = golden(&common::shared(), "portable_s260k_fp32_kv");
    let (want, prompt) = (ids(&golden, "ids_prefill"), ids(&golden, "prompt"));
    let text: Vec<u64> = want.iter().map(|&id| id as u64).collect();
    let folder = TempDir::new().unwrap();
    let host = compile(folder.path());
    let path = folder.path().join("program.pte");
    let check = |specs: &[MethodSpec], options: Options, steps: usize| {
        export(specs, options, &text).save(&path).unwrap_or_else(|error| panic!("{}", error.chain()));
        assert_eq!(run(&host, &path, &prompt, steps), want[..prompt.len() + steps], "{specs:?}, {options:?}");
    };
    for full_logits in [false, true] {
        let specs = [dynamic(false, full_logits)];
        check(&specs, Backend::Portable.into(), 60);
        check(&specs, Backend::XnnpackFp32.into(), 60);
        check(&specs, Backend::Xnnpack8da4w.into(), 20);
    }
    // Four-bit embeddings cost this small model some of its words: both runtimes must lose the same ones.
    let options = Options { embedding: Some(4), ..Backend::Xnnpack8da4w.into() };
    export(&[dynamic(false, false)], options, &text).save(&path).unwrap();
    assert_eq!(run(&host, &path, &prompt, 20), forward(&path, Execution::Compiled, &prompt, 20));
    for layout in [KvLayout::PerLayer, KvLayout::PerHead] {
        let specs = hybrid(layout, DType::I64);
        check(&specs[..1], Backend::Portable.into(), 60);
        for (backend, steps) in [(Backend::Portable, 60), (Backend::XnnpackFp32, 60), (Backend::Xnnpack8da4w, 20)] {
            check(&specs, backend.into(), steps);
        }
    }
    let specs = hybrid(KvLayout::PerLayer, DType::I64);
    check(&specs, Options { kv_bits: 16, ..Backend::XnnpackFp32.into() }, 20);
    check(&specs, Options { kv_bits: 8, embedding: Some(8), ..Backend::Portable.into() }, 20);
    check(&specs, Options { kv_bits: 8, ..Backend::XnnpackFp32.into() }, 20);
}
