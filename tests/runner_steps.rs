//! The runner token by token, going back, and saved contexts, on modules whose tokens depend on everything attended to.

#[path = "common/fake_module.rs"]
mod fake_module;
#[path = "common/fake_text.rs"]
mod fake_text;

use fake_module::{FakeModel, FakeTokenizer, Layout, Probe};
use fake_text::{FakeText, Rows};
use llama_runner::base::fnv::fnv1a64;
use llama_runner::builtin::{self, ProgramOptions, default_model};
use llama_runner::runner::{
    EvalMode, GenerationConfig, KvUpdater, LookaheadConfig, Prompt, Runner, RunnerError, RunnerOptions, SnapshotError,
};
use llama_runner::runtime::{Execution, Module, Value};
use llama_runner::tensor::DType;
use llama_runner::tokenizer::{self, TokenId};
use llama_runner::{Result, Status};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

fn load(module: Box<dyn Module>, options: RunnerOptions) -> Runner {
    let tokenizer = FakeTokenizer::default();
    Runner::load(module, Arc::new(tokenizer), options).unwrap_or_else(|error| panic!("{}", error.chain()))
}

fn static_options(mode: EvalMode, kv_updater: KvUpdater) -> RunnerOptions {
    let lookahead = (mode == EvalMode::Lookahead).then_some(LookaheadConfig { ngram: 3, window: 2, gcap: 2 });
    RunnerOptions { eval_mode: Some(mode), kv_updater, lookahead, ..Default::default() }
}

fn scaled(model: FakeModel) -> FakeModel {
    let mut model = model;
    model.constants.insert("get_logits_scale", vec![Value::Double(0.0003)]);
    model
}

/// A runner of each kind of program, layout, mode and way of updating.
fn runners() -> Vec<(String, Runner)> {
    let mut runners = Vec::new();
    for (layout, window) in [(Layout::PerLayer, None), (Layout::PerHead, None), (Layout::PerLayer, Some(7))] {
        for updater in [KvUpdater::SmartMask, KvUpdater::ShiftPointer] {
            for mode in [EvalMode::Kv, EvalMode::Hybrid, EvalMode::Lookahead] {
                let ar = if mode == EvalMode::Lookahead { 8 } else { 1 };
                let methods = vec![("prefill_forward", 16), ("kv_forward", ar)];
                let mut model = scaled(FakeModel { layout, window, methods, ..Default::default() });
                if let Some(window) = window {
                    model.constants.insert("get_sliding_window", vec![Value::Int(window as i64)]);
                }
                let name = format!("{layout:?} {window:?} {updater:?} {mode:?}");
                runners.push((name, load(model.module().0, static_options(mode, updater))));
            }
        }
    }
    for (name, model) in [("forward", FakeText::default()), ("no cache", FakeText::without_cache(Rows::Every, true))] {
        runners.push((name.to_owned(), load(model.module().0, RunnerOptions::default())));
    }
    runners
}

fn prompt(len: usize) -> Vec<TokenId> {
    (0..len as TokenId).map(|at| (at * 31 + 7) % 89).collect()
}

fn tokens(n: usize) -> GenerationConfig {
    GenerationConfig { max_new_tokens: Some(n), ..Default::default() }
}

fn turn(runner: &mut Runner, tokens: &[TokenId], config: &GenerationConfig) -> Vec<TokenId> {
    let turn = runner.generate(Prompt::Tokens(tokens), config, &mut |_| ControlFlow::Continue(()));
    turn.unwrap_or_else(|error| panic!("{}", error.chain())).tokens
}

/// The same by hand. As a turn, it does not feed its last token.
fn by_hand(runner: &mut Runner, tokens: &[TokenId], config: &GenerationConfig) -> Result<Vec<TokenId>> {
    runner.prefill_tokens(tokens)?;
    let mut made = vec![runner.sample(config)?];
    while made.len() < config.max_new_tokens.unwrap_or(1) {
        runner.step(made[made.len() - 1])?;
        made.push(runner.sample(config)?);
    }
    Ok(made)
}

fn error_of<T>(result: Result<T>) -> RunnerError {
    let error = result.err().expect("an error");
    error.find::<RunnerError>().unwrap_or_else(|| panic!("{}", error.chain())).clone()
}

