//! Saved contexts: they go on wherever they are restored, and what is wrong with one is said and changes nothing.

use crate::fake_module::{FakeModel, Layout};
use crate::fake_text::{FakeText, Rows};
use crate::{by_hand, common, load, prompt, runners, static_options, tokens, turn};
use llama_runner::Status;
use llama_runner::base::fnv::fnv1a64;
use llama_runner::base::storage::Storage;
use llama_runner::builtin::{self, ProgramOptions, default_model};
use llama_runner::pte::Program;
use llama_runner::runner::{EvalMode, KvUpdater, Runner, RunnerOptions, SnapshotError};
use llama_runner::runtime::Execution;
use llama_runner::tensor::DType;
use llama_runner::tokenizer;
use std::path::Path;
use std::sync::Arc;

#[test]
fn a_saved_context_continues_in_every_mode_and_way_of_updating() {
    for layout in [Layout::PerLayer, Layout::PerHead] {
        let model = FakeModel { layout, ..Default::default() };
        let ways = [
            static_options(EvalMode::Kv, KvUpdater::SmartMask),
            static_options(EvalMode::Hybrid, KvUpdater::SmartMask),
            static_options(EvalMode::Kv, KvUpdater::ShiftPointer),
            static_options(EvalMode::Hybrid, KvUpdater::ShiftPointer),
        ];
        for from in &ways {
            let mut runner = load(model.module().0, from.clone());
            turn(&mut runner, &prompt(40), &tokens(11));
            let saved = runner.save_state().unwrap();
            assert_eq!(saved.len(), runner.state_len().unwrap());
            let want = turn(&mut runner, &prompt(4), &tokens(5));
            for to in &ways {
                let mut other = load(model.module().0, to.clone());
                turn(&mut other, &prompt(2), &tokens(2));
                other.restore_state(&saved).unwrap();
                assert_eq!(other.position(), 50);
                assert_eq!(other.save_state().unwrap(), saved, "the bytes do not depend on the arrangement");
                assert_eq!(turn(&mut other, &prompt(4), &tokens(5)), want, "{layout:?} {from:?} {to:?}");
            }
            runner.restore_state(&saved).unwrap();
            assert_eq!(turn(&mut runner, &prompt(4), &tokens(5)), want, "in the runner itself");
        }
    }
}

#[test]
fn a_saved_context_of_a_forward_program_continues() {
    for model in [FakeText::default(), FakeText::without_cache(Rows::Every, true)] {
        let mut runner = load(model.module().0, RunnerOptions::default());
        let empty = runner.save_state().unwrap();
        turn(&mut runner, &prompt(20), &tokens(7));
        let saved = runner.save_state().unwrap();
        let want = turn(&mut runner, &prompt(4), &tokens(5));
        let mut other = load(model.module().0, RunnerOptions::default());
        other.restore_state(&saved).unwrap();
        assert_eq!(turn(&mut other, &prompt(4), &tokens(5)), want);
        other.restore_state(&empty).unwrap();
        assert_eq!((other.position(), turn(&mut other, &prompt(20), &tokens(1)).len()), (0, 1));
    }
}

#[test]
fn a_module_that_shows_no_states_is_told_so() {
    let model = FakeText { shows_states: false, ..FakeText::default() };
    let mut runner = load(model.module().0, RunnerOptions::default());
    for error in [runner.save_state().unwrap_err(), runner.restore_state(b"LLRSTATE").unwrap_err()] {
        assert_eq!(error.find::<SnapshotError>(), Some(&SnapshotError::NoStates));
        assert_eq!(error.status(), Status::NotSupported);
    }
}

