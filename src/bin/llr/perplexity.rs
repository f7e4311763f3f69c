//! `llr perplexity`: how well a program foretells a text, which is what quantization costs it, in one number. Any program
//! that decodes can be asked, whatever it runs on, so exports of one model can be set side by side.

use crate::bar;
use crate::compare::side::{Side, Values};
use indicatif::ProgressBar;
use llama_runner::runner::Runner;
use llama_runner::tokenizer::{Specials, TokenId};
use llama_runner::{Error, Result, Status};
use serde_json::json;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Arguments of `llr perplexity`. Each name may be written with `_` or with `-`.
#[derive(Debug, Clone, clap::Args)]
#[command(rename_all = "snake_case")]
pub struct Arguments {
    #[command(flatten)]
    side: Values,
    /// The text, in UTF-8
    #[arg(long, value_name = "FILE")]
    text: PathBuf,
    /// Begin-of-sequence tokens in front of the text
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=8))]
    num_bos: u8,
    /// Tokens that are fed together: each is foretold from those before it in its stretch [default: the whole context]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..))]
    stretch: Option<u32>,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// Sum of `-ln p` of tokens, each given those before it in its stretch.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
struct Surprise {
    nats: f64,
    tokens: usize,
}

impl Surprise {
    /// Of `token` by the logits that foretell it, `[vocab]`.
    fn add(&mut self, logits: &[f32], token: TokenId) -> Result<()> {
        let missing = || {
            let why = format!("token {token} of the text is outside the model's {} logits", logits.len());
            Error::new(Status::InvalidArgument, why)
        };
        let own = logits.get(token as usize).ok_or_else(missing)?;
        let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f64 = logits.iter().map(|&logit| f64::from(logit - largest).exp()).sum();
        let nats = sum.ln() - f64::from(own - largest);
        if !nats.is_finite() {
            let why = format!("the logits that foretell token {} of the text are not finite", self.tokens + 1);
            return Err(Error::new(Status::InvalidState, why));
        }
        self.nats += nats;
        self.tokens += 1;
        Ok(())
    }

    /// e to the mean.
    fn perplexity(self) -> f64 {
        (self.nats / self.tokens as f64).exp()
    }
}

/// Measures, and prints on stdout.
pub fn run(arguments: &Arguments) -> Result<()> {
    let side = Side::of_this_process(&arguments.side)?;
    let text = read(&arguments.text)?;
    let mut runner = side.load("llama2")?;
    let tokens = runner.tokenizer().encode(&text, Specials { bos: arguments.num_bos.into(), eos: 0 })?;
    let stretch = arguments.stretch.map_or(runner.context_len(), |tokens| tokens as usize);
    if stretch > runner.context_len() {
        let why = format!("--stretch {stretch} is more than the program's context of {}", runner.context_len());
        return Err(Error::new(Status::InvalidArgument, why));
    }
    if tokens.len() < 2 {
        let why = format!("{}: {} tokens: there is nothing to foretell", arguments.text.display(), tokens.len());
        return Err(Error::new(Status::InvalidArgument, why));
    }
    let stretches = || tokens.chunks(stretch).filter(|tokens| tokens.len() > 1);
    let mut surprise = Surprise::default();
    let bar = bar::of("tokens", tokens.len());
    for tokens in stretches() {
        feed(&mut runner, tokens, &mut surprise, &bar)?;
    }
    bar.finish_and_clear();
    let (perplexity, foretold, count) = (surprise.perplexity(), surprise.tokens, stretches().count());
    let shown = match arguments.json {
        true => {
            let (name, description) = (side.name(), runner.describe());
            let object = json!({
                "name": name, "description": description, "perplexity": perplexity, "tokens": foretold,
                "stretches": count, "stretch": stretch,
            });
            format!("{object:#}\n")
        }
        false => {
            let stretches = if count == 1 { "one stretch".to_owned() } else { format!("{count} stretches") };
            format!("{}: perplexity {perplexity:.3} over {foretold} tokens in {stretches}\n", side.name())
        }
    };
    match std::io::stdout().lock().write_all(shown.as_bytes()) {
        // A pager that was left early has seen enough.
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Error::new(Status::AccessFailed, format!("cannot write to stdout: {error}")))
        }
        _ => Ok(()),
    }
}

fn read(path: &Path) -> Result<String> {
    let bytes = std::fs::read(path)
        .map_err(|error| Error::new(Status::AccessFailed, format!("cannot read {}: {error}", path.display())))?;
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Error::new(Status::InvalidArgument, format!("{}: it is not UTF-8 at byte {at}", path.display()))
    })
}

fn feed(runner: &mut Runner, tokens: &[TokenId], surprise: &mut Surprise, bar: &ProgressBar) -> Result<()> {
    runner.reset();
    let mut logits = Vec::new();
    for (index, pair) in tokens.windows(2).enumerate() {
        match index {
            0 => runner.prefill_tokens(&pair[..1])?,
            _ => runner.step(pair[0])?,
        }
        runner.logits(&mut logits)?;
        surprise.add(&logits, pair[1])?;
        bar.inc(1);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn even_logits_are_as_perplexed_as_there_are_tokens() {
        let mut surprise = Surprise::default();
        for token in 0..5 {
            surprise.add(&[3.0; 5], token).unwrap();
        }
        assert!((surprise.perplexity() - 5.0).abs() < 1e-9);
        // e^0 / (e^0 + e^-ln 3) is three quarters.
        let mut sure = Surprise::default();
        sure.add(&[0.0, -(3f32.ln())], 0).unwrap();
        assert!((sure.perplexity() - 4.0 / 3.0).abs() < 1e-6);
        let error = sure.add(&[0.0, 1.0], 2).unwrap_err();
        assert_eq!(error.to_string(), "token 2 of the text is outside the model's 2 logits");
        for logit in [f32::NAN, f32::INFINITY] {
            let error = sure.add(&[logit, 0.0], 1).unwrap_err();
            assert_eq!(error.to_string(), "the logits that foretell token 2 of the text are not finite");
        }
        assert_eq!(sure.tokens, 1);
    }
}
