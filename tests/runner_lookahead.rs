//! Lookahead decoding gives the tokens of one-by-one decoding, in fewer steps where the text repeats.

#[path = "common/fake_module.rs"]
mod fake_module;

use fake_module::{FakeModel, FakeTokenizer, Probe};
use llama_runner::runner::{
    EvalMode, FinishReason, GenerationConfig, KvUpdater, LookaheadConfig, Prompt, Runner, RunnerError, RunnerOptions,
};
use llama_runner::runtime::Value;
use llama_runner::tokenizer::TokenId;
use std::ops::ControlFlow;
use std::sync::Arc;

fn options([ngram, window, gcap]: [usize; 3], kv_updater: KvUpdater) -> RunnerOptions {
    RunnerOptions {
        eval_mode: Some(EvalMode::Lookahead),
        kv_updater,
        lookahead: Some(LookaheadConfig { ngram, window, gcap }),
        ..Default::default()
    }
}

fn load(model: &FakeModel, sizes: [usize; 3], kv_updater: KvUpdater) -> llama_runner::Result<(Runner, Arc<Probe>)> {
    let options = options(sizes, kv_updater);
    let (module, probe) = model.module();
    Ok((Runner::load(module, Arc::new(FakeTokenizer::default()), options)?, probe))
}

fn prompt(len: usize) -> Vec<TokenId> {
    (0..len as TokenId).map(|at| (at * 31 + 7) % 89).collect()
}

/// A model that says the same few tokens over and over from position 9 on, whatever it attends to; the last few
/// positions and one in the middle are its own.
fn repetitive(context_len: usize, decode: usize) -> FakeModel {
    let said = (9..context_len - 30).filter(|&position| position != 40);
    FakeModel {
        context_len,
        methods: vec![("prefill_forward", 16), ("kv_forward", decode)],
        forced: said.map(|position| (position, 10 + (position % 5) as TokenId)).collect(),
        ..Default::default()
    }
}

const SIZES: [[usize; 3]; 5] = [[5, 3, 1], [2, 8, 8], [3, 4, 4], [4, 2, 3], [3, 1, 1]];
const UPDATERS: [KvUpdater; 2] = [KvUpdater::SmartMask, KvUpdater::ShiftPointer];

#[test]
fn tokens_are_those_of_greedy_decoding() {
    for model in [repetitive(160, 16), FakeModel { forced: Default::default(), ..repetitive(160, 16) }] {
        for sizes in SIZES {
            for updater in UPDATERS {
                for seq_len in [20, 21, 22, 23, 100] {
                    let (mut runner, _) = load(&model, sizes, updater).unwrap();
                    let config = GenerationConfig { seq_len, ..Default::default() };
                    let fed = prompt(10);
                    let turn = runner.generate(Prompt::Tokens(&fed), &config, &mut |_| ControlFlow::Continue(()));
                    let turn = turn.unwrap();
                    assert_eq!(turn.tokens, model.greedy(&fed, seq_len - 10), "{sizes:?} {updater:?}");
                    assert_eq!((turn.finish_reason, runner.position()), (FinishReason::SeqLen, seq_len - 1));
                }
            }
        }
    }
}

#[test]
fn o18_turns_equal_one_long_prompt() {
    let model = repetitive(160, 16);
    for sizes in SIZES {
        for updater in UPDATERS {
            let (mut runner, _) = load(&model, sizes, updater).unwrap();
            let mut context = Vec::new();
            for len in [10, 3, 20, 1] {
                context.extend(prompt(len));
                let config = GenerationConfig { max_new_tokens: Some(17), ..Default::default() };
                let fed = prompt(len);
                let turn = runner.generate(Prompt::Tokens(&fed), &config, &mut |_| ControlFlow::Continue(()));
                let tokens = turn.unwrap().tokens;
                assert_eq!(tokens, model.greedy(&context, 17), "{sizes:?} {updater:?}");
                context.extend(&tokens[..16]);
                assert_eq!(runner.position(), context.len());
            }
        }
    }
}

