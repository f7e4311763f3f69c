//! Programs that are exported for the CPU say what the recorded programs of the same weights say: in this library's own
//! runtime, however it executes them, in the runner's modes, and in ExecuTorch itself.

mod common;
mod export_common;
mod forward_common;

use export_common::{BACKENDS, Backend, Options, dynamic, export, forward, hybrid};
use forward_common::{golden, ids};
use llama_runner::builtin::{ProgramOptions, open_program};
use llama_runner::export::KvLayout;
use llama_runner::pte::Program;
use llama_runner::runner::{EvalMode, GenerationConfig, KvUpdater, Prompt, Runner, RunnerOptions};
use llama_runner::runtime::Execution;
use llama_runner::tensor::DType;
use llama_runner::tokenizer::TokenId;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const WAYS: [Execution; 2] = [Execution::Compiled, Execution::Instructions];

/// The recorded greedy run of the float weights, and how many ids of it are the prompt's.
fn recorded() -> (Vec<i64>, usize) {
    let golden = golden(&common::shared(), "portable_s260k_fp32_kv");
    (ids(&golden, "ids_prefill"), ids(&golden, "prompt").len())
}

/// How many tokens must be the recorded ones.
fn agreement(backend: Backend) -> usize {
    if backend == Backend::Xnnpack8da4w { 20 } else { 60 }
}

/// The recorded ids as text for calibration.
fn text() -> Vec<u64> {
    recorded().0.into_iter().map(|id| id as u64).collect()
}

fn save(program: &Program, name: &str) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(format!("{name}.pte"));
    program.save(&path).unwrap_or_else(|error| panic!("{}", error.chain()));
    (dir, path)
}

#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
fn dynamic_programs_say_what_the_recorded_one_says() {
    let (want, prompt) = recorded();
    for backend in BACKENDS {
        for (fused, full_logits) in [(false, false), (true, false), (true, true)] {
            let (_dir, path) = save(&export(&[dynamic(fused, full_logits)], backend, &text()), "dynamic");
            let steps = agreement(backend);
            for way in WAYS {
                let have = forward(&path, way, &want[..prompt], steps);
                assert_eq!(have, want[..prompt + steps], "{backend:?}, fused {fused}, full {full_logits}, {way:?}");
            }
        }
    }
}

/// The tokens that the runner generates.
fn generate(path: &Path, way: Execution, options: RunnerOptions, steps: usize) -> Vec<i64> {
    let (want, prompt) = recorded();
    let prompt: Vec<TokenId> = want[..prompt].iter().map(|&id| id as TokenId).collect();
    let module = open_program(path, &ProgramOptions { execution: way, ..Default::default() }).unwrap();
    let tokenizer = llama_runner::tokenizer::load(&common::model("tok512.model")).unwrap();
    let mut runner = Runner::load(module, tokenizer, options).unwrap_or_else(|error| panic!("{}", error.chain()));
    let config = GenerationConfig { max_decode_steps: Some(steps - 1), ..Default::default() };
    let turn = runner.generate(Prompt::Tokens(&prompt), &config, &mut |_| ControlFlow::Continue(()));
    turn.unwrap_or_else(|error| panic!("{}", error.chain())).tokens.into_iter().map(|id| id as i64).collect()
}

#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
fn static_programs_run_in_the_runners_modes() {
    for backend in BACKENDS {
        for layout in [KvLayout::PerLayer, KvLayout::PerHead] {
            let specs = hybrid(layout, DType::I32);
            for (specs, mode) in [(&specs[..1], EvalMode::Kv), (&specs[..], EvalMode::Hybrid)] {
                check_static(&export(specs, backend, &text()), backend, mode, layout);
            }
        }
    }
}

#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
fn static_programs_with_codes_in_their_caches_run_in_the_runners_modes() {
    let (want, prompt) = recorded();
    for (backend, kv_bits, embedding, layout) in [
        (Backend::Portable, 16, None, KvLayout::PerHead),
        (Backend::Portable, 8, Some(8), KvLayout::PerLayer),
        (Backend::XnnpackFp32, 8, Some(4), KvLayout::PerHead),
        (Backend::Xnnpack8da4w, 8, Some(4), KvLayout::PerLayer),
        (Backend::Xnnpack8da4w, 16, Some(4), KvLayout::PerHead),
        (Backend::Xnnpack8da4w, 32, Some(8), KvLayout::PerLayer),
    ] {
        let program = export(&hybrid(layout, DType::I64), Options { backend, kv_bits, embedding }, &text());
        let (_dir, path) = save(&program, "codes");
        // Quantized against so short a text, tables of 4 bits cost some words; every way must cost the same ones.
        let mut want = embedding.is_none_or(|bits| bits > 4).then(|| want[prompt..][..20].to_vec());
        for (mode, way) in [(EvalMode::Kv, WAYS[0]), (EvalMode::Hybrid, WAYS[0]), (EvalMode::Hybrid, WAYS[1])] {
            let have = generate(&path, way, runner_options(mode, layout), 20);
            let want = want.get_or_insert_with(|| have.clone());
            assert_eq!(have, *want, "{backend:?}, {kv_bits}, {embedding:?}, {layout:?}, {mode:?}, {way:?}");
        }
    }
}

fn runner_options(mode: EvalMode, layout: KvLayout) -> RunnerOptions {
    let kv_updater = if layout == KvLayout::PerHead { KvUpdater::ShiftPointer } else { KvUpdater::SmartMask };
    RunnerOptions { eval_mode: Some(mode), kv_updater, ..Default::default() }
}

fn check_static(program: &Program, backend: Backend, mode: EvalMode, layout: KvLayout) {
    let (want, prompt) = recorded();
    let (_dir, path) = save(program, "static");
    for way in WAYS {
        let steps = agreement(backend);
        let have = generate(&path, way, runner_options(mode, layout), steps);
        assert_eq!(have, want[prompt..][..steps], "{backend:?}, {layout:?}, {mode:?}, {way:?}");
    }
}
