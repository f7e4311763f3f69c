//! The command line of `llr compare`, and how it hangs together.

use super::comparison::Rules;
use super::prompts::{Conversation, Template, TurnPrompt, read};
use super::side::Sides;
use crate::value;
use llama_runner::runner::Family;
use llama_runner::{Error, Result, Status};
use std::path::{Path, PathBuf};

/// What is printed of the tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Shown {
    /// Every token, side by side.
    All,
    /// Those around the first divergence.
    Near,
    /// None.
    None,
}

/// Arguments of `llr compare`. Each name may be written with `_` or with `-`.
#[derive(Debug, Clone, clap::Args)]
#[command(rename_all = "snake_case", after_help = AFTER)]
pub struct Arguments {
    /// Side A is this recorded run, not a program: a --trace_path file, a recorded run of the upstream runner, or ids and
    /// logits of ExecuTorch's runtime. Several are so many prompts
    #[arg(long, value_name = "FILE", num_args = 1.., help_heading = "Recorded sides")]
    recorded: Vec<PathBuf>,
    /// Likewise side B
    #[arg(long, value_name = "FILE", num_args = 1.., help_heading = "Recorded sides")]
    recorded_b: Vec<PathBuf>,

    #[command(flatten)]
    pub sides: Sides,

    /// What to answer; may be given several times [default: "Once upon a time", where no recorded run brings prompts]
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true, help_heading = "Prompts")]
    prompt: Vec<String>,
    /// A text file that is one more prompt
    #[arg(long, value_name = "FILE", help_heading = "Prompts")]
    prompt_file: Vec<PathBuf>,
    /// JSON lines, a prompt each: {"prompt": "…"}, {"turns": ["…", "…"]} or {"tokens": [1, …]}, and a "name" if wanted
    #[arg(long, value_name = "FILE", help_heading = "Prompts")]
    prompt_set: Vec<PathBuf>,
    /// The prompts of --prompt and --prompt_file are turns of one conversation, as in qnn_llama_runner
    #[arg(long, help_heading = "Prompts")]
    conversation: bool,
    /// The family whose chat template and end tokens are used
    #[arg(long, value_name = "NAME", default_value = "llama2", help_heading = "Prompts")]
    pub decoder_model_version: String,
    /// What kind of assistant the model should be, where the template has a place for it
    #[arg(long, value_name = "TEXT", default_value = "", allow_hyphen_values = true, help_heading = "Prompts")]
    system_prompt: String,
    /// Beginning-of-sequence tokens in front of a conversation [default: as many as were recorded, else 1]
    #[arg(long, value_name = "N", value_parser = value::count, help_heading = "Prompts")]
    pub num_bos: Option<usize>,

    /// Most tokens to make in a turn; against a recorded run, as many as it has
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..), help_heading = "Lengths")]
    pub max_new_tokens: u32,
    /// Length of context at which a turn ends; 0: the model's
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = value::count, help_heading = "Lengths")]
    pub seq_len: usize,
    /// Go on after end tokens
    #[arg(long, help_heading = "Lengths")]
    pub ignore_eos: bool,

    /// Different choices are a close call, and no divergence, when on each side the other's choice is behind its own by no
    /// more than this part of the row's range (largest logit less smallest): 1% or 0.01
    #[arg(long, value_name = "PART", value_parser = part, help_heading = "Judgement")]
    max_gap: Option<f32>,
    /// Feed side B with side A's tokens, and compare what it would have chosen at every step
    #[arg(long, help_heading = "Judgement")]
    teacher_forced: bool,

    /// Which tokens are printed
    #[arg(long, value_enum, value_name = "WHICH", default_value = "all", help_heading = "Output")]
    pub tokens: Shown,
    /// Write everything that was found as JSON
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub json: Option<PathBuf>,
}

const AFTER: &str = "\
Side A is what the plain options say, side B the same but for the options that end in _b. Each side is a process of its
own. Choices are greedy.