#[test]
fn a_turn_by_hand_equals_a_turn() {
    for (name, mut runner) in runners() {
        for config in [tokens(12), GenerationConfig { temperature: 0.9, seed: 5, top_p: 0.95, ..tokens(12) }] {
            if config.temperature > 0.0 && name.contains("Lookahead") {
                continue;
            }
            let first = turn(&mut runner, &prompt(21), &config);
            let second = turn(&mut runner, &prompt(3), &config);
            let position = runner.position();
            runner.reset();
            assert_eq!(by_hand(&mut runner, &prompt(21), &config).unwrap(), first, "{name}");
            assert_eq!(by_hand(&mut runner, &prompt(3), &config).unwrap(), second, "{name}: the second turn");
            assert_eq!(runner.position(), position, "{name}");
            runner.reset();
        }
    }
}

#[test]
fn logits_are_those_that_the_likeliest_token_has_and_come_in_reals() {
    for (name, mut runner) in runners() {
        assert_eq!(error_of(runner.logits(&mut Vec::new())), RunnerError::NoLogits, "{name}");
        runner.prefill_tokens(&prompt(5)).unwrap();
        let mut row = Vec::new();
        for _ in 0..3 {
            runner.logits(&mut row).unwrap();
            assert_eq!(row.len(), runner.vocab_size());
            let best = (1..row.len()).fold(0, |best, at| if row[at] > row[best] { at } else { best });
            assert_eq!(runner.sample(&tokens(1)).unwrap(), best as TokenId, "{name}");
            runner.step(best as TokenId).unwrap();
        }
        // What takes the context elsewhere takes them away.
        runner.rewind(4).unwrap();
        assert_eq!(error_of(runner.sample(&tokens(1))), RunnerError::NoLogits, "{name}");
        turn(&mut runner, &prompt(2), &tokens(2));
        assert_eq!(error_of(runner.logits(&mut row)), RunnerError::NoLogits, "{name}");
    }
}

#[test]
fn integers_without_a_scale_are_no_reals() {
    let model = FakeText { logits: DType::U16, ..FakeText::default() };
    let mut runner = load(model.module().0, RunnerOptions::default());
    runner.prefill_tokens(&prompt(5)).unwrap();
    assert_eq!(error_of(runner.logits(&mut Vec::new())), RunnerError::NoLogitsScale);
    assert!(runner.sample(&tokens(1)).is_ok(), "the likeliest needs none");
    let warm = GenerationConfig { temperature: 1.0, ..tokens(1) };
    assert_eq!(error_of(runner.sample(&warm)), RunnerError::NoLogitsScale);
}

#[test]
fn going_back_and_on_again_equals_going_on() {
    for (name, mut runner) in runners() {
        let first = turn(&mut runner, &prompt(9), &tokens(5));
        let here = runner.position();
        let second = turn(&mut runner, &prompt(4), &tokens(6));
        let end = runner.position();
        assert_eq!(error_of(runner.rewind(end + 1)), RunnerError::RewindBeyond { have: end, asked: end + 1 });
        runner.rewind(end).unwrap();
        runner.rewind(here).unwrap();
        assert_eq!(turn(&mut runner, &prompt(4), &tokens(6)), second, "{name}");
        runner.rewind(0).unwrap();
        assert_eq!(turn(&mut runner, &prompt(9), &tokens(5)), first, "{name}: from the start");
        assert_eq!(runner.position(), here);
    }
}

#[test]
fn what_does_not_fit_is_refused_and_changes_nothing() {
    for (name, mut runner) in runners() {
        let config = tokens(3);
        let want = turn(&mut runner, &prompt(6), &config);
        runner.rewind(0).unwrap();
        for (fed, status) in [
            (vec![], Status::InvalidArgument),
            (vec![1, 97], Status::InvalidArgument),
            (prompt(64), Status::ContextExceeded),
        ] {
            assert_eq!(runner.prefill_tokens(&fed).unwrap_err().status(), status, "{name}");
        }
        assert_eq!(runner.step(97).unwrap_err().status(), Status::InvalidArgument);
        assert_eq!((runner.position(), by_hand(&mut runner, &prompt(6), &config).unwrap()), (0, want), "{name}");
        // Up to the end of the context, and no further.
        while runner.step(1).is_ok() {}
        assert_eq!(runner.step(1).unwrap_err().status(), Status::ContextExceeded, "{name}");
        assert!(runner.position() >= 55 && runner.position() < 64, "{name}: {}", runner.position());
    }
}

