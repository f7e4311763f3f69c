//! One turn from its side: samples tokens, tells the caller of each, and knows when to stop.

use super::config::GenerationConfig;
use super::event::{FinishReason, LogitsRow, TokenEvent};
use super::sampler::Sampler;
use crate::error::{Context, Result};
use crate::tokenizer::{TokenId, Tokenizer};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What a caller does with a token; it may stop the turn.
pub(crate) type OnToken<'a> = dyn FnMut(&TokenEvent<'_>) -> ControlFlow<()> + 'a;

/// Where logits come from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Source {
    /// Position of the input token.
    pub position: usize,
    /// Row of the step.
    pub row: usize,
}

/// A turn in progress.
pub(crate) struct Turn<'a> {
    pub config: &'a GenerationConfig,
    pub prompt: &'a [TokenId],
    /// Length of the context at which the turn ends; the model's context length at most.
    pub seq_len: usize,
    pub context_len: usize,
    pub tokenizer: &'a dyn Tokenizer,
    pub eos_ids: &'a [TokenId],
    pub sampler: &'a mut Sampler,
    pub cancelled: &'a AtomicBool,
    pub on_token: &'a mut OnToken<'a>,
    /// What came out so far.
    pub tokens: Vec<TokenId>,
    pub sampling: Duration,
}

impl Turn<'_> {
    /// Whether somebody asked to stop.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    /// The latest token. Panics before the first.
    pub fn last(&self) -> TokenId {
        *self.tokens.last().expect("the prompt has made a token")
    }

    /// Chooses the next token and reports it; says whether the turn ends with it.
    pub fn take(&mut self, logits: LogitsRow<'_>, source: Source) -> Result<Option<FinishReason>> {
        let began = Instant::now();
        let forced = self.config.forced.get(self.tokens.len()).copied();
        let token = match forced {
            Some(token) => token,
            None => self
                .sampler
                .sample(logits.bytes)
                .with_context(|| format!("choosing the token behind position {}", source.position))?,
        };
        self.sampling += began.elapsed();

        // The token made from the prompt is decoded as if it followed itself, as upstream does.
        let known = |token: TokenId| token < self.tokenizer.vocab_size() as u64;
        let previous = self.tokens.last().copied().filter(|&previous| known(previous)).unwrap_or(token);
        let piece = match known(token) {
            true => self.tokenizer.decode(Some(previous), token),
            // Rows of logits are often padded beyond the tokenizer's last token; such a token has no text.
            false => Ok(Vec::new()),
        };
        let piece = piece.with_context(|| format!("decoding token {token} at position {}", source.position + 1))?;
        self.tokens.push(token);
        let Source { position, row } = source;
        let flow = (self.on_token)(&TokenEvent { token, piece: &piece, position, row, logits });

        Ok(if !self.config.ignore_eos && self.eos_ids.contains(&token) {
            Some(FinishReason::Eos)
        } else if flow.is_break() || self.is_cancelled() {
            Some(FinishReason::Cancelled)
        } else if self.config.max_new_tokens.is_some_and(|max| self.tokens.len() >= max) {
            Some(FinishReason::Length)
        } else {
            None
        })
    }

    /// Why no decode step may follow at `position`, if so.
    pub fn end_at(&self, position: usize) -> Option<FinishReason> {
        if position + 1 >= self.seq_len {
            let full = self.seq_len == self.context_len;
            Some(if full { FinishReason::ContextFull } else { FinishReason::SeqLen })
        } else if self.config.max_decode_steps.is_some_and(|max| self.tokens.len() > max) {
            Some(FinishReason::Length)
        } else {
            None
        }
    }
}
