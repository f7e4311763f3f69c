//! Lookahead decoding (Fu et al. 2024): a decode step of many rows guesses n-grams in some and verifies earlier guesses
//! in others, so that one step may yield several tokens. It is lossless: only tokens that the model itself would choose
//! are taken.
//!
//! With n = ngram, w = window, g = gcap a step has
//!
//! * n - 1 levels of w guesses. Row (0, 0) is the current token; row (0, j) continues (0, j - 1), and (i, j) continues
//!   (i - 1, j): column j guesses what may follow j tokens from here.
//! * g candidates of n - 1 tokens, each a chain that continues row (0, 0).

use super::attention_mask::AttentionMap;
use super::config::LookaheadConfig;
use super::error::RunnerError;
use super::event::FinishReason;
use super::model::Model;
use super::sampler::Rng;
use super::stage::Stage;
use super::turn::{Source, Turn};
use crate::error::Result;
use crate::runtime::IoArena;
use crate::tokenizer::TokenId;
use std::collections::{HashMap, VecDeque};

/// The guesses, kept from turn to turn until the context is reset.
#[derive(Debug)]
pub(crate) struct Lookahead {
    config: LookaheadConfig,
    map: AttentionMap,
    /// `[ngram - 1][window]`; empty before the first turn.
    levels: VecDeque<Vec<TokenId>>,
    /// For a token, the n - 1 tokens seen to follow it; at most gcap of them, oldest first.
    pool: HashMap<TokenId, VecDeque<Vec<TokenId>>>,
}

impl Lookahead {
    /// Checks that a step of `ar` tokens has room for what `config` asks.
    pub fn new(config: LookaheadConfig, ar: usize) -> Result<Self, RunnerError> {
        let LookaheadConfig { ngram, window, gcap } = config;
        if ngram < 2 || window < 1 || gcap < 1 {
            return Err(RunnerError::LookaheadSizes { ngram, window, gcap });
        }
        let rows = window.saturating_add(gcap).saturating_mul(ngram - 1);
        if rows > ar {
            return Err(RunnerError::LookaheadRows { rows, ar });
        }
        let first_level = (0..window).map(|column: usize| column.checked_sub(1));
        let other_levels = (window..window * (ngram - 1)).map(|row| Some(row - window));
        let candidates = (window * (ngram - 1)..rows).map(|row| {
            let starts = (row - window * (ngram - 1)).is_multiple_of(ngram - 1);
            Some(if starts { 0 } else { row - 1 })
        });
        let unused = (rows..ar).map(|_| None);
        let map = AttentionMap::tree(first_level.chain(other_levels).chain(candidates).chain(unused).collect());
        Ok(Self { config, map, levels: VecDeque::new(), pool: HashMap::new() })
    }

    /// Forgets all guesses.
    pub fn reset(&mut self) {
        self.levels.clear();
        self.pool.clear();
    }

    /// Decodes until the turn ends, with the tokens that one-by-one decoding gives.
    pub fn generate(&mut self, model: &mut Model, turn: &mut Turn<'_>) -> Result<FinishReason> {
        let Model { decoder, kv, decode: Some(stage), .. } = model else { return Ok(FinishReason::ContextFull) };
        stage.begin_tree(&mut decoder.arena, kv, self.map.clone());
        if self.levels.is_empty() {
            // A turn without a prompt has its first token.
            self.guess_from(if turn.prompt.is_empty() { &turn.tokens } else { turn.prompt });
        }
        loop {
            let position = kv.len();
            if let Some(reason) = turn.end_at(position) {
                return Ok(reason);
            }
            let current = turn.last();
            let candidates: Vec<_> = self.pool.get(&current).into_iter().flatten().cloned().collect();
            self.levels[0][0] = current;
            let fed: Vec<TokenId> = self.levels.iter().chain(&candidates).flatten().copied().collect();
            stage.feed(&mut decoder.arena, &fed, position);
            stage.step(decoder, kv)?;

            let (taken, end) = self.verify(turn, stage, &decoder.arena, &candidates, position)?;
            stage.append_selected(&mut decoder.arena, kv, &taken);
            match end {
                Some(reason) => return Ok(reason),
                None if kv.len() < position + taken.len() => return Ok(FinishReason::ContextFull),
                None => self.learn(turn, stage, &decoder.arena),
            }
        }
    }

