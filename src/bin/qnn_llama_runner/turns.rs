//! One run of the program: load, then turn after turn, with every file and stream fed as tokens are made.

use crate::output::{self, OutputFile};
use crate::prompts::{self, TurnPrompt};
use crate::settings::{Input, Settings};
use crate::{log_line, report, trace, warn};
use llama_runner::base::log::Level;
use llama_runner::builtin::{self, ProgramOptions};
use llama_runner::error::Context;
use llama_runner::runner::{
    FinishReason, Generation, GenerationConfig, Prompt, Runner, RunnerError, Stats, TokenEvent,
};
use llama_runner::tokenizer::{self, Specials, TokenId};
use llama_runner::{Error, Result, Status};
use std::io::Write;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

/// Runs everything that `settings` ask for.
pub fn run(settings: &Settings) -> Result<()> {
    let prompts = prompts::turns(settings)?;
    let mut files = Files::open(settings)?;
    let mut runner = load(settings)?;
    files.begin()?;
    let config = GenerationConfig {
        seq_len: seq_len(settings.seq_len, runner.context_len()),
        max_decode_steps: settings.max_decode_steps,
        temperature: settings.temperature,
        seed: settings.seed,
        ..GenerationConfig::default()
    };
    let total = prompts.len() * settings.num_iters as usize;
    for turn in 0..total {
        let prompt = &prompts[turn % prompts.len()];
        let made = Turn { number: turn, prompt, config: &config, files: &mut files }.run(&mut runner);
        let generation = if total > 1 { made.with_context(|| format!("turn {} of {total}", turn + 1))? } else { made? };
        report_turn(settings, &config, &runner, &generation)?;
    }
    Ok(())
}

fn load(settings: &Settings) -> Result<Runner> {
    let started = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64);
    let (qnn_lib_dir, runtime) = (settings.qnn_lib_dir.clone(), settings.runtime.clone());
    let options = ProgramOptions { qnn_lib_dir, runtime, ..ProgramOptions::default() };
    let module = builtin::open_program(&settings.model_path, &options)?;
    let tokenizer = tokenizer::load(&settings.tokenizer_path)?;
    let mut options = settings.runner.clone();
    options.load_started_ms = Some(started);
    let path = settings.model_path.display();
    let loaded = Runner::load(module, tokenizer, options);
    let is_text = match &loaded {
        Ok(runner) => runner.eval_mode().is_none(),
        Err(error) => matches!(error.find(), Some(RunnerError::TextMethod { .. })),
    };
    let runner = loaded.with_context(|| match is_text {
        true => format!("{path} is a program for llama_main"),
        false => format!("loading {path}"),
    })?;
    if is_text {
        let why = format!("{path} is a program for llama_main: {}", runner.describe());
        return Err(Error::new(Status::NotSupported, why));
    }
    Ok(runner)
}

/// What `--seq_len` means for a model with a context of `context_len` tokens; says so when it is not what was asked.
fn seq_len(asked: i32, context_len: usize) -> usize {
    match usize::try_from(asked) {
        Ok(length) if (1..=context_len).contains(&length) => length,
        Ok(length) if length > context_len => {
            warn(&format!(
                "--seq_len {asked} exceeds the model's context of {context_len} tokens, which is used instead"
            ));
            context_len
        }
        _ => {
            warn(&format!(
                "--seq_len {asked} is not above 0: the model's context of {context_len} tokens is used instead"
            ));
            context_len
        }
    }
}

/// The files that grow during a turn.
struct Files {
    text: OutputFile,
    trace: Option<OutputFile>,
    logits: Option<OutputFile>,
}

impl Files {
    fn open(settings: &Settings) -> Result<Self> {
        refuse_inputs(settings)?;
        // Written anew behind each turn, but a path that cannot be written is to be known before the first.
        OutputFile::open(&settings.performance_output_path)?;
        let optional = |path: &Option<_>| path.as_deref().map(OutputFile::open).transpose();
        Ok(Self {
            text: OutputFile::open(&settings.output_path)?,
            trace: optional(&settings.trace_path)?,
            logits: optional(&settings.dump_logits_path)?,
        })
    }

    fn begin(&mut self) -> Result<()> {
        self.text.begin()?;
        [&mut self.trace, &mut self.logits].into_iter().flatten().try_for_each(OutputFile::begin)
    }
}

fn refuse_inputs(settings: &Settings) -> Result<()> {
    let tokens = match &settings.input {
        Input::Tokens(path) => Some(path),
        Input::Texts(_) => None,
    };
    let inputs = [Some(&settings.model_path), Some(&settings.tokenizer_path), tokens];
    let outputs = [Some(&settings.output_path), Some(&settings.performance_output_path)];
    let outputs = outputs.into_iter().chain([settings.trace_path.as_ref(), settings.dump_logits_path.as_ref()]);
    let [inputs, outputs] = [inputs.to_vec(), outputs.collect()]
        .map(|paths: Vec<Option<&PathBuf>>| paths.into_iter().flatten().map(PathBuf::as_path));
    output::refuse_inputs(inputs, outputs)
}

/// One turn and where its tokens go.
struct Turn<'a> {
    /// From 0.
    number: usize,
    prompt: &'a TurnPrompt,
    config: &'a GenerationConfig,
    files: &'a mut Files,
}

