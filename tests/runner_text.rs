//! Programs of the `forward(tokens, input_pos)` kind: prefill in one call, in chunks, token by token; with a cache and
//! without; limits, turns, ends, methods by name; and what is said when the program is of the other kind.

#[path = "common/fake_module.rs"]
mod fake_module;
#[path = "common/fake_text.rs"]
mod fake_text;

use fake_module::{BOS, FakeModel, FakeTokenizer, Probe};
use fake_text::{Calls, FakeMethod, FakeText, Pos, Rows};
use llama_runner::runner::{
    EvalMode, FinishReason, Generation, GenerationConfig, IoError, Prompt, Runner, RunnerError, RunnerOptions,
    SharedBuffer,
};
use llama_runner::runtime::{RpcMemError, Value};
use llama_runner::tensor::DType;
use llama_runner::tokenizer::TokenId;
use llama_runner::{Error, Result, Status};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

fn try_load(model: &FakeText, options: RunnerOptions) -> Result<Runner> {
    Runner::load(model.module().0, Arc::new(FakeTokenizer::default()), options)
}

fn load(model: &FakeText) -> (Runner, Arc<Probe>, Calls) {
    let (module, probe, calls) = model.module();
    let runner = Runner::load(module, Arc::new(FakeTokenizer::default()), RunnerOptions::default()).unwrap();
    (runner, probe, calls)
}

fn refused(model: &FakeText) -> Error {
    try_load(model, RunnerOptions::default()).err().expect("the program is refused")
}

fn prompt(len: usize) -> Vec<TokenId> {
    (0..len as TokenId).map(|at| (at * 31 + 7) % 89).collect()
}

fn turn(runner: &mut Runner, tokens: &[TokenId], config: &GenerationConfig) -> Result<Generation> {
    runner.generate(Prompt::Tokens(tokens), config, &mut |_| ControlFlow::Continue(()))
}

fn new_tokens(n: usize) -> GenerationConfig {
    GenerationConfig { max_new_tokens: Some(n), ..Default::default() }
}

/// Runs turns of these prompt lengths and compares every token with one pass over the whole context.
fn check_turns(model: &FakeText, prompts: &[usize]) {
    let (mut runner, ..) = load(model);
    let mut context = Vec::new();
    for &len in prompts {
        context.extend(prompt(len));
        let made =
            turn(&mut runner, &prompt(len), &new_tokens(6)).unwrap_or_else(|error| panic!("{error:?} {model:?}"));
        assert_eq!(made.tokens, model.greedy(&context, 6), "{model:?}");
        // The last token is never fed back.
        context.extend(&made.tokens[..5]);
        assert_eq!(runner.position(), context.len());
    }
}

#[test]
fn every_shape_and_type_gives_the_tokens_of_one_pass() {
    for pos in [Pos::Start, Pos::Each, Pos::None] {
        for rows in [Rows::Last, Rows::Last3, Rows::Every] {
            for (planned_inputs, planned_outputs) in [(false, true), (true, true), (true, false), (false, false)] {
                for (tokens, logits) in [
                    (DType::I64, DType::F32),
                    (DType::I32, DType::F16),
                    (DType::I64, DType::BF16),
                    (DType::I64, DType::U16),
                ] {
                    let methods = vec![FakeMethod { pos, rows, ..Default::default() }];
                    let base =
                        FakeText { methods, planned_inputs, planned_outputs, tokens, logits, ..Default::default() };
                    check_turns(&base.without("use_kv_cache"), &[5, 1, 20, 3]);
                }
            }
        }
    }
}

#[test]
fn o18_turns_equal_one_long_prompt() {
    for model in [FakeText::default(), FakeText::without_cache(Rows::Last, true)] {
        let (mut turns, ..) = load(&model);
        let mut context = Vec::new();
        for len in [8, 1, 17] {
            let made = turn(&mut turns, &prompt(len), &new_tokens(5)).unwrap();
            context.extend(prompt(len));
            assert_eq!(turn(&mut load(&model).0, &context, &new_tokens(5)).unwrap().tokens, made.tokens);
            context.extend(&made.tokens[..4]);
        }
    }
}

