//! The runner token by token, going back, and saved contexts, on modules whose tokens depend on everything attended to.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/fake_module.rs"]
mod fake_module;
#[path = "../common/fake_qnn.rs"]
mod fake_qnn;
#[path = "../common/fake_text.rs"]
mod fake_text;
mod faults;
mod saved;
mod steps;

use fake_module::{FakeModel, FakeTokenizer, Layout};
use fake_text::{FakeText, Rows};
use llama_runner::Result;
use llama_runner::runner::{
    EvalMode, GenerationConfig, KvUpdater, LookaheadConfig, Prompt, Runner, RunnerError, RunnerOptions,
};
use llama_runner::runtime::{Module, Value};
use llama_runner::tokenizer::TokenId;
use std::ops::ControlFlow;
use std::sync::Arc;

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