    /// Takes the token after the current one, and as long as a candidate has foretold it, the next. Gives the rows whose
    /// tokens are now known to be right, and why the turn ends, if it does.
    fn verify(
        &self,
        turn: &mut Turn<'_>,
        stage: &Stage,
        arena: &IoArena,
        candidates: &[Vec<TokenId>],
        position: usize,
    ) -> Result<(Vec<usize>, Option<FinishReason>)> {
        let LookaheadConfig { ngram, window, .. } = self.config;
        let mut alive: Vec<usize> = (0..candidates.len()).collect();
        let mut taken = vec![0];
        loop {
            let depth = taken.len() - 1;
            let (row, position) = (taken[depth], position + depth);
            let end = turn.take(stage.logits(arena, row), Source { position, row })?;
            let end = end.or_else(|| turn.end_at(position + 1));
            alive.retain(|&candidate| candidates[candidate].get(depth) == Some(&turn.last()));
            match alive.first() {
                Some(&candidate) if end.is_none() => {
                    taken.push((window + candidate) * (ngram - 1) + depth);
                }
                _ => return Ok((taken, end)),
            }
        }
    }

    /// Keeps the n-grams that the columns have become, and moves the levels up by one.
    fn learn(&mut self, turn: &Turn<'_>, stage: &Stage, arena: &IoArena) {
        let LookaheadConfig { ngram, window, gcap } = self.config;
        let last_level = window * (ngram - 2);
        let guesses = (last_level..last_level + window).map(|row| turn.sampler.greedy(stage.logits(arena, row).bytes));
        let guesses: Vec<TokenId> = guesses.collect();
        let firsts = self.levels.pop_front().expect("a level for each token of an n-gram but one");
        self.levels.push_back(guesses);
        for (column, first) in firsts.into_iter().enumerate() {
            let followers: Vec<TokenId> = self.levels.iter().map(|level| level[column]).collect();
            let known = self.pool.entry(first).or_default();
            if !known.contains(&followers) {
                if known.len() == gcap {
                    known.pop_front();
                }
                known.push_back(followers);
            }
        }
    }

    /// First guesses: tokens of the prompt in any order.
    fn guess_from(&mut self, prompt: &[TokenId]) {
        let mut rng = Rng::new(prompt.len() as u64);
        let mut guess = || prompt[(rng.next() % prompt.len() as u64) as usize];
        let levels = (1..self.config.ngram).map(|_| (0..self.config.window).map(|_| guess()).collect());
        self.levels = levels.collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_hang_together_as_described() {
        let lookahead = Lookahead::new(LookaheadConfig { ngram: 4, window: 2, gcap: 2 }, 14).unwrap();
        let parents = [
            [None, Some(0)],
            [Some(0), Some(1)],
            [Some(2), Some(3)],
            [Some(0), Some(6)],
            [Some(7), Some(0)],
            [Some(9), Some(10)],
            [None, None],
        ];
        assert_eq!(lookahead.map, AttentionMap::tree(parents.concat()));
        let depths: Vec<_> = (0..12).map(|row| lookahead.map.depth(row)).collect();
        assert_eq!(depths, [0, 1, 1, 2, 2, 3, 1, 2, 3, 1, 2, 3]);
    }

    #[test]
    fn impossible_sizes_are_refused() {
        let new = |ngram, window, gcap| Lookahead::new(LookaheadConfig { ngram, window, gcap }, 64).err();
        assert_eq!(new(5, 8, 8), None);
        assert_eq!(new(6, 8, 8), Some(RunnerError::LookaheadRows { rows: 80, ar: 64 }));
        assert!(matches!(new(usize::MAX, 8, 8), Some(RunnerError::LookaheadRows { .. })));
        for (ngram, window, gcap) in [(1, 8, 8), (0, 1, 1), (5, 0, 8), (5, 8, 0)] {
            assert_eq!(new(ngram, window, gcap), Some(RunnerError::LookaheadSizes { ngram, window, gcap }));
        }
    }
}
