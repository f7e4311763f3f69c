//! ExecuTorch itself loads and runs exported programs, and says what the recorded runs of the same weights say.

mod common;
#[path = "common/executorch.rs"]
mod executorch;
mod export_common;
mod forward_common;

use executorch::Host;
use export_common::{Backend, Options, dynamic, export, forward, hybrid};
use forward_common::{golden, ids};
use llama_runner::export::{KvLayout, MethodSpec};
use llama_runner::runtime::Execution;
use llama_runner::tensor::DType;
use tempfile::TempDir;

#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
#[cfg_attr(
    all(have_shared, not(have_executorch)),
    ignore = "needs LLR_EXECUTORCH_DIR: ExecuTorch's headers and libraries"
)]
fn executorch_runs_what_is_exported() {
    let golden = golden(&common::shared(), "portable_s260k_fp32_kv");
    let (want, prompt) = (ids(&golden, "ids_prefill"), ids(&golden, "prompt"));
    let text: Vec<u64> = want.iter().map(|&id| id as u64).collect();
    let folder = TempDir::new().unwrap();
    let host = Host::compile(folder.path(), &["xnnpack"], None);
    let path = folder.path().join("program.pte");
    let check = |specs: &[MethodSpec], options: Options, steps: usize| {
        export(specs, options, &text).save(&path).unwrap_or_else(|error| panic!("{}", error.chain()));
        assert_eq!(host.run(&path, &prompt, steps), want[..prompt.len() + steps], "{specs:?}, {options:?}");
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
    assert_eq!(host.run(&path, &prompt, 20), forward(&path, Execution::Compiled, &prompt, 20));
    for specs in [&[dynamic(false, false)][..], &hybrid(KvLayout::PerLayer, DType::I64)] {
        check(specs, Backend::PortableInt8.into(), 20);
    }
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
