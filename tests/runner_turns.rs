//! Turns, limits, ends, errors and cancellation, on a module whose tokens depend on everything attended to.

#[path = "common/fake_module.rs"]
mod fake_module;

use fake_module::{BOS, FakeModel, FakeTokenizer, Probe};
use llama_runner::runner::{
    EvalMode, FinishReason, Generation, GenerationConfig, KvUpdater, Prompt, Runner, RunnerError, RunnerOptions,
};
use llama_runner::runtime::Value;
use llama_runner::tensor::DType;
use llama_runner::tokenizer::{TokenId, Tokenizer};
use llama_runner::{Result, Status};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

fn load(model: &FakeModel) -> (Runner, Arc<Probe>) {
    load_with(model, FakeTokenizer::default(), RunnerOptions::default())
}

fn load_with(model: &FakeModel, tokenizer: FakeTokenizer, options: RunnerOptions) -> (Runner, Arc<Probe>) {
    let (module, probe) = model.module();
    (Runner::load(module, Arc::new(tokenizer), options).unwrap(), probe)
}

fn prompt(len: usize) -> Vec<TokenId> {
    (0..len as TokenId).map(|at| (at * 31 + 7) % 89).collect()
}

fn turn(runner: &mut Runner, tokens: &[TokenId], config: &GenerationConfig) -> Result<Generation> {
    runner.generate(Prompt::Tokens(tokens), config, &mut |_| ControlFlow::Continue(()))
}

fn steps(n: usize) -> GenerationConfig {
    GenerationConfig { max_decode_steps: Some(n), ..Default::default() }
}

#[test]
fn o14_a_prompt_longer_than_the_context_is_refused_and_changes_nothing() {
    let model = FakeModel::default();
    let (mut runner, probe) = load(&model);
    let first = turn(&mut runner, &prompt(10), &steps(3)).unwrap();
    let before = probe.executions();
    for len in [51, 52, 64, 65, 1000] {
        let error = turn(&mut runner, &prompt(len), &steps(3)).unwrap_err();
        assert_eq!(error.status(), Status::ContextExceeded);
        let wanted = RunnerError::ContextExceeded { have: 13, need: len, limit: 63 };
        assert_eq!(error.find::<RunnerError>(), Some(&wanted));
    }
    assert_eq!((runner.position(), probe.executions()), (13, before));

    let context = [prompt(10), first.tokens[..3].to_vec(), prompt(50)].concat();
    let second = turn(&mut runner, &prompt(50), &GenerationConfig::default()).unwrap();
    assert_eq!((second.tokens, second.finish_reason), (model.greedy(&context, 1), FinishReason::ContextFull));

    assert_eq!(turn(&mut runner, &prompt(1), &steps(1)).unwrap_err().status(), Status::ContextExceeded);
    runner.reset();
    assert_eq!(turn(&mut runner, &prompt(10), &steps(3)).unwrap().tokens, first.tokens);
}

#[test]
fn o15_the_default_length_is_the_models_context() {
    let model = FakeModel { context_len: 512, ..Default::default() };
    let turn = turn(&mut load(&model).0, &prompt(10), &GenerationConfig::default()).unwrap();
    assert_eq!((turn.tokens.len(), turn.finish_reason), (502, FinishReason::ContextFull));
    assert_eq!(turn.tokens, model.greedy(&prompt(10), 502));
}

#[test]
fn o16_seq_len_counts_as_upstream_and_the_reason_says_why() {
    let model = FakeModel::default();
    let whole = model.greedy(&prompt(5), 59);
    for (seq_len, reason) in [
        (6, FinishReason::SeqLen),
        (8, FinishReason::SeqLen),
        (63, FinishReason::SeqLen),
        (64, FinishReason::ContextFull),
    ] {
        let (mut runner, _) = load(&model);
        let config = GenerationConfig { seq_len, ..Default::default() };
        let turn = turn(&mut runner, &prompt(5), &config).unwrap();
        // seq_len minus the prompt, the token of the prefill included.
        assert_eq!((&*turn.tokens, turn.finish_reason), (&whole[..seq_len - 5], reason));
        assert_eq!(runner.position(), seq_len - 1);
    }
    let too_small = GenerationConfig { seq_len: 5, ..Default::default() };
    let error = turn(&mut load(&model).0, &prompt(5), &too_small).unwrap_err();
    assert_eq!(error.find(), Some(&RunnerError::ContextExceeded { have: 0, need: 5, limit: 4 }));
}

