//! The child process of a side: it loads one runner, takes turns from standard input, and answers on standard output.
//! Each side has a process of its own, for two versions of a vendor's library do not go well into one.

use super::side::{Side, Values};
use super::wire::{End, Hello, Reply, Request};
use llama_runner::runner::{FinishReason, GenerationConfig, Prompt, Runner};
use llama_runner::{Error, Result, Status};
use std::io::{BufRead, BufWriter, Write};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// Arguments of the hidden command.
#[derive(Debug, clap::Args)]
#[command(rename_all = "snake_case")]
pub struct Arguments {
    #[command(flatten)]
    side: Values,
    /// Upstream's `--decoder_model_version`.
    #[arg(long)]
    decoder_model_version: String,
}

/// Serves until standard input ends. What fails goes to the parent, which says it.
pub fn run(arguments: &Arguments) -> Result<()> {
    let mut out = BufWriter::new(std::io::stdout().lock());
    match serve(arguments, &mut out) {
        Ok(()) => Ok(()),
        Err(error) => send(&mut out, &Reply::Failed(error.chain())),
    }
}

fn serve(arguments: &Arguments, out: &mut impl Write) -> Result<()> {
    let began = Instant::now();
    let mut runner = Side::new(&arguments.side)?.load(&arguments.decoder_model_version)?;
    let format = runner.logits_format();
    let hello = Hello {
        description: runner.describe(),
        vocab: runner.vocab_size(),
        dtype: format.dtype.name().to_owned(),
        encoding: format.encoding,
        load_ms: began.elapsed().as_millis() as u64,
    };
    send(out, &Reply::Hello(hello))?;
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(|error| Error::new(Status::AccessFailed, format!("reading a request: {error}")))?;
        let end = turn(&mut runner, &Request::parse(&line)?, out)?;
        send(out, &Reply::End(end))?;
    }
    Ok(())
}

fn turn(runner: &mut Runner, request: &Request, out: &mut impl Write) -> Result<End> {
    let format = runner.logits_format();
    let config = GenerationConfig {
        seq_len: request.seq_len.min(runner.context_len()),
        max_new_tokens: request.max_new_tokens,
        ignore_eos: request.ignore_eos,
        forced: request.forced.clone(),
        ..GenerationConfig::default()
    };
    if request.reset {
        runner.reset();
    }
    let mut written = Ok(());
    let mut clock = Clock::start();
    let made = runner.generate(Prompt::Tokens(&request.prompt), &config, &mut |event| {
        clock.stop();
        let mut row = Vec::new();
        format.reals(event.logits.bytes, &mut row);
        written = send(out, &Reply::Step { token: event.token, hash: event.logits.fnv1a64(), row });
        clock.resume();
        if written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    written?;
    let reason = match made?.finish_reason {
        FinishReason::Eos => "eos",
        FinishReason::SeqLen => "seq_len",
        FinishReason::ContextFull => "context_full",
        FinishReason::Length => "length",
        FinishReason::Cancelled => "cancelled",
    };
    let [first, rest] = clock.times();
    Ok(End { reason: reason.to_owned(), prefill_seconds: first.as_secs_f64(), decode_seconds: rest.as_secs_f64() })
}

fn send(out: &mut impl Write, reply: &Reply) -> Result<()> {
    reply.write(out).map_err(|error| Error::new(Status::AccessFailed, format!("answering the comparison: {error}")))
}

/// Time between events: what is done with them is not the model's time.
pub struct Clock {
    since: Instant,
    first: Option<Duration>,
    rest: Duration,
}

impl Clock {
    /// A turn begins.
    pub fn start() -> Self {
        Self { since: Instant::now(), first: None, rest: Duration::ZERO }
    }

    /// A token is there.
    pub fn stop(&mut self) {
        let passed = self.since.elapsed();
        match self.first {
            None => self.first = Some(passed),
            Some(_) => self.rest += passed,
        }
    }

    /// The turn goes on.
    pub fn resume(&mut self) {
        self.since = Instant::now();
    }

    /// Until the first token, and from the first to the last.
    pub fn times(&self) -> [Duration; 2] {
        [self.first.unwrap_or_default(), self.rest]
    }
}
