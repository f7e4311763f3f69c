//! The run behind an export: the program's own answer to the prompts, through the runner.

use super::arguments::Arguments;
use llama_runner::builtin::{self, ProgramOptions};
use llama_runner::error::Context;
use llama_runner::export::options::Mode;
use llama_runner::runner::{EvalMode, GenerationConfig, Prompt, Runner, RunnerOptions};
use llama_runner::tokenizer::{self, TokenId};
use llama_runner::{Error, Result, Status};
use std::io::Write;
use std::ops::ControlFlow;
use std::path::Path;

/// The answer to one prompt.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// What was asked.
    pub prompt: String,
    /// What came, as far as it is UTF-8.
    pub text: String,
    /// Its tokens.
    pub tokens: Vec<TokenId>,
}

/// Runs the prompts as turns of one conversation. Each piece goes to `sink` as it is made, the prompt before it.
pub fn run(arguments: &Arguments, tokenizer: &Path, sink: &mut dyn Write) -> Result<Vec<Answer>> {
    let program = arguments.program();
    let options = ProgramOptions { qnn_lib_dir: arguments.qnn_lib_dir().cloned(), ..ProgramOptions::default() };
    let module = builtin::open_program(&program, &options)?;
    let tokenizer = tokenizer::load(tokenizer)?;
    let options = RunnerOptions {
        eval_mode: match arguments.mode() {
            Mode::Kv => Some(EvalMode::Kv),
            Mode::Hybrid => Some(EvalMode::Hybrid),
            Mode::Lookahead => Some(EvalMode::Lookahead),
            // One method for everything: the runner finds it by itself.
            Mode::Prefill | Mode::Dynamic => None,
        },
        decoder_model_version: Some(arguments.family().to_owned()),
        lookahead: (arguments.mode() == Mode::Lookahead).then(|| arguments.lookahead()),
        ..RunnerOptions::default()
    };
    let mut runner =
        Runner::load(module, tokenizer, options).with_context(|| format!("loading {}", program.display()))?;
    let config = GenerationConfig {
        seq_len: arguments.seq_len().min(runner.context_len()),
        temperature: arguments.temperature,
        ..GenerationConfig::default()
    };
    arguments.prompts().iter().map(|prompt| turn(&mut runner, prompt, &config, sink)).collect()
}

fn turn(runner: &mut Runner, prompt: &str, config: &GenerationConfig, sink: &mut dyn Write) -> Result<Answer> {
    let mut bytes = Vec::new();
    let mut written = Ok(());
    let mut echo = Some(prompt);
    let made = runner.generate(Prompt::Text(prompt), config, &mut |event| {
        let prompt = echo.take().unwrap_or_default();
        written =
            sink.write_all(prompt.as_bytes()).and_then(|()| sink.write_all(event.piece)).and_then(|()| sink.flush());
        bytes.extend_from_slice(event.piece);
        if written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    let written = written.and_then(|()| sink.write_all(b"\n"));
    written.map_err(|error| Error::new(Status::AccessFailed, format!("cannot write the answer: {error}")))?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    Ok(Answer { prompt: prompt.to_owned(), text, tokens: made?.tokens })
}
