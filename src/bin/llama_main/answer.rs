//! One run of the program: load, warm up if asked, answer, report.

use crate::output::{self, OutputFile};
use crate::settings::Settings;
use crate::{log_line, profile, report, trace, warn};
use llama_runner::base::log::Level;
use llama_runner::builtin::{self, default_model};
use llama_runner::error::Context;
use llama_runner::runner::{
    FinishReason, Generation, GenerationConfig, Prompt, Runner, RunnerError, RunnerOptions, TokenEvent,
};
use llama_runner::tokenizer::{self, Specials, TokenId};
use llama_runner::{Error, Result, Status};
use std::io::Write;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Runs everything that `settings` ask for.
pub fn run(settings: &Settings) -> Result<()> {
    refuse_inputs(settings)?;
    let mut trace = settings.trace_path.as_deref().map(OutputFile::open).transpose()?;
    let mut profile = settings.profile_path.as_deref().map(OutputFile::open).transpose()?;
    let mut runner = load(settings)?;
    if settings.warmup {
        let prompt = Prompt::Text(&settings.prompt);
        let warm = runner.generate(prompt, &settings.generation, &mut |_| ControlFlow::Continue(()));
        warm.with_context(|| "warming up")?;
        runner.reset();
    }
    [&mut trace, &mut profile].into_iter().flatten().try_for_each(OutputFile::begin)?;
    runner.set_profiling(profile.is_some());
    let generation = answer(settings, &mut runner, &mut trace);
    if let Some(file) = &mut profile {
        // What a failed run did is of interest too.
        match runner.take_profile() {
            Some(recorded) => file.append(profile::chrome_trace(&recorded).as_bytes())?,
            None => warn("this program records no profile"),
        }
    }
    finish(settings, &runner, &generation?)
}

fn refuse_inputs(settings: &Settings) -> Result<()> {
    let inputs = [&settings.model_path, &settings.tokenizer_path, &settings.prompt_file];
    let inputs = inputs.into_iter().flatten().chain(&settings.program.data_paths);
    let outputs = [&settings.trace_path, &settings.profile_path].into_iter().flatten();
    output::refuse_inputs(inputs.map(PathBuf::as_path), outputs.map(PathBuf::as_path))
}

fn load(settings: &Settings) -> Result<Runner> {
    let started = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64);
    let (module, name) = match &settings.model_path {
        Some(path) => (builtin::open_program(path, &settings.program)?, path.display().to_string()),
        None => {
            let name = default_model::NAME;
            warn(&format!("--model_path is not given and there is no llama2.pte: {name} runs"));
            (builtin::open_default_program(&settings.program)?, name.to_owned())
        }
    };
    let tokenizer = match &settings.tokenizer_path {
        Some(path) => tokenizer::load(path),
        None => tokenizer::from_bytes(default_model::TOKENIZER, Path::new(default_model::NAME)),
    }?;
    let options = RunnerOptions {
        method_name: Some(settings.method_name.clone()),
        load_started_ms: Some(started),
        ..RunnerOptions::default()
    };
    Runner::load(module, tokenizer, options).map_err(|error| {
        let is_static = match error.find() {
            Some(RunnerError::StaticMethod { .. }) => true,
            Some(RunnerError::NoSuchMethod { hint, .. }) => !hint.is_empty(),
            _ => false,
        };
        error.context(match is_static {
            true => format!("{name} is a program for qnn_llama_runner"),
            false => format!("loading {name}"),
        })
    })
}

/// Streams the answer; the prompt is echoed with the first token, which proves that it was good.
fn answer(settings: &Settings, runner: &mut Runner, trace: &mut Option<OutputFile>) -> Result<Generation> {
    let GenerationConfig { num_bos: bos, num_eos: eos, .. } = settings.generation;
    let tokens = runner.tokenizer().encode(&settings.prompt, Specials { bos, eos })?;
    let mut fed = Some(tokens.as_slice());
    let mut written = Ok(());
    let made = runner.generate(Prompt::Text(&settings.prompt), &settings.generation, &mut |event| {
        written = (|| {
            let fed = fed.take();
            if fed.is_some() {
                print(settings.prompt.as_bytes())?;
            }
            show(fed, event, trace)
        })();
        if written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    if fed.is_none() && (written.is_err() || made.is_err()) {
        // The complaint gets a line of its own.
        let _ = print(b"\n");
    }
    // What the callback failed on comes before what the runner made of the stop.
    written?;
    made
}

fn show(fed: Option<&[TokenId]>, event: &TokenEvent<'_>, trace: &mut Option<OutputFile>) -> Result<()> {
    print(event.piece)?;
    trace.as_mut().map_or(Ok(()), |trace| trace.append(trace::line(0, fed, event).as_bytes()))
}

/// The end of the text, upstream's report, and a warning when a limit that nobody set cut the answer.
fn finish(settings: &Settings, runner: &Runner, made: &Generation) -> Result<()> {
    let end = if made.finish_reason == FinishReason::Eos { "\n\n" } else { "\n" };
    print(format!("{end}{}\n", report::observer_line(&made.stats)).as_bytes())?;
    for (origin, text) in report::report_lines(&made.stats) {
        log_line::write(Level::Info, &origin, &text);
    }
    let context = runner.context_len();
    match made.finish_reason {
        FinishReason::SeqLen => warn(&format!(
            "the answer stopped at --seq_len {} without an end token: give --max_new_tokens for more",
            settings.generation.seq_len
        )),
        FinishReason::ContextFull => {
            warn(&format!("the answer stopped without an end token: the model's context of {context} tokens is full"));
        }
        FinishReason::Eos | FinishReason::Length | FinishReason::Cancelled => {}
    }
    Ok(())
}

fn print(bytes: &[u8]) -> Result<()> {
    let mut stdout = std::io::stdout().lock();
    let written = stdout.write_all(bytes).and_then(|()| stdout.flush());
    written.map_err(|error| Error::new(Status::AccessFailed, format!("cannot write to stdout: {error}")))
}
