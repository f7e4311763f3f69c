//! What a comparison found, before it is written as text or JSON.

use super::comparison::{Found, Rules};
use super::wire::End;
use llama_runner::tokenizer::TokenId;

/// One side.
#[derive(Debug, Clone, PartialEq)]
pub struct SideReport {
    /// The program or the recorded run.
    pub name: String,
    /// Its mode or methods; nothing of a recorded run.
    pub description: String,
    /// Milliseconds to load.
    pub load_ms: Option<u64>,
    /// The tokenizer's format and size.
    pub tokenizer: Option<(String, usize)>,
}

/// What a side answered.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Answer {
    /// Its tokens; of a side that was fed the other's, what it would have chosen.
    pub tokens: Vec<TokenId>,
    /// Their text, where a tokenizer is at hand.
    pub text: String,
    /// How it ended; unknown of a recorded run.
    pub end: Option<End>,
}

/// A turn.
#[derive(Debug, Clone, PartialEq)]
pub struct TurnReport {
    /// What was asked, for people.
    pub prompt: String,
    /// Tokens of the context before the answer, where known.
    pub context: Option<usize>,
    /// Tokens of the prompt, where known.
    pub prompt_tokens: Option<usize>,
    /// Side A.
    pub a: Answer,
    /// Side B.
    pub b: Answer,
    /// The comparison.
    pub found: Found,
}

/// A conversation.
#[derive(Debug, Clone, PartialEq)]
pub struct PromptReport {
    /// From 1.
    pub number: usize,
    /// Its name in the set.
    pub name: Option<String>,
    /// The turns that were compared.
    pub turns: Vec<TurnReport>,
    /// Turns behind a divergence, whose contexts differ.
    pub left_out: usize,
}

/// Everything.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// A and B.
    pub sides: [SideReport; 2],
    /// What counted as the same.
    pub rules: Rules,
    /// In their order.
    pub prompts: Vec<PromptReport>,
}

/// Tokens and seconds of a side.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Speed {
    /// Prompt tokens.
    pub prefill_tokens: usize,
    /// Until the first token.
    pub prefill_seconds: f64,
    /// Tokens behind the first.
    pub decode_tokens: usize,
    /// Between the first and the last.
    pub decode_seconds: f64,
}

/// Sums over prompts.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Totals {
    /// Conversations without any difference.
    pub equal: usize,
    /// Those with close calls alone.
    pub close: usize,
    /// The others.
    pub diverged: usize,
    /// Tokens before a turn's first divergence or close call.
    pub until: usize,
    /// Steps at which both sides chose.
    pub compared: usize,
    /// Steps at which both chose the same.
    pub same: usize,
    /// Steps whose bits are known to be the same or not.
    pub hashed: usize,
    /// Of these, those that are.
    pub same_bits: usize,
}

impl Speed {
    fn add(&mut self, turn: &TurnReport, answer: &Answer) {
        if let (Some(end), Some(prompt)) = (&answer.end, turn.prompt_tokens) {
            self.prefill_tokens += prompt;
            self.prefill_seconds += end.prefill_seconds;
            self.decode_tokens += answer.tokens.len().saturating_sub(1);
            self.decode_seconds += end.decode_seconds;
        }
    }

    /// Prompt tokens and decoded tokens a second; `None` where there were none or the clock did not move.
    pub fn rates(&self) -> [Option<f64>; 2] {
        let rate = |tokens: usize, seconds: f64| (tokens > 0 && seconds > 0.0).then(|| tokens as f64 / seconds);
        [rate(self.prefill_tokens, self.prefill_seconds), rate(self.decode_tokens, self.decode_seconds)]
    }
}

impl TurnReport {
    /// Speeds of A and B.
    pub fn speeds(&self) -> [Speed; 2] {
        [&self.a, &self.b].map(|answer| {
            let mut speed = Speed::default();
            speed.add(self, answer);
            speed
        })
    }
}

impl PromptReport {
    /// Whether something differs that is no close call.
    pub fn diverged(&self) -> bool {
        self.turns.iter().any(|turn| turn.found.diverged())
    }
}

impl Report {
    /// The sums.
    pub fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for prompt in &self.prompts {
            let differs = prompt.turns.iter().any(|turn| turn.found.differing > 0);
            match (prompt.diverged(), differs) {
                (true, _) => totals.diverged += 1,
                (false, true) => totals.close += 1,
                (false, false) => totals.equal += 1,
            }
            for Found { compared, differing, first, hashed, same_bits, .. } in
                prompt.turns.iter().map(|turn| &turn.found)
            {
                // The end of one side alone is no step of both.
                let ended = first.as_ref().is_some_and(|first| first.step == *compared);
                totals.same += compared - (differing - usize::from(ended)).min(*compared);
                totals.compared += compared;
                totals.until += first.as_ref().map_or(*compared, |first| first.step);
                totals.hashed += hashed;
                totals.same_bits += same_bits;
            }
        }
        totals
    }

    /// Speeds of A and B over all prompts.
    pub fn speeds(&self) -> [Speed; 2] {
        let mut speeds = [Speed::default(); 2];
        for turn in self.prompts.iter().flat_map(|prompt| &prompt.turns) {
            speeds[0].add(turn, &turn.a);
            speeds[1].add(turn, &turn.b);
        }
        speeds
    }
}