#[test]
fn a_prompt_goes_in_one_call_where_it_may() {
    let (mut runner, _, calls) = load(&FakeText::default());
    turn(&mut runner, &prompt(40), &new_tokens(3)).unwrap();
    assert_eq!(*calls.lock(), [("forward", 40, 0), ("forward", 1, 40), ("forward", 1, 41)]);
}

#[test]
fn chunks_follow_the_bound_and_what_the_program_and_the_module_say() {
    let short = |most| {
        let methods = vec![FakeMethod { most, ..Default::default() }];
        FakeText { methods, ..Default::default() }
    };
    for (model, sizes) in [
        // The bound of the tokens is get_max_seq_len - 1 in real files: upstream's chunks of get_max_seq_len do not fit.
        (short(31).with("get_max_seq_len", Value::Int(32)), &[31, 9][..]),
        (FakeText::default().with("get_max_seq_len", Value::Int(16)), &[16, 16, 8]),
        (FakeText::default().with("get_max_prefill_chunk", Value::Int(25)), &[25, 15]),
        (FakeText::default().with("enable_dynamic_shape", Value::Bool(false)), &[1; 40]),
        (FakeText::default().without("enable_dynamic_shape").without("get_max_seq_len"), &[40]),
        (FakeText { chunk: Some(32), ..Default::default() }, &[32, 8]),
        (FakeText { chunk: Some(32), ..Default::default() }.with("get_max_prefill_chunk", Value::Int(25)), &[25, 15]),
    ] {
        let (mut runner, _, calls) = load(&model);
        let made = turn(&mut runner, &prompt(40), &new_tokens(4)).unwrap();
        assert_eq!(made.tokens, model.greedy(&prompt(40), 4), "chunked or not");
        let mut start = 0;
        for (call, &size) in calls.lock().iter().zip(sizes) {
            assert_eq!(*call, ("forward", size, start));
            start += size;
        }
        assert_eq!((start, calls.lock().len()), (40, sizes.len() + 3));
    }
}

#[test]
fn a_program_of_one_token_a_call_takes_the_prompt_token_by_token() {
    let methods = vec![FakeMethod { most: 1, dynamic: false, rows: Rows::Last3, ..Default::default() }];
    let model = FakeText { methods, ..Default::default() }.with("enable_dynamic_shape", Value::Bool(false));
    check_turns(&model, &[5, 1, 12]);
    let (mut runner, _, calls) = load(&model);
    turn(&mut runner, &prompt(7), &new_tokens(2)).unwrap();
    assert_eq!(calls.lock().len(), 8);
}

#[test]
fn without_a_cache_each_call_has_the_whole_context() {
    let model = FakeText::without_cache(Rows::Last, true);
    let (mut runner, _, calls) = load(&model);
    let made = turn(&mut runner, &prompt(10), &new_tokens(4)).unwrap();
    assert_eq!(*calls.lock(), [("forward", 10, 0), ("forward", 11, 0), ("forward", 12, 0), ("forward", 13, 0)]);
    assert_eq!(made.tokens, turn(&mut load(&FakeText::default()).0, &prompt(10), &new_tokens(4)).unwrap().tokens);
    // Stated by the program, though it takes positions.
    let model = FakeText::default().with("use_kv_cache", Value::Int(0));
    let (mut runner, _, calls) = load(&model);
    turn(&mut runner, &prompt(10), &new_tokens(3)).unwrap();
    assert_eq!(*calls.lock(), [("forward", 10, 0), ("forward", 11, 0), ("forward", 12, 0)]);
}