impl Turn<'_> {
    fn run(&mut self, runner: &mut Runner) -> Result<Generation> {
        let tokens = self.tokens(runner)?;
        if self.files.logits.is_none() {
            return self.generate(runner, self.prompt.as_prompt(), &tokens);
        }
        // The logits of all prompt tokens are wanted, and a turn shows only rows that a token was sampled from. In kv
        // mode the prompt goes through the decode method token by token anyway, so a turn for each prompt token is the
        // same computation with every row in sight.
        let Some((last, head)) = tokens.split_last() else {
            return self.generate(runner, Prompt::Tokens(&[]), &tokens);
        };
        let (have, limit) = (runner.position() + tokens.len(), self.config.seq_len);
        if have >= limit {
            let why = format!("{have} tokens of context and prompt leave no room below the limit of {limit}");
            return Err(Error::new(Status::ContextExceeded, why));
        }
        let mut started = None;
        for &token in head {
            let made = self.feed(runner, token)?;
            started.get_or_insert(made.stats.inference_start_ms);
        }
        let mut generation = self.generate(runner, Prompt::Tokens(&[*last]), &tokens)?;
        generation.stats = Stats {
            inference_start_ms: started.unwrap_or(generation.stats.inference_start_ms),
            num_prompt_tokens: tokens.len() as i64,
            ..generation.stats
        };
        generation.prompt_tokens = tokens;
        Ok(generation)
    }

    /// The prompt's tokens, as the runner would make them.
    fn tokens(&self, runner: &Runner) -> Result<Vec<TokenId>> {
        match self.prompt {
            TurnPrompt::Tokens(tokens) => Ok(tokens.clone()),
            TurnPrompt::Text(text) => {
                let bos = if runner.position() == 0 { self.config.num_bos } else { 0 };
                runner.tokenizer().encode(text, Specials { bos, eos: 0 })
            }
        }
    }

    /// Takes `token` into the context and writes its row of logits.
    fn feed(&mut self, runner: &mut Runner, token: TokenId) -> Result<Generation> {
        let config = GenerationConfig {
            max_new_tokens: Some(1),
            max_decode_steps: None,
            temperature: 0.0,
            ..self.config.clone()
        };
        let logits = &mut self.files.logits;
        let mut written = Ok(());
        let made = runner.generate(Prompt::Tokens(&[token]), &config, &mut |event| {
            written = logits.as_mut().map_or(Ok(()), |file| file.append(event.logits.bytes));
            ControlFlow::Continue(())
        })?;
        written.map(|()| made)
    }

    /// Answers `prompt`, which is the turn's `tokens` or what is left of them.
    fn generate(&mut self, runner: &mut Runner, prompt: Prompt<'_>, tokens: &[TokenId]) -> Result<Generation> {
        let tokenizer = runner.tokenizer().clone();
        let mut fed = Some(tokens);
        let mut written = Ok(());
        let made = runner.generate(prompt, self.config, &mut |event| {
            written = (|| {
                // The first token proves that the prompt was good.
                let fed = fed.take();
                if fed.is_some() {
                    self.files.text.append(&self.prompt.echo(&*tokenizer)?)?;
                }
                self.write(fed, event)
            })();
            if written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        // What the callback failed on comes before what the runner made of the stop.
        written?;
        made
    }

    fn write(&mut self, fed: Option<&[TokenId]>, event: &TokenEvent<'_>) -> Result<()> {
        self.files.text.append(event.piece)?;
        if let Some(trace) = &mut self.files.trace {
            trace.append(trace::line(self.number, fed, event).as_bytes())?;
        }
        self.files.logits.as_mut().map_or(Ok(()), |logits| logits.append(event.logits.bytes))
    }
}

/// Upstream's report of a turn, and a warning when a limit cut the answer.
fn report_turn(settings: &Settings, config: &GenerationConfig, runner: &Runner, made: &Generation) -> Result<()> {
    let (limit, context) = (config.seq_len, runner.context_len());
    // The last token is not in the context.
    let length = runner.position() + 1;
    let newline = match made.finish_reason {
        FinishReason::Eos => "\n",
        FinishReason::SeqLen | FinishReason::ContextFull => {
            let advice = match made.finish_reason == FinishReason::SeqLen && limit < context {
                true => format!("raise --seq_len (up to {context}) for more"),
                false => "the model's context is full".to_owned(),
            };
            warn(&format!("the answer stopped at {length} tokens without an end token: {advice}"));
            "\n"
        }
        FinishReason::Length | FinishReason::Cancelled => "",
    };
    let line = format!("{newline}{}\n", report::observer_line(&made.stats));
    let mut stdout = std::io::stdout().lock();
    stdout
        .write_all(line.as_bytes())
        .and_then(|()| stdout.flush())
        .map_err(|error| Error::new(Status::AccessFailed, format!("cannot write to stdout: {error}")))?;
    for (origin, text) in report::report_lines(&made.stats) {
        log_line::write(Level::Info, &origin, &text);
    }
    output::replace(&settings.performance_output_path, &report::inference_speed(&made.stats))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn o17_odd_lengths_mean_the_models_context() {
        for (asked, want) in
            [(1, 1), (127, 127), (128, 128), (129, 128), (100_000, 128), (0, 128), (-5, 128), (i32::MIN, 128)]
        {
            assert_eq!(seq_len(asked, 128), want, "{asked}");
        }
    }
}