Exit code: 0 the sides are equal (close calls within --max_gap included), 1 they diverge, 2 they could not be compared.";

impl Arguments {
    /// What counts as the same.
    pub fn rules(&self) -> Rules {
        Rules { max_gap: self.max_gap, forced: self.teacher_forced }
    }

    /// The files of recorded sides: A, B.
    pub fn recorded(&self) -> [&[PathBuf]; 2] {
        [&self.recorded, &self.recorded_b]
    }

    /// The files that are read, as far as they are named.
    pub fn inputs(&self) -> impl Iterator<Item = &Path> {
        let recorded = self.recorded.iter().chain(&self.recorded_b);
        let prompts = self.prompt_file.iter().chain(&self.prompt_set);
        let sides = [&self.sides.a, &self.sides.b].into_iter().flat_map(|side| side.files());
        recorded.chain(prompts).map(PathBuf::as_path).chain(sides)
    }

    /// What does not hang together.
    pub fn check(&self) -> Result<()> {
        if self.teacher_forced && !self.recorded_b.is_empty() {
            return Err(invalid("--teacher_forced feeds side B, which --recorded_b says is a file"));
        }
        if self.recorded.is_empty() && self.recorded_b.is_empty() && !self.sides.differ {
            return Err(invalid(
                "both sides are the same: give side B an option of its own (--model_path_b, --eval_mode_b, \
                 --execution_b, …) or name a recorded run (--recorded)",
            ));
        }
        Ok(())
    }

    /// Whether the command line names prompts.
    pub fn has_prompts(&self) -> bool {
        !(self.prompt.is_empty() && self.prompt_file.is_empty() && self.prompt_set.is_empty())
    }

    /// The prompts of the command line, or the default one. `one_conversation`: they are turns of one in any case.
    pub fn conversations(&self, one_conversation: bool) -> Result<Vec<Conversation>> {
        let template =
            Template { family: Family::from_name(&self.decoder_model_version)?, system: &self.system_prompt };
        let files = self.prompt_file.iter().map(|path| read(path)).collect::<Result<Vec<_>>>()?;
        let texts = self.prompt.iter().chain(&files).map(|text| template.turn(text));
        let mut all: Vec<Conversation> = match self.conversation || one_conversation {
            true => vec![Conversation { name: None, turns: texts.collect() }],
            false => texts.map(|turn| Conversation { name: None, turns: vec![turn] }).collect(),
        };
        all.retain(|conversation| !conversation.turns.is_empty());
        for path in &self.prompt_set {
            all.extend(template.set(path)?);
        }
        if all.is_empty() {
            all.push(Conversation { name: None, turns: vec![template.turn("Once upon a time")] });
        }
        let empty = |turn: &TurnPrompt| matches!(turn, TurnPrompt::Text(text) if text.is_empty());
        if all.iter().flat_map(|conversation| &conversation.turns).any(empty) {
            return Err(invalid("a prompt is empty"));
        }
        Ok(all)
    }
}

/// `1%` or `0.01`.
fn part(text: &str) -> Result<f32, String> {
    let part = match text.strip_suffix('%') {
        Some(percent) => percent.trim().parse::<f32>().map(|percent| percent / 100.0),
        None => text.parse(),
    };
    part.ok().filter(|part| (0.0..=1.0).contains(part)).ok_or_else(|| "it is neither 0% to 100% nor 0 to 1".to_owned())
}

/// The error for a command line that makes no sense.
pub fn invalid(why: impl Into<String>) -> Error {
    Error::new(Status::InvalidArgument, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_written_in_two_ways() {
        assert_eq!(
            ["1%", "0.01", " 2.5 %", "0", "100%"].map(|text| part(text.trim_start()).ok()),
            [Some(0.01), Some(0.01), Some(0.025), Some(0.0), Some(1.0)]
        );
        for text in ["-1%", "101%", "x", "%", "nan", "1.5"] {
            assert!(part(text).is_err(), "{text}");
        }
    }
}