/// With a checksum that fits.
fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let body = bytes.len() - 8;
    let sum = fnv1a64(&bytes[..body]);
    bytes[body..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

fn put(mut bytes: Vec<u8>, at: usize, number: u64, len: usize) -> Vec<u8> {
    bytes[at..at + len].copy_from_slice(&number.to_le_bytes()[..len]);
    sealed(bytes)
}

#[test]
fn every_defect_of_a_saved_context_is_a_typed_error_and_changes_nothing() {
    use SnapshotError as E;
    for (name, mut runner) in runners() {
        turn(&mut runner, &prompt(9), &tokens(4));
        let saved = runner.save_state().unwrap();
        let (end, here) = (saved.len() as u64, runner.position() as u64);
        let refused = |runner: &mut Runner, bytes: &[u8]| {
            let error = runner.restore_state(bytes).expect_err("refused");
            error.find::<SnapshotError>().unwrap_or_else(|| panic!("{}", error.chain())).clone()
        };
        assert_eq!(refused(&mut runner, b""), E::NotASnapshot);
        assert_eq!(refused(&mut runner, &saved[1..]), E::NotASnapshot);
        assert_eq!(refused(&mut runner, &saved[..20]), E::Length { have: 20, stated: 56 });
        assert_eq!(refused(&mut runner, &saved[..saved.len() - 1]), E::Length { have: end - 1, stated: end });
        for found in [1, 3] {
            let other = put(saved.clone(), 8, found.into(), 4);
            assert_eq!(refused(&mut runner, &other), E::Version { found });
        }
        let hostile = refused(&mut runner, &put(saved.clone(), 12, u64::MAX, 4));
        assert!(matches!(hostile, E::Length { .. }), "{name}: {hostile}");
        for length in [0, end - 1, u64::MAX] {
            assert_eq!(
                refused(&mut runner, &put(saved.clone(), 16, length, 8)),
                E::Length { have: end, stated: length }
            );
        }
        let damaged = |at: usize| {
            let mut bytes = saved.clone();
            bytes[at] ^= 0x10;
            bytes
        };
        for at in [24, 41, 49, saved.len() / 2, saved.len() - 9, saved.len() - 1] {
            assert!(matches!(refused(&mut runner, &damaged(at)), E::Checksum { .. }), "{name}: byte {at}");
        }
        let other = refused(&mut runner, &sealed(damaged(52)));
        assert!(matches!(other, E::OtherModel { .. }), "{name}: {other}");
        for position in [65, u64::MAX] {
            let far = refused(&mut runner, &put(saved.clone(), 24, position, 8));
            assert!(matches!(far, E::Position { position: found, .. } if found == position), "{name}: {far}");
        }
        let kept = refused(&mut runner, &put(saved.clone(), 32, 3, 8));
        assert!(matches!(kept, E::Kept { kept: 3, .. }), "{name}: {kept}");
        if name != "forward" {
            let more = put(put(saved.clone(), 24, here + 1, 8), 32, if name == "no cache" { here + 1 } else { 0 }, 8);
            assert!(matches!(refused(&mut runner, &more), E::Contents { .. }), "{name}");
        }
        if name == "no cache" {
            let wrong = put(saved.clone(), saved.len() - 16, 97, 8);
            assert!(matches!(refused(&mut runner, &wrong), E::Token { token: 97, .. }));
        }
        assert_eq!(runner.save_state().unwrap(), saved, "{name}: unchanged");
    }
}

#[test]
fn thousands_of_damaged_contexts_are_refused_or_restored_and_never_worse() {
    let mut bits = 7u64;
    let mut random = |below: usize| {
        bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (bits >> 33) as usize % below
    };
    for (name, mut runner) in runners().into_iter().step_by(5) {
        turn(&mut runner, &prompt(9), &tokens(4));
        let saved = runner.save_state().unwrap();
        for _ in 0..500 {
            let mut bytes = saved.clone();
            for _ in 0..=random(3) {
                let at = 8 + random(bytes.len() - 8);
                bytes[at] = random(256) as u8;
            }
            if random(4) == 0 {
                bytes.truncate(56 + random(bytes.len() - 56));
                let len = bytes.len() as u64;
                bytes = put(bytes, 16, len, 8);
            }
            if runner.restore_state(&sealed(bytes)).is_ok() {
                assert!(runner.position() <= 64, "{name}");
                runner.rewind(0).unwrap();
            }
        }
        runner.restore_state(&saved).unwrap();
        assert_eq!(runner.save_state().unwrap(), saved, "{name}");
    }
}

#[test]
fn a_saved_context_of_another_model_is_refused_with_both_descriptions() {
    let saved = |model: FakeModel| load(model.module().0, RunnerOptions::default()).save_state().unwrap();
    let mut runner = load(FakeModel::default().module().0, RunnerOptions::default());
    for model in [
        FakeModel { layers: 3, constants: Default::default(), ..Default::default() },
        FakeModel { layout: Layout::PerHead, ..Default::default() },
        FakeModel { context_len: 80, ..Default::default() },
        FakeModel { cache: DType::U16, ..Default::default() },
        FakeModel { logits: DType::F32, ..Default::default() },
        FakeModel { vocab: 98, ..Default::default() },
    ] {
        let error = runner.restore_state(&saved(model)).unwrap_err();
        let Some(SnapshotError::OtherModel { saved, here }) = error.find::<SnapshotError>() else {
            panic!("{}", error.chain())
        };
        assert!(saved != here && here.contains("context 64, vocabulary 97, logits u16"), "{saved} / {here}");
        assert_eq!(error.status(), Status::InvalidArgument);
    }
    let text = load(FakeText::default().module().0, RunnerOptions::default()).save_state().unwrap();
    assert_eq!(runner.restore_state(&text).unwrap_err().status(), Status::InvalidArgument);
}

fn story(execution: Execution) -> Runner {
    let options = ProgramOptions { execution, ..ProgramOptions::default() };
    let module = builtin::open_default_program(&options).unwrap();
    let tokenizer = tokenizer::from_bytes(default_model::TOKENIZER, Path::new("tokenizer.json")).unwrap();
    Runner::load(module, tokenizer, RunnerOptions::default()).unwrap()
}

#[test]
fn the_built_in_model_continues_compiled_and_by_its_instructions() {
    let begin = [1, 50, 60, 70, 80, 90];
    for execution in [Execution::Compiled, Execution::Instructions] {
        let mut runner = story(execution);
        by_hand(&mut runner, &begin, &tokens(5)).unwrap();
        let (saved, position) = (runner.save_state().unwrap(), runner.position());
        let want = by_hand(&mut runner, &[40, 41], &tokens(6)).unwrap();
        let mut row = Vec::new();
        runner.logits(&mut row).unwrap();
        let mut other = story(execution);
        other.restore_state(&saved).unwrap();
        assert_eq!(by_hand(&mut other, &[40, 41], &tokens(6)).unwrap(), want);
        let mut other_row = Vec::new();
        other.logits(&mut other_row).unwrap();
        assert!(row.iter().zip(&other_row).all(|(a, b)| a.to_bits() == b.to_bits()), "bit for bit");
        runner.rewind(position).unwrap();
        assert_eq!(by_hand(&mut runner, &[40, 41], &tokens(6)).unwrap(), want);
        // What either way keeps, the other can read.
        let crossed = if execution == Execution::Compiled { Execution::Instructions } else { Execution::Compiled };
        story(crossed).restore_state(&saved).unwrap();
    }
}

/// The built-in model with other weights: the last quarter of its file lies behind the tables.
fn other_story() -> Runner {
    let mut bytes = default_model::program().to_vec();
    let weights = bytes.len() / 4 * 3;
    bytes[weights..].iter_mut().step_by(64).for_each(|byte| *byte ^= 1);
    let program = Program::from_storage(Arc::new(Storage::Owned(bytes))).unwrap();
    let module = builtin::load_program(program, "other weights", &ProgramOptions::default()).unwrap();
    let tokenizer = tokenizer::from_bytes(default_model::TOKENIZER, Path::new("tokenizer.json")).unwrap();
    Runner::load(module, tokenizer, RunnerOptions::default()).unwrap()
}

#[test]
fn a_context_of_other_weights_in_the_same_shapes_is_refused_and_an_unknown_programs_is_not() {
    let (mut runner, mut other) = (story(Execution::Auto), other_story());
    by_hand(&mut runner, &[1, 50, 60], &tokens(3)).unwrap();
    by_hand(&mut other, &[1, 50], &tokens(2)).unwrap();
    let (saved, before) = (runner.save_state().unwrap(), other.save_state().unwrap());
    let error = other.restore_state(&saved).unwrap_err();
    let Some(SnapshotError::OtherProgram { saved: from, here }) = error.find() else { panic!("{}", error.chain()) };
    assert!(from != here && error.status() == Status::InvalidArgument);
    assert!(error.chain().contains("of another model with the same shapes"), "{}", error.chain());
    assert_eq!(other.save_state().unwrap(), before, "unchanged");
    other.restore_state(&put(saved, 40, 0, 8)).unwrap();
    assert_eq!(other.position(), runner.position());
}

/// Programs of upstream's exporter do not name their caches, so all planned memory is saved.
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
#[test]
fn programs_without_names_for_their_caches_continue_too() {
    for file in ["portable/portable_s260k_fp32_kv.pte", "xnnpack/xnn_s260k_8da4w_emb432_kv_sdpa_q8kv.pte"] {
        for execution in [Execution::Auto, Execution::Instructions] {
            let story = || {
                let options = ProgramOptions { execution, ..ProgramOptions::default() };
                let module = builtin::open_program(&common::model(file), &options).unwrap();
                let tokenizer = tokenizer::load(&common::model("tok512.et.bin")).unwrap();
                Runner::load(module, tokenizer, RunnerOptions::default()).unwrap()
            };
            let mut runner = story();
            by_hand(&mut runner, &[1, 403, 407, 261, 378], &tokens(6)).unwrap();
            let saved = runner.save_state().unwrap();
            let want = by_hand(&mut runner, &[403, 407], &tokens(6)).unwrap();
            let mut other = story();
            other.restore_state(&saved).unwrap();
            assert_eq!(by_hand(&mut other, &[403, 407], &tokens(6)).unwrap(), want, "{file} {execution:?}");
            other.rewind(3).unwrap();
            assert_eq!(other.position(), 3);
        }
    }
}
