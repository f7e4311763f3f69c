//! What a caller gets: an event for each token, and a summary of the turn.

use super::logits::LogitsFormat;
use super::stats::Stats;
use crate::base::fnv::fnv1a64;
use crate::tensor::{DType, Encoding};
use crate::tokenizer::TokenId;

/// The logits that a token was chosen from, as the model wrote them.
#[derive(Debug, Clone, Copy)]
pub struct LogitsRow<'a> {
    /// `u16`, `u8`, `f32`, `f16` or `bf16`.
    pub dtype: DType,
    /// What integer codes stand for, if known.
    pub encoding: Option<Encoding>,
    /// Raw little-endian bytes of one row, `[vocab]`.
    pub bytes: &'a [u8],
}

impl LogitsRow<'_> {
    /// FNV-1a 64 over the raw bytes, as golden runs record it.
    pub fn fnv1a64(&self) -> u64 {
        fnv1a64(self.bytes)
    }

    /// Writes the row's real values, `[vocab]`, to `reals`. False, and nothing written, for integers without an
    /// encoding, which stand for no reals.
    #[must_use]
    pub fn reals(&self, reals: &mut Vec<f32>) -> bool {
        let format = LogitsFormat { dtype: self.dtype, encoding: self.encoding };
        if format.has_reals() {
            format.reals(self.bytes, reals);
        }
        format.has_reals()
    }

    /// The natural logarithm of `token`'s probability at temperature 1: of the softmax of the whole row. A NaN among the
    /// logits has no share in it; of infinite ones each has an equal share, and there is nothing for the others. NaN for
    /// a token whose own logit is NaN, one outside the row, and a row without [`reals`](Self::reals).
    pub fn log_probability(&self, token: TokenId) -> f64 {
        let mut reals = Vec::new();
        let known = self.reals(&mut reals);
        let own = usize::try_from(token).ok().filter(|_| known).and_then(|index| reals.get(index).copied());
        let own = own.map_or(f64::NAN, f64::from);
        let max = reals.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        if max.is_infinite() {
            // Every share is at one of the ends.
            let equals = reals.iter().filter(|&&real| real == max).count();
            return match own {
                own if own.is_nan() => f64::NAN,
                own if own == f64::from(max) => -(equals as f64).ln(),
                _ => f64::NEG_INFINITY,
            };
        }
        let shares = reals.iter().filter(|real| !real.is_nan()).map(|&real| f64::from(real - max).exp());
        own - f64::from(max) - shares.sum::<f64>().ln()
    }
}

/// One sampled token.
#[derive(Debug, Clone, Copy)]
pub struct TokenEvent<'a> {
    /// The token.
    pub token: TokenId,
    /// The bytes it adds to the text; possibly part of a UTF-8 character.
    pub piece: &'a [u8],
    /// Position of the input token whose row it was sampled from.
    pub position: usize,
    /// Row of the logits it was sampled from.
    pub row: usize,
    /// That row.
    pub logits: LogitsRow<'a>,
}

/// Why a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum FinishReason {
    /// An end-of-sequence token came.
    Eos = 1,
    /// `seq_len` was reached.
    SeqLen = 2,
    /// The model's context is full.
    ContextFull = 3,
    /// `max_new_tokens` or `max_decode_steps` was reached.
    Length = 4,
    /// The callback or another thread asked to stop.
    Cancelled = 5,
}

/// One finished turn.
#[derive(Debug, Clone)]
pub struct Generation {
    /// What was fed.
    pub prompt_tokens: Vec<TokenId>,
    /// What came out, the token that the prefill made first.
    pub tokens: Vec<TokenId>,
    /// Why it ended.
    pub finish_reason: FinishReason,
    /// Times and counts.
    pub stats: Stats,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(bytes: &[u8]) -> LogitsRow<'_> {
        LogitsRow { dtype: DType::F32, encoding: None, bytes }
    }

    fn log_probabilities(logits: &[f32]) -> Vec<f64> {
        let row = row(bytemuck::cast_slice(logits));
        (0..logits.len() as TokenId).map(|token| row.log_probability(token)).collect()
    }

    #[test]
    fn probabilities_are_those_of_the_softmax() {
        let logits = [1.0f32, -2.5, 40.0, 39.0, 0.0];
        let found = log_probabilities(&logits);
        let total: f64 = logits.iter().map(|&logit| f64::from(logit).exp()).sum();
        for (logit, found) in logits.into_iter().zip(&found) {
            assert!((f64::from(logit) - total.ln() - found).abs() < 1e-12);
        }
        assert!((found.iter().map(|log| log.exp()).sum::<f64>() - 1.0).abs() < 1e-12);
    }

    #[test]
    fn codes_are_taken_for_what_they_stand_for() {
        let codes = [30_000u16, 29_000, 0];
        let encoding = Some(Encoding { scale: 0.001, zero_point: 7 });
        let row = LogitsRow { dtype: DType::U16, encoding, bytes: bytemuck::cast_slice(&codes) };
        assert!((row.log_probability(0) - row.log_probability(1) - 1.0).abs() < 1e-5);
        let unknown = LogitsRow { encoding: None, ..row };
        assert!(unknown.log_probability(0).is_nan() && !unknown.reals(&mut Vec::new()));
    }

    #[test]
    fn nan_and_infinite_logits_follow_the_rules() {
        let (nan, infinity) = (f32::NAN, f32::INFINITY);
        let found = log_probabilities(&[0.0, nan, 0.0, -infinity]);
        assert!((found[0] + 2f64.ln()).abs() < 1e-12 && found[1].is_nan() && found[3] == f64::NEG_INFINITY);
        let found = log_probabilities(&[infinity, 3.0, infinity, nan]);
        assert!((found[2] + 2f64.ln()).abs() < 1e-12 && found[1] == f64::NEG_INFINITY && found[3].is_nan());
        let found = log_probabilities(&[-infinity, -infinity]);
        assert!((found[0] + 2f64.ln()).abs() < 1e-12);
        assert!(log_probabilities(&[nan, nan])[0].is_nan());
        assert!(row(&[]).log_probability(0).is_nan());
        assert!(row(bytemuck::cast_slice(&[1.0f32])).log_probability(1).is_nan());
    }
}