#[test]
fn o17_seq_len_zero_or_too_large_is_the_context_length() {
    let model = FakeModel::default();
    for seq_len in [0, 64, 65, 100_000, usize::MAX] {
        let config = GenerationConfig { seq_len, ..Default::default() };
        assert_eq!(turn(&mut load(&model).0, &prompt(5), &config).unwrap().tokens, model.greedy(&prompt(5), 59));
    }
}

#[test]
fn o18_turns_equal_one_long_prompt() {
    for kv_updater in [KvUpdater::SmartMask, KvUpdater::ShiftPointer] {
        for eval_mode in [EvalMode::Kv, EvalMode::Hybrid] {
            let model = FakeModel { context_len: 128, ..Default::default() };
            let options = RunnerOptions { kv_updater, eval_mode: Some(eval_mode), ..Default::default() };
            let (mut runner, _) = load_with(&model, FakeTokenizer::default(), options.clone());
            let mut context = Vec::new();
            for len in [8, 8, 1, 35, 17] {
                let tokens = turn(&mut runner, &prompt(len), &steps(5)).unwrap().tokens;
                context.extend(prompt(len));
                let (mut fresh, _) = load_with(&model, FakeTokenizer::default(), options.clone());
                assert_eq!(turn(&mut fresh, &context, &steps(5)).unwrap().tokens, tokens);
                context.extend(&tokens[..5]);
                assert_eq!(runner.position(), context.len());
            }
        }
    }
}

#[test]
fn o19_every_familys_end_token_stops_at_once() {
    for (family, piece) in [
        ("llama3", "<|eot_id|>"),
        ("phi_4_mini", "<|end|>"),
        ("qwen3", "<|im_end|>"),
        ("smollm2_135m", "<|im_end|>"),
        ("smollm3", "<|im_end|>"),
        ("gemma", "<end_of_turn>"),
        ("gemma2", "<end_of_turn>"),
        ("gemma3", "<end_of_turn>"),
        ("gemma4", "<turn|>"),
        ("codegen", "<|endoftext|>"),
        ("glm", "<|user|>"),
    ] {
        let model = FakeModel { forced: BTreeMap::from([(12, 95)]), ..Default::default() };
        let tokenizer = FakeTokenizer { eos: vec![2], pieces: BTreeMap::from([(piece, 95)]) };
        let options = RunnerOptions { decoder_model_version: Some(family.into()), ..Default::default() };
        let (mut runner, _) = load_with(&model, tokenizer, options.clone());
        assert_eq!(runner.eos_ids(), [2, 95], "{family}");
        let turn = turn(&mut runner, &prompt(10), &GenerationConfig::default()).unwrap();
        assert_eq!((turn.tokens.len(), turn.finish_reason), (4, FinishReason::Eos), "{family}");
        // The step that made the end token counts, the end token itself is not in the context.
        assert_eq!(runner.position(), 13);

        // A family's end token that the vocabulary lacks is not replaced by another.
        let (runner, _) = load_with(&model, FakeTokenizer { eos: vec![2], ..Default::default() }, options);
        assert_eq!(runner.eos_ids(), [2]);
    }
}

#[test]
fn o19_end_tokens_come_from_tokenizer_program_and_caller() {
    let forced = BTreeMap::from([(10, 90)]);
    let constants =
        BTreeMap::from([("get_eos_id", vec![Value::Int(2)]), ("get_eos_ids", vec![Value::Int(-1), Value::Int(91)])]);
    let model = FakeModel { forced, constants, ..Default::default() };
    let options = RunnerOptions { extra_eos: vec![90], ..Default::default() };
    let tokenizer = FakeTokenizer { eos: vec![3], ..Default::default() };
    let (mut runner, _) = load_with(&model, tokenizer, options);
    assert_eq!(runner.eos_ids(), [2, 3, 90, 91]);
    assert_eq!(turn(&mut runner, &prompt(9), &steps(9)).unwrap().tokens.len(), 3);
    runner.reset();
    let ignoring = GenerationConfig { ignore_eos: true, ..steps(9) };
    let going_on = turn(&mut runner, &prompt(9), &ignoring).unwrap();
    assert_eq!((going_on.tokens.len(), going_on.finish_reason), (10, FinishReason::Length));
}

