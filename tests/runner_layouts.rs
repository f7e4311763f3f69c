//! Every layout, updater, element type and AR pair gives the tokens that one pass over the whole sequence gives.

#[path = "common/fake_module.rs"]
mod fake_module;

use fake_module::{FakeModel, FakeTokenizer, Layout};
use llama_runner::runner::{EvalMode, FinishReason, GenerationConfig, KvUpdater, Prompt, Runner, RunnerOptions};
use llama_runner::tensor::DType;
use llama_runner::tokenizer::TokenId;
use std::ops::ControlFlow;
use std::sync::Arc;

const UPDATERS: [KvUpdater; 2] = [KvUpdater::SmartMask, KvUpdater::ShiftPointer];

fn load(model: &FakeModel, kv_updater: KvUpdater, eval_mode: Option<EvalMode>) -> Runner {
    let options = RunnerOptions { kv_updater, eval_mode, ..Default::default() };
    Runner::load(model.module().0, Arc::new(FakeTokenizer::default()), options).unwrap()
}

fn prompt(len: usize) -> Vec<TokenId> {
    (0..len as TokenId).map(|at| (at * 31 + 7) % 89).collect()
}

/// Runs turns of these prompt lengths, each with `steps` decode steps, and compares every token.
fn check_turns(model: &FakeModel, runner: &mut Runner, prompts: &[usize], steps: usize) {
    let mut context = Vec::new();
    for &len in prompts {
        context.extend(prompt(len));
        let config = GenerationConfig { max_decode_steps: Some(steps), ..Default::default() };
        let fed = prompt(len);
        let turn = runner.generate(Prompt::Tokens(&fed), &config, &mut |_| ControlFlow::Continue(())).unwrap();
        assert_eq!(turn.tokens, model.greedy(&context, turn.tokens.len()), "{model:?}");
        let full = turn.finish_reason == FinishReason::ContextFull;
        assert!(full || turn.tokens.len() == steps + 1, "{:?} {model:?}", turn.finish_reason);
        // The last token is never fed back.
        context.extend(&turn.tokens[..turn.tokens.len() - 1]);
        assert!(full || runner.position() == context.len());
    }
}

#[test]
fn every_layout_type_and_ar_pair() {
    for layout in [Layout::PerLayer, Layout::PerHead] {
        for (cache, mask, logits) in [
            (DType::U8, DType::U16, DType::U16),
            (DType::U16, DType::U8, DType::U8),
            (DType::F32, DType::F32, DType::F32),
            (DType::F16, DType::F16, DType::U16),
        ] {
            for (prefill, decode) in [(16, 1), (1, 1), (5, 1), (16, 8), (4, 8), (63, 1), (64, 1), (64, 8)] {
                for mask_rank in [3, 4] {
                    let methods = vec![("prefill_forward", prefill), ("kv_forward", decode)];
                    let model = FakeModel { layout, cache, mask, logits, methods, mask_rank, ..Default::default() };
                    for updater in UPDATERS {
                        check_turns(&model, &mut load(&model, updater, None), &[9, 17, 1], 5);
                    }
                }
            }
        }
    }
}

#[test]
fn one_head_needs_no_copy_and_is_right_too() {
    for heads in [1, 2] {
        for decode in [1, 8] {
            let methods = vec![("prefill_forward", 8), ("kv_forward", decode)];
            let model = FakeModel { heads, methods, tokens: DType::I64, ..Default::default() };
            for updater in UPDATERS {
                check_turns(&model, &mut load(&model, updater, None), &[20, 3, 10], 4);
            }
        }
    }
}

#[test]
fn shapes_that_do_not_tell_keys_from_values() {
    // head_dim equals the cache length of one method, the AR of the other, or both.
    for (head_dim, prefill, decode) in [(48, 16, 1), (16, 16, 1), (32, 32, 32), (56, 8, 8), (1, 16, 1)] {
        for layout in [Layout::PerLayer, Layout::PerHead] {
            let methods = vec![("prefill_forward", prefill), ("kv_forward", decode)];
            let model = FakeModel { head_dim, layout, methods, layers: 1, mask_rank: 3, ..Default::default() };
            let constants = std::collections::BTreeMap::new();
            let model = FakeModel { constants, ..model };
            for updater in UPDATERS {
                check_turns(&model, &mut load(&model, updater, None), &[9, 3], 3);
            }
        }
    }
}

#[test]
fn kv_mode_under_both_names() {
    for (name, ar) in [("kv_forward", 1), ("forward", 1), ("forward", 8)] {
        let model = FakeModel { methods: vec![(name, ar)], ..Default::default() };
        for updater in UPDATERS {
            check_turns(&model, &mut load(&model, updater, Some(EvalMode::Kv)), &[5, 12], 6);
        }
    }
}

#[test]
fn windowed_layers_get_their_own_mask() {
    for window in [3, 8, 30, 64] {
        for (prefill, decode) in [(16, 1), (4, 1), (16, 8)] {
            let methods = vec![("prefill_forward", prefill), ("kv_forward", decode)];
            let mut model = FakeModel { window: Some(window), methods, ..Default::default() };
            let value = llama_runner::runtime::Value::Int(window as i64);
            model.constants.insert("get_sliding_window", vec![value]);
            for updater in UPDATERS {
                check_turns(&model, &mut load(&model, updater, None), &[21, 2], 5);
            }
        }
    }
}

#[test]
fn prompts_of_every_length_up_to_the_limit() {
    for (prefill, decode) in [(32, 1), (16, 1), (128, 1), (32, 64)] {
        let methods = vec![("prefill_forward", prefill), ("kv_forward", decode)];
        let model = FakeModel { context_len: 128, methods, ..Default::default() };
        for updater in UPDATERS {
            let mut runner = load(&model, updater, None);
            for len in [1, 2, 31, 32, 33, 64, 65, 95, 96, 97, 126, 127] {
                if len > 128 - decode {
                    continue;
                }
                runner.reset();
                check_turns(&model, &mut runner, &[len], 3);
            }
        }
    }
}

#[test]
fn whole_context_programs_make_the_first_token() {
    for (name, mode) in [("prefill_forward", None), ("forward", Some(EvalMode::Kv))] {
        for whole_gives_cache in [true, false] {
            let methods = vec![(name, 64)];
            let model = FakeModel { methods, whole_gives_cache, ..Default::default() };
            let mut runner = load(&model, KvUpdater::SmartMask, mode);
            let fed = prompt(20);
            let config = GenerationConfig::default();
            let turn = |runner: &mut Runner| {
                runner.generate(Prompt::Tokens(&fed), &config, &mut |_| ControlFlow::Continue(()))
            };
            let first = turn(&mut runner).unwrap();
            assert_eq!((first.tokens, first.finish_reason), (model.greedy(&fed, 1), FinishReason::ContextFull));
            assert!(turn(&mut runner).unwrap_err().to_string().contains("only at position 0"));
            runner.reset();
            assert_eq!(turn(&mut runner).unwrap().tokens, model.greedy(&fed, 1));
        }
    }
}

#[test]
fn a_prefill_that_gives_no_cache_is_left_aside() {
    let methods = vec![("prefill_forward", 64), ("kv_forward", 1)];
    let model = FakeModel { methods, whole_gives_cache: false, ..Default::default() };
    check_turns(&model, &mut load(&model, KvUpdater::SmartMask, None), &[9, 4], 5);
}
