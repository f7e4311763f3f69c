//! `llr bench`: how fast a program loads, takes prompts and makes tokens, for people and, with `--json`, for scripts.

use crate::compare::side::{Side, Values};
use crate::compare::worker::Clock;
use llama_runner::runner::{GenerationConfig, Prompt, Runner};
use llama_runner::tokenizer::{Specials, TokenId};
use llama_runner::{Error, Result, Status};
use serde_json::{Value, json};
use std::io::Write;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// Arguments of `llr bench`. Each name may be written with `_` or with `-`.
#[derive(Debug, Clone, clap::Args)]
#[command(rename_all = "snake_case")]
pub struct Arguments {
    #[command(flatten)]
    side: Values,
    /// The prompt, said again and again until it is long enough
    #[arg(long, value_name = "TEXT", default_value = "Once upon a time", allow_hyphen_values = true)]
    prompt: String,
    /// Tokens of the prompt
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..))]
    prompt_tokens: u32,
    /// Tokens to make, end tokens or not, as far as the context allows
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(2..))]
    max_new_tokens: u32,
    /// Turns that count, each in an empty context; one before them does not
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: u32,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// What was measured.
struct Measured {
    name: String,
    description: String,
    load: Duration,
    prompt_tokens: usize,
    new_tokens: usize,
    /// As many as were asked for.
    asked: usize,
    /// Tokens that prompt and answer may have together.
    context_len: usize,
    /// Until the first token, and from the first to the last, of each turn.
    turns: Vec<[Duration; 2]>,
}

/// Measures, and prints on stdout.
pub fn run(arguments: &Arguments) -> Result<()> {
    let measured = measure(arguments)?;
    let text = if arguments.json { format!("{:#}\n", measured.json()) } else { measured.text() };
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        // A pager that was left early has seen enough.
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Error::new(Status::AccessFailed, format!("cannot write to stdout: {error}")))
        }
        _ => Ok(()),
    }
}

fn measure(arguments: &Arguments) -> Result<Measured> {
    let side = Side::of_this_process(&arguments.side)?;
    let began = Instant::now();
    let mut runner = side.load("llama2")?;
    let load = began.elapsed();
    let words = runner.tokenizer().encode(&arguments.prompt, Specials { bos: 1, eos: 0 })?;
    let prompt: Vec<TokenId> = words.into_iter().cycle().take(arguments.prompt_tokens as usize).collect();
    let mut turns = Vec::new();
    let mut new_tokens = 0;
    for _ in 0..=arguments.repeat {
        let (made, turn) = turn(&mut runner, &prompt, arguments.max_new_tokens as usize)?;
        new_tokens = made;
        turns.push(turn);
    }
    // The first one warms up.
    turns.remove(0);
    Ok(Measured {
        name: side.name(),
        description: runner.describe(),
        load,
        prompt_tokens: prompt.len(),
        new_tokens,
        asked: arguments.max_new_tokens as usize,
        context_len: runner.context_len(),
        turns,
    })
}

fn turn(runner: &mut Runner, prompt: &[TokenId], most: usize) -> Result<(usize, [Duration; 2])> {
    let config = GenerationConfig { max_new_tokens: Some(most), ignore_eos: true, ..GenerationConfig::default() };
    runner.reset();
    let mut clock = Clock::start();
    let made = runner.generate(Prompt::Tokens(prompt), &config, &mut |_| {
        clock.stop();
        clock.resume();
        ControlFlow::Continue(())
    })?;
    Ok((made.tokens.len(), clock.times()))
}

impl Measured {
    /// Median tokens a second of prompts and of tokens behind the first; `None` where there are none.
    fn rates(&self) -> [Option<f64>; 2] {
        let tokens = [self.prompt_tokens, self.new_tokens.saturating_sub(1)];
        std::array::from_fn(|which| {
            let mut seconds: Vec<f64> = self.turns.iter().map(|turn| turn[which].as_secs_f64()).collect();
            seconds.sort_by(f64::total_cmp);
            let middle = seconds.get(seconds.len() / 2).filter(|&&seconds| seconds > 0.0)?;
            (tokens[which] > 0).then(|| tokens[which] as f64 / middle)
        })
    }

    /// Whether the context ended the turns.
    fn is_cut(&self) -> bool {
        self.new_tokens < self.asked
    }

    fn text(&self) -> String {
        let [prefill, decode] = self.rates().map(|rate| rate.map_or("-".to_owned(), |rate| format!("{rate:.1}")));
        let cut = match self.is_cut() {
            true => format!(" of {} asked for: the context of {} is full", self.asked, self.context_len),
            false => String::new(),
        };
        format!(
            "{}: {}\nload     {:.1} ms\nprefill  {prefill} tokens/s ({} tokens)\n\
             decode   {decode} tokens/s ({} tokens{cut})\nmedians of {} turns\n",
            self.name,
            self.description,
            self.load.as_secs_f64() * 1e3,
            self.prompt_tokens,
            self.new_tokens,
            self.turns.len()
        )
    }

    fn json(&self) -> Value {
        let [prefill, decode] = self.rates();
        let turns = self.turns.iter().map(
            |[first, rest]| json!({ "prefill_seconds": first.as_secs_f64(), "decode_seconds": rest.as_secs_f64() }),
        );
        json!({
            "name": self.name,
            "description": self.description,
            "load_seconds": self.load.as_secs_f64(),
            "prompt_tokens": self.prompt_tokens,
            "new_tokens": self.new_tokens,
            "max_new_tokens": self.asked,
            "context_len": self.context_len,
            "cut_by_context": self.is_cut(),
            "prefill_tokens_per_second": prefill,
            "decode_tokens_per_second": decode,
            "turns": turns.collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_those_of_the_middle_turn() {
        let turn = |first, rest| [Duration::from_millis(first), Duration::from_millis(rest)];
        let mut measured = Measured {
            name: "x.pte".into(),
            description: "kv mode".into(),
            load: Duration::from_micros(1500),
            prompt_tokens: 10,
            new_tokens: 5,
            asked: 5,
            context_len: 128,
            turns: vec![turn(500, 10), turn(100, 40), turn(200, 20)],
        };
        assert_eq!(measured.rates(), [Some(50.0), Some(200.0)]);
        let want = "x.pte: kv mode\nload     1.5 ms\nprefill  50.0 tokens/s (10 tokens)\n\
                    decode   200.0 tokens/s (5 tokens)\nmedians of 3 turns\n";
        assert_eq!(measured.text(), want);
        assert_eq!(measured.json()["turns"][1]["decode_seconds"], 0.04);
        assert_eq!(measured.json()["cut_by_context"], false);
        measured.asked = 200;
        assert!(measured.text().contains("(5 tokens of 200 asked for: the context of 128 is full)\n"));
        assert_eq!(
            (&measured.json()["cut_by_context"], &measured.json()["max_new_tokens"]),
            (&json!(true), &json!(200))
        );
        measured.new_tokens = 1;
        assert_eq!(measured.json()["decode_tokens_per_second"], Value::Null);
    }
}