#[test]
fn repeated_text_takes_fewer_steps() {
    let model = repetitive(160, 16);
    let (mut runner, probe) = load(&model, [3, 4, 4], KvUpdater::SmartMask).unwrap();
    let config = GenerationConfig { max_new_tokens: Some(80), ..Default::default() };
    let turn = runner.generate(Prompt::Tokens(&prompt(10)), &config, &mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(turn.tokens.len(), 80);
    assert!(probe.executions() < 50, "{} steps for 80 tokens", probe.executions());
}

#[test]
fn events_name_the_row_that_a_token_comes_from() {
    let model = repetitive(160, 16);
    let (mut runner, _) = load(&model, [3, 4, 4], KvUpdater::SmartMask).unwrap();
    let config = GenerationConfig { max_new_tokens: Some(60), ..Default::default() };
    let (mut position, mut rows) = (9, std::collections::BTreeSet::new());
    let fed = prompt(10);
    let turn = runner.generate(Prompt::Tokens(&fed), &config, &mut |event| {
        assert_eq!(event.position, position);
        position += 1;
        rows.insert(event.row);
        ControlFlow::Continue(())
    });
    turn.unwrap();
    // The first of a step, and rows of verified candidates behind 2 levels of 4.
    assert!(rows.contains(&0) && rows.iter().any(|&row| row >= 8), "{rows:?}");
}

#[test]
fn an_end_token_within_a_verified_run_ends_the_turn() {
    let mut model = repetitive(160, 16);
    // Seen twice before, so candidates foretell what comes after it.
    for position in (9..130).filter(|position| position % 5 == 3) {
        model.forced.insert(position, if position > 50 { 96 } else { 13 });
    }
    for updater in UPDATERS {
        let options = RunnerOptions { extra_eos: vec![96], ..options([4, 2, 3], updater) };
        let mut runner = Runner::load(model.module().0, Arc::new(FakeTokenizer::default()), options).unwrap();
        let config = GenerationConfig::default();
        let turn = runner.generate(Prompt::Tokens(&prompt(10)), &config, &mut |_| ControlFlow::Continue(())).unwrap();
        assert_eq!((turn.finish_reason, turn.tokens.len()), (FinishReason::Eos, 45));
        assert_eq!((turn.tokens.last(), runner.position()), (Some(&96), 54));
    }
}

#[test]
fn the_context_ends_where_a_step_no_longer_fits() {
    let model = repetitive(128, 64);
    for updater in UPDATERS {
        for sizes in [[5, 8, 8], [3, 4, 4]] {
            let (mut runner, _) = load(&model, sizes, updater).unwrap();
            let config = GenerationConfig::default();
            let fed = prompt(33);
            let turn = runner.generate(Prompt::Tokens(&fed), &config, &mut |_| ControlFlow::Continue(())).unwrap();
            assert_eq!(turn.tokens, model.greedy(&fed, turn.tokens.len()));
            assert_eq!((turn.finish_reason, runner.position()), (FinishReason::ContextFull, 64));
            assert!((32..=37).contains(&turn.tokens.len()), "{}", turn.tokens.len());
            let next = runner.generate(Prompt::Tokens(&[1]), &config, &mut |_| ControlFlow::Continue(())).unwrap_err();
            assert_eq!(next.find(), Some(&RunnerError::ContextExceeded { have: 64, need: 1, limit: 64 }));
            runner.reset();
            let again = runner.generate(Prompt::Tokens(&fed), &config, &mut |_| ControlFlow::Continue(())).unwrap();
            assert_eq!(again.tokens, turn.tokens);
        }
    }
}

#[test]
fn temperature_draws_the_same_tokens_as_without_lookahead() {
    let model = repetitive(160, 16);
    let config = GenerationConfig { temperature: 3.0, seed: 5, max_new_tokens: Some(60), ..Default::default() };
    let (module, _) = model.module();
    let plain = RunnerOptions { eval_mode: Some(EvalMode::Hybrid), ..Default::default() };
    let mut plain = Runner::load(module, Arc::new(FakeTokenizer::default()), plain).unwrap();
    let (mut ahead, _) = load(&model, [3, 4, 4], KvUpdater::SmartMask).unwrap();
    let [one, two] = [&mut plain, &mut ahead].map(|runner| {
        runner.generate(Prompt::Tokens(&prompt(10)), &config, &mut |_| ControlFlow::Continue(())).unwrap().tokens
    });
    assert_eq!(one, two);
}

#[test]
fn a_windowed_model_is_lossless_too() {
    for window in [4, 12] {
        let mut model = FakeModel { window: Some(window), ..repetitive(160, 16) };
        model.constants.insert("get_sliding_window", vec![Value::Int(window as i64)]);
        for updater in UPDATERS {
            let (mut runner, _) = load(&model, [3, 4, 4], updater).unwrap();
            let config = GenerationConfig { max_new_tokens: Some(60), ..Default::default() };
            let fed = prompt(10);
            let turn = runner.generate(Prompt::Tokens(&fed), &config, &mut |_| ControlFlow::Continue(())).unwrap();
            assert_eq!(turn.tokens, model.greedy(&fed, 60));
        }
    }
}

#[test]
fn sizes_that_do_not_fit_the_method_are_refused() {
    let model = repetitive(128, 64);
    let error = load(&model, [6, 8, 8], KvUpdater::SmartMask).err().unwrap();
    assert_eq!(error.find(), Some(&RunnerError::LookaheadRows { rows: 80, ar: 64 }));
    let error = load(&repetitive(128, 1), [3, 2, 2], KvUpdater::SmartMask).err().unwrap();
    assert_eq!(error.find(), Some(&RunnerError::LookaheadRows { rows: 8, ar: 1 }));
    let error = load(&model, [0, 0, 0], KvUpdater::SmartMask).err().unwrap();
    assert_eq!(error.find(), Some(&RunnerError::LookaheadSizes { ngram: 0, window: 0, gcap: 0 }));
}
