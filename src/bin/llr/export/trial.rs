//! The run behind an export: the program's own answer to the prompts, through the runner.

use super::arguments::Arguments;
use llama_runner::builtin::{self, ProgramOptions};
use llama_runner::error::Context;
use llama_runner::export::options::Mode;
use llama_runner::runner::{EvalMode, FinishReason, GenerationConfig, Prompt, Runner, RunnerOptions};
use llama_runner::tokenizer::{self, Specials, TokenId};
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
    let answer = if arguments.mode() == Mode::Prefill { whole_contexts } else { turn };
    arguments.prompts().iter().map(|prompt| answer(&mut runner, prompt, &config, sink)).collect()
}

/// A program that reads whole contexts makes one token a call: each call gets all the tokens so far.
fn whole_contexts(
    runner: &mut Runner,
    prompt: &str,
    config: &GenerationConfig,
    sink: &mut dyn Write,
) -> Result<Answer> {
    let mut known = runner.tokenizer().encode(prompt, Specials { bos: config.num_bos, eos: 0 })?;
    let (asked, mut text) = (known.len(), Vec::new());
    write(sink, prompt.as_bytes())?;
    while known.len() < config.seq_len {
        runner.reset();
        let mut written = Ok(());
        let one = GenerationConfig { max_new_tokens: Some(1), ..config.clone() };
        let made = runner.generate(Prompt::Tokens(&known), &one, &mut |event| {
            written = write(sink, event.piece);
            text.extend_from_slice(event.piece);
            ControlFlow::Continue(())
        })?;
        written?;
        known.extend(&made.tokens);
        if made.finish_reason == FinishReason::Eos {
            break;
        }
    }
    write(sink, b"\n")?;
    let text = String::from_utf8_lossy(&text).into_owned();
    Ok(Answer { prompt: prompt.to_owned(), text, tokens: known.split_off(asked) })
}

fn write(sink: &mut dyn Write, bytes: &[u8]) -> Result<()> {
    let written = sink.write_all(bytes).and_then(|()| sink.flush());
    written.map_err(|error| Error::new(Status::AccessFailed, format!("cannot write the answer: {error}")))
}

fn turn(runner: &mut Runner, prompt: &str, config: &GenerationConfig, sink: &mut dyn Write) -> Result<Answer> {
    let mut bytes = Vec::new();
    let mut written = Ok(());
    let mut echo = Some(prompt);
    let made = runner.generate(Prompt::Text(prompt), config, &mut |event| {
        let prompt = echo.take().unwrap_or_default();
        written = write(sink, prompt.as_bytes()).and_then(|()| write(sink, event.piece));
        bytes.extend_from_slice(event.piece);
        if written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    written.and_then(|()| write(sink, b"\n"))?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    Ok(Answer { prompt: prompt.to_owned(), text, tokens: made?.tokens })
}