#[test]
fn an_end_token_made_by_the_prefill_ends_the_turn_too() {
    let model = FakeModel { forced: BTreeMap::from([(8, 2)]), ..Default::default() };
    let (mut runner, probe) =
        load_with(&model, FakeTokenizer { eos: vec![2], ..Default::default() }, Default::default());
    let turn = turn(&mut runner, &prompt(9), &GenerationConfig::default()).unwrap();
    assert_eq!((turn.tokens, turn.finish_reason), (vec![2], FinishReason::Eos));
    assert_eq!((runner.position(), probe.executions()), (9, 1));
}

#[test]
fn o20_bos_comes_at_position_zero_only() {
    let model = FakeModel::default();
    let (mut runner, _) = load(&model);
    for (turn, bos) in [(0, vec![BOS]), (1, vec![])] {
        let done = runner.generate(Prompt::Text("ab"), &steps(2), &mut |_| ControlFlow::Continue(())).unwrap();
        assert_eq!(done.prompt_tokens, [bos, vec![7, 8]].concat(), "turn {turn}");
    }
    runner.reset();
    let config = GenerationConfig { num_bos: 0, ..steps(2) };
    let done = runner.generate(Prompt::Text("ab"), &config, &mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(done.prompt_tokens, [7, 8]);
}

#[test]
fn o21_cancelling_from_another_thread_stops_at_the_next_token() {
    let model = FakeModel { context_len: 256, ..Default::default() };
    let (mut runner, _) = load(&model);
    let canceller = runner.canceller();
    let mut seen = 0;
    let done = runner.generate(Prompt::Tokens(&prompt(5)), &steps(200), &mut |_| {
        seen += 1;
        if seen == 5 {
            let canceller = canceller.clone();
            std::thread::spawn(move || canceller.cancel()).join().unwrap();
        }
        ControlFlow::Continue(())
    });
    let done = done.unwrap();
    assert_eq!((done.finish_reason, done.tokens.len(), seen), (FinishReason::Cancelled, 5, 5));
    // The next turn goes on from there, and a reset starts over.
    let context = [prompt(5), done.tokens[..4].to_vec(), prompt(3)].concat();
    assert_eq!(turn(&mut runner, &prompt(3), &steps(4)).unwrap().tokens, model.greedy(&context, 5));
    runner.reset();
    assert_eq!(turn(&mut runner, &prompt(5), &steps(4)).unwrap().tokens, done.tokens);
}

#[test]
fn o21_cancelling_during_a_long_prefill_leaves_the_context_as_it_was() {
    for kv_updater in [KvUpdater::SmartMask, KvUpdater::ShiftPointer] {
        let model = FakeModel { context_len: 256, ..Default::default() };
        let options = RunnerOptions { kv_updater, ..Default::default() };
        let (mut runner, probe) = load_with(&model, FakeTokenizer::default(), options);
        let first = turn(&mut runner, &prompt(7), &steps(2)).unwrap();
        let (before, canceller) = (probe.executions(), runner.canceller());
        let mut blocks = 0;
        *probe.hook.lock() = Some(Box::new(move || {
            blocks += 1;
            if blocks == 3 {
                canceller.cancel();
            }
        }));
        let done = turn(&mut runner, &prompt(160), &steps(2)).unwrap();
        assert_eq!((done.finish_reason, done.tokens.len()), (FinishReason::Cancelled, 0));
        assert_eq!((probe.executions() - before, runner.position()), (3, 9));
        *probe.hook.lock() = None;
        let context = [prompt(7), first.tokens[..2].to_vec(), prompt(160)].concat();
        assert_eq!(turn(&mut runner, &prompt(160), &steps(2)).unwrap().tokens, model.greedy(&context, 3));
    }
}

#[test]
fn o21_the_callback_stops_a_turn() {
    let model = FakeModel::default();
    let (mut runner, _) = load(&model);
    for wanted in [1, 4] {
        runner.reset();
        let mut seen = 0;
        let done = runner.generate(Prompt::Tokens(&prompt(5)), &GenerationConfig::default(), &mut |_| {
            seen += 1;
            if seen == wanted { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        let done = done.unwrap();
        assert_eq!((done.tokens.len(), done.finish_reason), (wanted, FinishReason::Cancelled));
        assert_eq!(runner.position(), 5 + wanted - 1);
    }
}

#[test]
fn a_failed_step_poisons_the_context_until_reset() {
    let model = FakeModel::default();
    let right = model.greedy(&prompt(40), 6);
    // Blocks 0 to 2 are the prefill, which upstream would sample in spite of the failure.
    for failing in 0..8 {
        let (mut runner, probe) = load(&model);
        probe.fail_after(failing);
        let error = turn(&mut runner, &prompt(40), &steps(5)).unwrap_err();
        assert_eq!(error.status(), Status::BackendFailed);
        assert!(error.chain().contains("the fake device is gone") && error.chain().contains("position"), "{error:?}");
        let poisoned = turn(&mut runner, &prompt(3), &steps(1)).unwrap_err();
        assert_eq!((poisoned.status(), poisoned.find()), (Status::InvalidState, Some(&RunnerError::Poisoned)));
        runner.reset();
        assert_eq!((turn(&mut runner, &prompt(40), &steps(5)).unwrap().tokens, runner.position()), (right.clone(), 45));
    }
}

#[test]
fn a_panicking_callback_poisons_the_context() {
    let model = FakeModel::default();
    let (mut runner, _) = load(&model);
    let panicking = std::panic::AssertUnwindSafe(|| {
        let _ = runner.generate(Prompt::Tokens(&prompt(5)), &steps(5), &mut |_| panic!("callback"));
    });
    assert!(std::panic::catch_unwind(panicking).is_err());
    assert_eq!(turn(&mut runner, &prompt(5), &steps(5)).unwrap_err().status(), Status::InvalidState);
    runner.reset();
    assert_eq!(turn(&mut runner, &prompt(5), &steps(5)).unwrap().tokens, model.greedy(&prompt(5), 6));
}

#[test]
fn a_token_that_the_tokenizer_lacks_is_an_error() {
    let model = FakeModel { vocab: 300, forced: BTreeMap::from([(4, 250)]), ..Default::default() };
    let (mut runner, _) = load(&model);
    let error = turn(&mut runner, &prompt(5), &GenerationConfig::default()).unwrap_err();
    assert_eq!(error.status(), Status::TokenizerFailed);
    assert!(error.chain().contains("decoding token 250 at position 5"), "{}", error.chain());
}

#[test]
fn bad_arguments_change_nothing() {
    let model = FakeModel { logits: DType::U16, ..Default::default() };
    let (mut runner, probe) = load(&model);
    turn(&mut runner, &prompt(5), &steps(2)).unwrap();
    let before = (runner.position(), probe.executions());
    let config = GenerationConfig::default;
    let bad: [(&[TokenId], GenerationConfig, RunnerError); 6] = [
        (&[], config(), RunnerError::EmptyPrompt),
        (&[1, 97], config(), RunnerError::TokenOutsideVocabulary { index: 1, token: 97, vocab: 97 }),
        (&[u64::MAX], config(), RunnerError::TokenOutsideVocabulary { index: 0, token: u64::MAX, vocab: 97 }),
        (&[1], GenerationConfig { temperature: -1.0, ..config() }, RunnerError::Temperature(-1.0)),
        (&[1], GenerationConfig { top_p: 2.0, ..config() }, RunnerError::TopP(2.0)),
        (&[1], GenerationConfig { max_new_tokens: Some(0), ..config() }, RunnerError::NothingToGenerate),
    ];
    for (tokens, config, wanted) in bad {
        let error = turn(&mut runner, tokens, &config).unwrap_err();
        assert_eq!((error.status(), error.find()), (Status::InvalidArgument, Some(&wanted)));
    }
    let error = runner.generate(Prompt::Text(""), &config(), &mut |_| ControlFlow::Continue(())).unwrap_err();
    assert_eq!(error.find(), Some(&RunnerError::EmptyPrompt));
    assert_eq!((runner.position(), probe.executions()), before);
    turn(&mut runner, &prompt(5), &steps(2)).unwrap();
}

#[test]
fn limits_on_tokens_and_steps() {
    let model = FakeModel::default();
    let all = model.greedy(&prompt(5), 10);
    for (config, tokens) in [
        (GenerationConfig { max_new_tokens: Some(1), ..Default::default() }, 1),
        (GenerationConfig { max_new_tokens: Some(4), ..Default::default() }, 4),
        (steps(0), 1),
        (steps(4), 5),
        (GenerationConfig { max_new_tokens: Some(9), ..steps(3) }, 4),
    ] {
        let (mut runner, probe) = load(&model);
        let done = turn(&mut runner, &prompt(5), &config).unwrap();
        assert_eq!((&*done.tokens, done.finish_reason), (&all[..tokens], FinishReason::Length));
        assert_eq!((probe.executions(), runner.position()), (tokens, 5 + tokens - 1), "no step is wasted");
    }
}

#[test]
fn oc8_statistics_count_as_upstream() {
    let (mut runner, _) = load(&FakeModel::default());
    let stats = turn(&mut runner, &prompt(5), &steps(7)).unwrap().stats;
    assert_eq!((stats.num_prompt_tokens, stats.num_generated_tokens), (5, 7));
    let times = [
        stats.model_load_start_ms,
        stats.model_load_end_ms,
        stats.inference_start_ms,
        stats.prompt_eval_end_ms,
        stats.inference_end_ms,
    ];
    assert!(times[0] > 1_600_000_000_000 && times.is_sorted() && stats.first_token_ms == stats.prompt_eval_end_ms);
}

#[test]
fn events_say_where_a_token_comes_from() {
    let model = FakeModel::default();
    let (mut runner, _) = load(&model);
    let mut events = Vec::new();
    let done = runner.generate(Prompt::Tokens(&prompt(20)), &steps(2), &mut |event| {
        assert_eq!((event.logits.dtype, event.logits.bytes.len()), (DType::U16, 97 * 2));
        events.push((event.token, event.position, event.row, String::from_utf8_lossy(event.piece).into_owned()));
        ControlFlow::Continue(())
    });
    let tokens = done.unwrap().tokens;
    // The first token is decoded as if it followed itself.
    let piece = |previous: usize, at: usize| format!("{}>{} ", tokens[previous], tokens[at]);
    assert_eq!(
        events,
        [(tokens[0], 19, 3, piece(0, 0)), (tokens[1], 20, 0, piece(0, 1)), (tokens[2], 21, 0, piece(1, 2))]
    );
}

#[test]
fn o27_temperature_samples_and_a_seed_repeats() {
    let (mut runner, _) = load(&FakeModel::default());
    let mut at = |temperature, seed| {
        runner.reset();
        turn(&mut runner, &prompt(5), &GenerationConfig { temperature, seed, ..Default::default() }).unwrap().tokens
    };
    assert_eq!(at(5.0, 1), at(5.0, 1));
    assert_ne!(at(5.0, 1), at(5.0, 2));
    assert_eq!(at(0.0, 1), at(0.0, 2));
}

#[test]
fn o2_a_mode_that_the_file_lacks_is_refused_by_name() {
    let model = FakeModel { methods: vec![("kv_forward", 1)], ..Default::default() };
    let load = |eval_mode| {
        let options = RunnerOptions { eval_mode: Some(eval_mode), ..Default::default() };
        Runner::load(model.module().0, Arc::new(FakeTokenizer::default()) as Arc<dyn Tokenizer>, options)
    };
    let error = load(EvalMode::Hybrid).err().unwrap();
    assert_eq!(error.status(), Status::NotFound);
    assert_eq!(
        error.chain(),
        "eval_mode 1 (hybrid) needs method prefill_forward; the file has: kv_forward (use eval_mode 0)"
    );
    assert_eq!(load(EvalMode::Lookahead).err().unwrap().find(), Some(&RunnerError::LookaheadUnset));
    assert_eq!(load(EvalMode::Kv).unwrap().eval_mode(), Some(EvalMode::Kv));
}

#[test]
fn oc2_oc3_flags_are_checked() {
    assert_eq!(KvUpdater::default(), KvUpdater::SmartMask);
    assert_eq!(KvUpdater::from_name("smartmask").unwrap_err().status(), Status::InvalidArgument);
    for number in [-1, 3, 7, i64::MAX] {
        assert_eq!(EvalMode::from_number(number).unwrap_err().status(), Status::InvalidArgument);
    }
}

#[test]
fn a_layer_count_that_the_tensors_contradict_is_refused() {
    let constants = BTreeMap::from([("get_n_layers", vec![Value::Int(3)])]);
    let model = FakeModel { constants, ..Default::default() };
    let error = Runner::load(model.module().0, Arc::new(FakeTokenizer::default()), Default::default()).err().unwrap();
    assert_eq!(error.status(), Status::InvalidProgram);
    assert!(error.chain().contains("2 keys for 3 layers"), "{}", error.chain());
}
