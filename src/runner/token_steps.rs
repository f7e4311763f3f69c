//! The runner token by token: for callers that decode by a rule of their own. A turn made of these calls has the tokens
//! of [`Runner::generate`].

use super::config::GenerationConfig;
use super::error::RunnerError;
use super::session::Runner;
use super::stage::LastRow;
use crate::error::Result;
use crate::tokenizer::TokenId;
use std::sync::atomic::Ordering;

/// What calls token by token leave behind for the next one.
#[derive(Debug, Default)]
pub(crate) struct ByHand {
    /// Where the logits of the last token are.
    last: Option<LastRow>,
    /// Whether the sampler's random numbers have begun.
    drawing: bool,
}

impl ByHand {
    /// Where the logits of the last token fed are, while no turn has come after it.
    pub fn last(&self) -> Option<LastRow> {
        self.last
    }
}

impl Runner {
    /// Takes `tokens` into the context, as a prompt is: in blocks, where the program has a method for that. The logits
    /// of the last one are there afterwards, and the sampler's random numbers begin anew.
    ///
    /// # Errors
    /// As those of a prompt of [`generate`](Self::generate), which leave the context as it was;
    /// [`RunnerError::Cancelled`] likewise. After an error from the model the context is invalid until
    /// [`reset`](Self::reset).
    pub fn prefill_tokens(&mut self, tokens: &[TokenId]) -> Result<()> {
        self.check_feed(tokens)?;
        self.canceller.0.store(false, Ordering::Release);
        self.poisoned = true;
        let last = self.loaded.feed_prompt(tokens, &self.canceller.0)?;
        self.poisoned = false;
        if last.is_none() {
            // The row of an earlier token may have been overwritten.
            self.by_hand.last = None;
            return Err(RunnerError::Cancelled.into());
        }
        self.by_hand = ByHand { last, drawing: false };
        Ok(())
    }

    /// Takes one token into the context, as decoding does. Its logits are there afterwards.
    ///
    /// # Errors
    /// As [`prefill_tokens`](Self::prefill_tokens); [`RunnerError::NothingContinues`].
    pub fn step(&mut self, token: TokenId) -> Result<()> {
        if self.loaded.starts_only() {
            return Err(RunnerError::NothingContinues.into());
        }
        self.check_feed(&[token])?;
        self.poisoned = true;
        self.by_hand.last = Some(self.loaded.decode_one(token)?);
        self.poisoned = false;
        Ok(())
    }

    /// Writes the logits of the last token fed by [`prefill_tokens`](Self::prefill_tokens) or [`step`](Self::step),
    /// `[vocab]`, to `reals`.
    ///
    /// # Errors
    /// [`RunnerError::NoLogits`]; [`RunnerError::NoLogitsScale`] for integers that stand for no reals.
    pub fn logits(&self, reals: &mut Vec<f32>) -> Result<()> {
        let last = self.by_hand.last.ok_or(RunnerError::NoLogits)?;
        match self.loaded.last_logits(last)?.reals(reals) {
            true => Ok(()),
            false => Err(RunnerError::NoLogitsScale.into()),
        }
    }

    /// Chooses a token from these logits by `config`'s temperature, top_p and seed; the rest of it is not looked at.
    /// Random numbers begin at the seed after [`prefill_tokens`](Self::prefill_tokens), and go on from call to call. The
    /// token is not fed.
    ///
    /// # Errors
    /// [`RunnerError::NoLogits`]; [`RunnerError::NanLogits`]; those of the three values.
    pub fn sample(&mut self, config: &GenerationConfig) -> Result<TokenId> {
        self.sampler.check(config)?;
        let last = self.by_hand.last.ok_or(RunnerError::NoLogits)?;
        match std::mem::replace(&mut self.by_hand.drawing, true) {
            true => self.sampler.adjust(config),
            false => self.sampler.begin(config),
        }
        Ok(self.sampler.sample(self.loaded.last_logits(last)?.bytes)?)
    }

    /// Goes back to the first `position` tokens of the context. Their logits are gone; the next token fed makes new ones.
    /// Going back to where it is changes nothing.
    ///
    /// # Errors
    /// [`RunnerError::RewindBeyond`]; [`RunnerError::Poisoned`] after a failed turn, of which only
    /// [`reset`](Self::reset) comes back.
    pub fn rewind(&mut self, position: usize) -> Result<()> {
        if self.poisoned {
            return Err(RunnerError::Poisoned.into());
        }
        let have = self.position();
        if position > have {
            return Err(RunnerError::RewindBeyond { have, asked: position }.into());
        }
        if position < have {
            self.loaded.rewind(position);
            self.by_hand = ByHand::default();
        }
        Ok(())
    }

    fn check_feed(&self, tokens: &[TokenId]) -> Result<()> {
        if self.poisoned {
            return Err(RunnerError::Poisoned.into());
        }
        self.check_tokens(tokens)?;
        Ok(self.check_length(tokens.len(), self.context_len())?)
    }
}
