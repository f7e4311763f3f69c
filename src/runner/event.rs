//! What a caller gets: an event for each token, and a summary of the turn.

use super::stats::Stats;
use crate::base::fnv::fnv1a64;
use crate::tensor::DType;
use crate::tokenizer::TokenId;

/// The logits that a token was chosen from, as the model wrote them.
#[derive(Debug, Clone, Copy)]
pub struct LogitsRow<'a> {
    /// `u16`, `u8`, `f32`, `f16` or `bf16`.
    pub dtype: DType,
    /// Raw little-endian bytes of one row, `[vocab]`.
    pub bytes: &'a [u8],
}

impl LogitsRow<'_> {
    /// FNV-1a 64 over the raw bytes, as golden runs record it.
    pub fn fnv1a64(&self) -> u64 {
        fnv1a64(self.bytes)
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