#[test]
fn without_a_cache_a_call_of_fixed_size_is_filled_up() {
    let model = FakeText::without_cache(Rows::Every, false);
    check_turns(&model, &[5, 1, 20]);
    let mut rows = Vec::new();
    let (mut runner, ..) = load(&model);
    runner
        .generate(Prompt::Tokens(&prompt(5)), &new_tokens(3), &mut |event| {
            rows.push((event.position, event.row));
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(rows, [(4, 4), (5, 5), (6, 6)]);

    let error = refused(&FakeText::without_cache(Rows::Last, false));
    assert_eq!(error.find(), Some(&RunnerError::WholeContextRow { method: "forward".into(), tokens: 63 }));
}

#[test]
fn o14_a_prompt_longer_than_the_context_is_refused_and_changes_nothing() {
    for model in [FakeText::default(), FakeText::without_cache(Rows::Every, true)] {
        let (mut runner, probe, _) = load(&model);
        let first = turn(&mut runner, &prompt(10), &new_tokens(4)).unwrap();
        let before = probe.executions();
        for len in [51, 52, 64, 65, 1000] {
            let error = turn(&mut runner, &prompt(len), &new_tokens(4)).unwrap_err();
            assert_eq!(error.status(), Status::ContextExceeded);
            assert_eq!(error.find(), Some(&RunnerError::ContextExceeded { have: 13, need: len, limit: 63 }));
        }
        assert_eq!((runner.position(), probe.executions()), (13, before));
        let context = [prompt(10), first.tokens[..3].to_vec(), prompt(50)].concat();
        let second = turn(&mut runner, &prompt(50), &GenerationConfig::default()).unwrap();
        assert_eq!((second.tokens, second.finish_reason), (model.greedy(&context, 1), FinishReason::ContextFull));
        assert_eq!(turn(&mut runner, &prompt(1), &new_tokens(1)).unwrap_err().status(), Status::ContextExceeded);
        runner.reset();
        assert_eq!(turn(&mut runner, &prompt(10), &new_tokens(4)).unwrap().tokens, first.tokens);
    }
}

#[test]
fn o15_the_default_length_is_the_models_context() {
    let model = FakeText { cache: 512, ..Default::default() }.with("get_max_context_len", Value::Int(512));
    let made = turn(&mut load(&model).0, &prompt(10), &GenerationConfig::default()).unwrap();
    // Upstream's count: the prompt, and tokens up to the context's length.
    assert_eq!((made.tokens.len(), made.finish_reason), (502, FinishReason::ContextFull));
    assert_eq!(made.stats.num_generated_tokens, 501);
}

#[test]
fn the_context_length_has_fall_backs() {
    let length = |model: &FakeText| load(model).0.context_len();
    let full = FakeText::default().with("get_max_context_len", Value::Int(60));
    assert_eq!(length(&full), 60);
    assert_eq!(length(&full.clone().without("get_max_context_len")), 64);
    let none = FakeText::default().without("get_max_context_len").without("get_max_seq_len");
    assert_eq!(refused(&none).find(), Some(&RunnerError::NoContextLength));
    // Without a cache the bound of the tokens is a limit, stated or not.
    let whole = FakeText::without_cache(Rows::Last, true).with("get_max_context_len", Value::Int(1000));
    assert_eq!(length(&whole), 64);
    assert_eq!(length(&whole.clone().without("get_max_context_len").without("get_max_seq_len")), 64);
    assert_eq!(length(&whole.with("get_max_context_len", Value::Int(20))), 20);

    for stated in [0, -5, i64::MAX, 1 << 31] {
        let error = refused(&FakeText::default().with("get_max_context_len", Value::Int(stated)));
        assert_eq!(error.status(), Status::InvalidProgram);
        assert_eq!(error.find(), Some(&RunnerError::StatedLength { name: "get_max_context_len", stated }));
    }
    // A context that is stated large takes no memory before it is used.
    let huge = FakeText::default().with("get_max_context_len", Value::Int(i64::from(i32::MAX)));
    assert_eq!(turn(&mut load(&huge).0, &prompt(5), &new_tokens(2)).unwrap().tokens.len(), 2);
}

#[test]
fn o16_o17_lengths_count_as_upstream_and_the_reason_says_why() {
    let model = FakeText::default();
    let whole = model.greedy(&prompt(5), 59);
    for (seq_len, count, reason) in [
        (6, 1, FinishReason::SeqLen),
        (63, 58, FinishReason::SeqLen),
        (64, 59, FinishReason::ContextFull),
        (0, 59, FinishReason::ContextFull),
        (100_000, 59, FinishReason::ContextFull),
    ] {
        let config = GenerationConfig { seq_len, ..Default::default() };
        let made = turn(&mut load(&model).0, &prompt(5), &config).unwrap();
        assert_eq!((&*made.tokens, made.finish_reason), (&whole[..count], reason), "seq_len {seq_len}");
    }
    for n in [1, 2, 20] {
        let (mut runner, probe, _) = load(&model);
        let made = turn(&mut runner, &prompt(5), &new_tokens(n)).unwrap();
        assert_eq!((&*made.tokens, made.finish_reason), (&whole[..n], FinishReason::Length));
        assert_eq!((probe.executions(), made.stats.num_generated_tokens), (n, n as i64 - 1), "no step is wasted");
    }
    assert_eq!(turn(&mut load(&model).0, &prompt(5), &new_tokens(1000)).unwrap().tokens, whole);
    assert_eq!(
        turn(&mut load(&model).0, &prompt(5), &new_tokens(0)).unwrap_err().find(),
        Some(&RunnerError::NothingToGenerate)
    );
}

#[test]
fn o19_end_tokens_come_from_tokenizer_program_and_caller() {
    let ends = BTreeMap::from([(10, 90)]);
    let mut model = FakeText { forced: ends, ..Default::default() }.with("get_eos_id", Value::Int(2));
    model.constants.insert("get_eos_ids", vec![Value::Int(91), Value::Int(92)]);
    let tokenizer = FakeTokenizer { eos: vec![3], ..Default::default() };
    let options = RunnerOptions { extra_eos: vec![90], ..Default::default() };
    let mut runner = Runner::load(model.module().0, Arc::new(tokenizer), options).unwrap();
    assert_eq!(runner.eos_ids(), [2, 3, 90, 91, 92]);
    let made = turn(&mut runner, &prompt(9), &new_tokens(20)).unwrap();
    assert_eq!((made.tokens.len(), made.finish_reason), (3, FinishReason::Eos));
    runner.reset();
    let ignoring = GenerationConfig { ignore_eos: true, ..new_tokens(9) };
    assert_eq!(turn(&mut runner, &prompt(9), &ignoring).unwrap().tokens.len(), 9);
    // The first token may be an end token too.
    runner.reset();
    assert_eq!(turn(&mut runner, &prompt(11), &new_tokens(9)).unwrap().finish_reason, FinishReason::Eos);
}

#[test]
fn forced_tokens_are_taken_whatever_their_rows_say() {
    let (mut runner, ..) = load(&FakeText::default());
    let free = turn(&mut runner, &prompt(9), &new_tokens(6)).unwrap().tokens;
    let mut forced = free[..4].to_vec();
    forced[2] = (free[2] + 1) % 97;
    runner.reset();
    let mut rows = Vec::new();
    let config = GenerationConfig { forced: forced.clone(), ..new_tokens(6) };
    let made = runner
        .generate(Prompt::Tokens(&prompt(9)), &config, &mut |event| {
            rows.push(event.logits.fnv1a64());
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!((&made.tokens[..4], made.tokens.len()), (&forced[..], 6));
    // The last two are its own choice behind what was forced, as if that had been the prompt.
    runner.reset();
    let fed = [prompt(9), forced].concat();
    let mut own_rows = Vec::new();
    let own = runner.generate(Prompt::Tokens(&fed), &new_tokens(2), &mut |event| {
        own_rows.push(event.logits.fnv1a64());
        ControlFlow::Continue(())
    });
    assert_eq!((own.unwrap().tokens, &own_rows[..]), (made.tokens[4..].to_vec(), &rows[4..]));
    let config = GenerationConfig { forced: vec![0, 97], ..new_tokens(6) };
    let error = turn(&mut runner, &prompt(1), &config).unwrap_err();
    assert_eq!(error.find(), Some(&RunnerError::ForcedOutsideVocabulary { index: 1, token: 97, vocab: 97 }));
}

#[test]
fn o20_special_tokens_are_as_many_as_asked_for() {
    let (mut runner, ..) = load(&FakeText::default());
    for (num_bos, bos) in [(0, vec![]), (1, vec![BOS]), (3, vec![BOS; 3])] {
        runner.reset();
        let config = GenerationConfig { num_bos, ..new_tokens(2) };
        for bos in [bos, vec![]] {
            let made = runner.generate(Prompt::Text("ab"), &config, &mut |_| ControlFlow::Continue(())).unwrap();
            assert_eq!(made.prompt_tokens, [bos, vec![7, 8]].concat());
        }
    }
}

#[test]
fn o21_cancelling_during_a_long_prefill_leaves_the_context_as_it_was() {
    for model in [
        FakeText::default().with("get_max_prefill_chunk", Value::Int(8)),
        FakeText::default().with("enable_dynamic_shape", Value::Bool(false)),
    ] {
        let (mut runner, probe, _) = load(&model);
        let first = turn(&mut runner, &prompt(7), &new_tokens(3)).unwrap();
        let (before, canceller) = (probe.executions(), runner.canceller());
        let mut calls = 0;
        *probe.hook.lock() = Some(Box::new(move || {
            calls += 1;
            if calls == 3 {
                canceller.cancel();
            }
        }));
        let made = turn(&mut runner, &prompt(40), &new_tokens(2)).unwrap();
        assert_eq!((made.finish_reason, made.tokens.len()), (FinishReason::Cancelled, 0));
        assert_eq!((probe.executions() - before, runner.position()), (3, 9));
        *probe.hook.lock() = None;
        let context = [prompt(7), first.tokens[..2].to_vec(), prompt(40)].concat();
        assert_eq!(turn(&mut runner, &prompt(40), &new_tokens(3)).unwrap().tokens, model.greedy(&context, 3));
    }
}

#[test]
fn o21_the_callback_stops_a_turn() {
    for model in [FakeText::default(), FakeText::without_cache(Rows::Last, true)] {
        let (mut runner, ..) = load(&model);
        let mut seen = 0;
        let made = runner.generate(Prompt::Tokens(&prompt(5)), &GenerationConfig::default(), &mut |_| {
            seen += 1;
            if seen == 4 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        let made = made.unwrap();
        assert_eq!((made.tokens.len(), made.finish_reason, runner.position()), (4, FinishReason::Cancelled, 8));
        let context = [prompt(5), made.tokens[..3].to_vec(), prompt(2)].concat();
        assert_eq!(turn(&mut runner, &prompt(2), &new_tokens(3)).unwrap().tokens, model.greedy(&context, 3));
    }
}

#[test]
fn a_failed_call_poisons_the_context_until_reset() {
    for model in [FakeText::default(), FakeText::without_cache(Rows::Last, true)] {
        for failing in 0..4 {
            let (mut runner, probe, _) = load(&model);
            probe.fail_after(failing);
            let error = turn(&mut runner, &prompt(20), &new_tokens(6)).unwrap_err();
            assert!(error.chain().contains("the fake device is gone") && error.chain().contains("running forward"));
            assert_eq!(turn(&mut runner, &prompt(3), &new_tokens(1)).unwrap_err().find(), Some(&RunnerError::Poisoned));
            runner.reset();
            let made = turn(&mut runner, &prompt(20), &new_tokens(6)).unwrap();
            assert_eq!((made.tokens, runner.position()), (model.greedy(&prompt(20), 6), 25));
        }
    }
}

#[test]
fn bad_arguments_change_nothing() {
    let (mut runner, probe, _) = load(&FakeText::default());
    turn(&mut runner, &prompt(5), &new_tokens(2)).unwrap();
    let before = (runner.position(), probe.executions());
    for (tokens, config, wanted) in [
        (&[][..], new_tokens(1), RunnerError::EmptyPrompt),
        (&[1, 97], new_tokens(1), RunnerError::TokenOutsideVocabulary { index: 1, token: 97, vocab: 97 }),
        (
            &[1],
            GenerationConfig { temperature: f32::INFINITY, ..new_tokens(1) },
            RunnerError::Temperature(f32::INFINITY),
        ),
    ] {
        assert_eq!(turn(&mut runner, tokens, &config).unwrap_err().find(), Some(&wanted));
    }
    assert_eq!((runner.position(), probe.executions()), before);
}

#[test]
fn temperature_needs_real_values() {
    let sampling = GenerationConfig { temperature: 0.8, seed: 4, ..new_tokens(8) };
    let once = || turn(&mut load(&FakeText::default()).0, &prompt(5), &sampling).unwrap().tokens;
    assert_eq!(once(), once());
    let codes = FakeText { logits: DType::U16, ..Default::default() };
    let error = turn(&mut load(&codes).0, &prompt(5), &sampling).unwrap_err();
    assert_eq!(error.find(), Some(&RunnerError::NoLogitsScale));
    let scaled = codes.with("get_logits_scale", Value::Double(1.0));
    assert_eq!(turn(&mut load(&scaled).0, &prompt(5), &sampling).unwrap().tokens, once());
}

/// A program of two methods with one cache.
fn two_methods(prefill: FakeMethod, decode: FakeMethod) -> FakeText {
    let methods = vec![FakeMethod { name: "prefill", ..prefill }, FakeMethod { name: "decode", ..decode }];
    FakeText { methods, ..Default::default() }
}

fn one_token() -> FakeMethod {
    FakeMethod { most: 1, dynamic: false, ..Default::default() }
}

#[test]
fn two_methods_share_the_work() {
    let model = two_methods(FakeMethod::default(), one_token());
    check_turns(&model, &[5, 1, 20]);
    let (mut runner, _, calls) = load(&model);
    turn(&mut runner, &prompt(9), &new_tokens(3)).unwrap();
    assert_eq!(*calls.lock(), [("prefill", 9, 0), ("decode", 1, 9), ("decode", 1, 10)]);

    // A prefill of a fixed number takes whole blocks; decode takes what is left.
    let model = two_methods(FakeMethod { most: 8, dynamic: false, ..Default::default() }, one_token());
    check_turns(&model, &[5, 8, 1, 19]);
    let (mut runner, _, calls) = load(&model);
    turn(&mut runner, &prompt(18), &new_tokens(2)).unwrap();
    let expected = [("prefill", 8, 0), ("prefill", 8, 8), ("decode", 1, 16), ("decode", 1, 17), ("decode", 1, 18)];
    assert_eq!(*calls.lock(), expected);
    let every = FakeMethod { most: 8, dynamic: false, rows: Rows::Every, ..Default::default() };
    check_turns(&two_methods(every, FakeMethod { most: 4, ..Default::default() }), &[5, 8, 16, 3]);
}

#[test]
fn methods_are_run_by_name() {
    let methods = ["forward", "lora_forward"].map(|name| FakeMethod { name, ..Default::default() }).to_vec();
    let model = FakeText { methods, ..Default::default() };
    let run = |method: Option<&str>| {
        let (module, _, calls) = model.module();
        let options = RunnerOptions { method_name: method.map(str::to_owned), ..Default::default() };
        let mut runner = Runner::load(module, Arc::new(FakeTokenizer::default()), options)?;
        turn(&mut runner, &prompt(3), &new_tokens(2))?;
        let names: Vec<&str> = calls.lock().iter().map(|call| call.0).collect();
        Ok::<_, Error>(names)
    };
    assert_eq!(run(None).unwrap(), ["forward"; 2]);
    assert_eq!(run(Some("forward")).unwrap(), ["forward"; 2]);
    assert_eq!(run(Some("lora_forward")).unwrap(), ["lora_forward"; 2]);
    let error = run(Some("lora")).unwrap_err();
    assert_eq!(error.status(), Status::NotFound);
    assert_eq!(error.chain(), "the file has no method lora; it has: forward, lora_forward");
}

#[test]
fn a_program_that_cannot_continue_is_refused() {
    let fixed = FakeMethod { most: 8, dynamic: false, rows: Rows::Every, ..Default::default() };
    let error = refused(&FakeText { methods: vec![fixed.clone()], ..Default::default() });
    assert_eq!(error.find(), Some(&RunnerError::NoSingleToken { method: "forward".into(), tokens: 8 }));
    assert_eq!(error.status(), Status::NotSupported);
    let error = refused(&two_methods(FakeMethod::default(), fixed));
    assert_eq!(error.find(), Some(&RunnerError::NoSingleToken { method: "decode".into(), tokens: 8 }));
}

#[test]
fn methods_and_statements_that_contradict_each_other_are_named() {
    let no_cache = FakeMethod { pos: Pos::None, ..Default::default() };
    let error = refused(&two_methods(FakeMethod::default(), no_cache.clone()));
    assert!(error.chain().contains("prefill and decode differ in what they take"), "{}", error.chain());
    let error = refused(&FakeText { methods: vec![no_cache], ..Default::default() });
    assert!(matches!(error.find(), Some(IoError::Missing { role: "input_pos", .. })), "{error:?}");
    assert_eq!(error.status(), Status::InvalidProgram);
}

#[test]
fn a_forward_program_has_no_eval_mode() {
    for mode in [EvalMode::Kv, EvalMode::Hybrid] {
        let options = RunnerOptions { eval_mode: Some(mode), ..Default::default() };
        let error = try_load(&FakeText::default(), options.clone()).err().unwrap();
        assert_eq!(error.status(), Status::NotSupported);
        let signature = "forward(i64[1, ≤63], i64[1]) -> f32[1, ≤97]";
        assert_eq!(error.find(), Some(&RunnerError::TextMethod { signature: signature.into(), mode }));
        let both = RunnerOptions { method_name: Some("forward".into()), ..options };
        assert_eq!(try_load(&FakeText::default(), both).err().unwrap().find(), Some(&RunnerError::MethodAndMode));
    }
    let (runner, ..) = load(&FakeText::default());
    assert_eq!(runner.eval_mode(), None);
    assert!(runner.describe().starts_with("forward(i64[1, ≤63], i64[1]) -> f32"));
}

#[test]
fn a_static_program_has_no_method_name() {
    let load = |methods: &[(&'static str, usize)], name: &str| {
        let model = FakeModel { methods: methods.to_vec(), ..Default::default() };
        let options = RunnerOptions { method_name: Some(name.into()), ..Default::default() };
        Runner::load(model.module().0, Arc::new(FakeTokenizer::default()), options).err().unwrap()
    };
    // The kv-only file of PR 10578 has the same method name as a forward program.
    let error = load(&[("forward", 1)], "forward");
    assert_eq!(error.status(), Status::NotSupported);
    assert!(matches!(error.find(), Some(RunnerError::StaticMethod { .. })));
    assert!(
        error.chain().starts_with("forward(i32[1, 1], u16[1, 1, 1, 64], i32[1, 1], u8[1, 2, 3, 63], and 3 more) -> ")
    );
    let error = load(&[("prefill_forward", 16), ("kv_forward", 1)], "forward");
    assert_eq!(error.status(), Status::NotFound);
    assert!(error.chain().contains("kv_forward: a static llama program"), "{}", error.chain());
    // Asked for nothing, both kinds of `forward` run.
    let model = FakeModel { methods: vec![("forward", 1)], ..Default::default() };
    let runner = Runner::load(model.module().0, Arc::new(FakeTokenizer::default()), RunnerOptions::default()).unwrap();
    assert_eq!(runner.eval_mode(), Some(EvalMode::Kv));
}

#[test]
fn the_profile_is_the_modules() {
    let (mut runner, ..) = load(&FakeText::default());
    runner.set_profiling(true);
    turn(&mut runner, &prompt(3), &new_tokens(4)).unwrap();
    assert_eq!(runner.take_profile().unwrap().dropped, 4);
}

#[test]
fn a_required_shared_buffer_is_required_of_these_programs_too() {
    let rpcmem_lib = Some("no/such/library.so".into());
    let options = RunnerOptions { shared_buffer: SharedBuffer::Require, rpcmem_lib, ..Default::default() };
    assert!(matches!(
        try_load(&FakeText::default(), options).err().unwrap().find(),
        Some(RpcMemError::NotLoaded { .. })
    ));
}