#[test]
fn a_program_that_only_reads_whole_prompts_takes_no_single_token() {
    let methods = vec![("prefill_forward", 64)];
    let model = FakeModel { methods, whole_gives_cache: false, ..Default::default() };
    let mut runner = load(model.module().0, RunnerOptions::default());
    runner.prefill_tokens(&prompt(7)).unwrap();
    assert_eq!(runner.sample(&tokens(1)).unwrap(), model.next(&prompt(7)));
    assert_eq!(error_of(runner.step(1)), RunnerError::NothingContinues);
    assert_eq!(error_of(runner.prefill_tokens(&[1])), RunnerError::OnlyAtStart { position: 7 });
    runner.rewind(0).unwrap();
    assert!(runner.prefill_tokens(&prompt(5)).is_ok());
}

/// A runner that can be made to fail and to be cancelled during a prompt.
fn probed() -> Vec<(&'static str, Runner, Arc<Probe>)> {
    let (module, probe) = FakeModel::default().module();
    let fixed = ("static", load(module, RunnerOptions::default()), probe);
    let (module, probe, _) = FakeText { chunk: Some(16), ..FakeText::default() }.module();
    vec![fixed, ("forward", load(module, RunnerOptions::default()), probe)]
}

#[test]
fn a_cancelled_prompt_leaves_the_context_as_it_was() {
    for (name, mut runner, probe) in probed() {
        runner.prefill_tokens(&prompt(3)).unwrap();
        let (canceller, calls) = (runner.canceller(), AtomicUsize::new(0));
        *probe.hook.lock() = Some(Box::new(move || {
            if calls.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == 1 {
                canceller.cancel();
            }
        }));
        let error = runner.prefill_tokens(&prompt(44)).unwrap_err();
        assert_eq!((error.status(), runner.position()), (Status::Cancelled, 3), "{name}");
        *probe.hook.lock() = None;
        let made = by_hand(&mut runner, &prompt(40), &tokens(3)).unwrap();
        runner.reset();
        runner.prefill_tokens(&prompt(3)).unwrap();
        assert_eq!(by_hand(&mut runner, &prompt(40), &tokens(3)).unwrap(), made, "{name}");
    }
}

#[test]
fn after_a_failed_step_only_reset_and_restore_go_on() {
    for (name, mut runner, probe) in probed() {
        let want = by_hand(&mut runner, &prompt(8), &tokens(4)).unwrap();
        let saved = runner.save_state().unwrap();
        probe.fail_after(0);
        assert!(runner.step(want[3]).unwrap_err().chain().contains("the fake device is gone"), "{name}");
        assert_eq!(error_of(runner.step(1)), RunnerError::Poisoned, "{name}");
        assert_eq!(error_of(runner.rewind(1)), RunnerError::Poisoned);
        assert_eq!(error_of(runner.save_state()), RunnerError::Poisoned);
        runner.restore_state(&saved).unwrap();
        runner.step(want[3]).unwrap();
        let next = runner.sample(&tokens(1)).unwrap();
        probe.fail_after(0);
        assert!(runner.prefill_tokens(&prompt(3)).is_err());
        runner.reset();
        assert_eq!(by_hand(&mut runner, &prompt(8), &tokens(4)).unwrap(), want, "{name}");
        runner.step(want[3]).unwrap();
        assert_eq!(runner.sample(&tokens(1)).unwrap(), next, "{name}");
    }
}

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
        assert_eq!(refused(&mut runner, &saved[..20]), E::Length { have: 20, stated: 48 });
        assert_eq!(refused(&mut runner, &saved[..saved.len() - 1]), E::Length { have: end - 1, stated: end });
        assert_eq!(refused(&mut runner, &put(saved.clone(), 8, 2, 4)), E::Version { found: 2 });
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
        for at in [24, 41, saved.len() / 2, saved.len() - 9, saved.len() - 1] {
            assert!(matches!(refused(&mut runner, &damaged(at)), E::Checksum { .. }), "{name}: byte {at}");
        }
        let other = refused(&mut runner, &sealed(damaged(44)));
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
