//! `llr_chunk`: what the stream callback is given. An object with getters, so that it can learn more without breaking.

use super::guard::guard_value;
use crate::runner::{FinishReason, LogitsRow};
use crate::tensor::{DType, Encoding};
use crate::tokenizer::TokenId;
use std::ffi::c_char;
use std::ptr;

/// One token of a turn, or the turn's end. Lent to the stream callback: it and everything its getters return are valid
/// until that callback returns, and are freed by the library.
///
/// Functions: llr_chunk_text, llr_chunk_bytes, llr_chunk_token_id,
/// llr_chunk_log_probability, llr_chunk_is_final, llr_chunk_finish_reason.
pub struct llr_chunk {
    /// Whole characters, then one NUL.
    pub(super) text: String,
    pub(super) bytes: Vec<u8>,
    pub(super) token: Option<TokenId>,
    pub(super) finish_reason: llr_finish_reason,
    pub(super) row: Option<Row>,
}

/// The logits that a chunk's token was chosen from. They are the runner's, and stay as they are while the callback runs:
/// that is as long as a chunk lives.
pub(super) struct Row {
    dtype: DType,
    encoding: Option<Encoding>,
    bytes: *const [u8],
}

impl From<LogitsRow<'_>> for Row {
    fn from(LogitsRow { dtype, encoding, bytes }: LogitsRow<'_>) -> Self {
        Self { dtype, encoding, bytes }
    }
}

impl Row {
    /// # Safety
    /// The row that this was made from must be there still.
    unsafe fn borrow(&self) -> LogitsRow<'_> {
        // SAFETY: the caller's promise.
        LogitsRow { dtype: self.dtype, encoding: self.encoding, bytes: unsafe { &*self.bytes } }
    }
}

/// Why a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum llr_finish_reason {
    /// It has not ended, ended with an error, or there was none.
    None = 0,
    /// An end-of-sequence token came.
    Eos = 1,
    /// seq_len was reached.
    SeqLen = 2,
    /// The model's context is full.
    ContextFull = 3,
    /// max_new_tokens or max_decode_steps was reached.
    Length = 4,
    /// The callback or llr_runner_cancel asked to stop.
    Cancelled = 5,
}

impl From<FinishReason> for llr_finish_reason {
    fn from(reason: FinishReason) -> Self {
        match reason {
            FinishReason::Eos => Self::Eos,
            FinishReason::SeqLen => Self::SeqLen,
            FinishReason::ContextFull => Self::ContextFull,
            FinishReason::Length => Self::Length,
            FinishReason::Cancelled => Self::Cancelled,
        }
    }
}

/// The text that this token completes: whole UTF-8 characters only, possibly none (while a character's bytes are still
/// coming). The end-of-sequence token that ends a turn has its text too (`</s>`). Bytes that can be no character are
/// replaced by U+FFFD, at the latest in the final chunk. `out_len` (may be NULL) gets its length in bytes; a NUL follows it,
/// not counted. NULL and 0 for a NULL chunk. Never fails.
///
/// Threads: shared.
///
/// # Safety
/// `chunk` is NULL or the one given to the running callback; `out_len` is NULL or points to a size_t.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_chunk_text(chunk: *const llr_chunk, out_len: *mut usize) -> *const c_char {
    guard_value(ptr::null(), || {
        // SAFETY: the caller's promise.
        let bytes = unsafe { chunk.as_ref() }.map(|chunk| chunk.text.as_bytes());
        // SAFETY: the caller's promise. The NUL at the end is not counted.
        unsafe { write_len(out_len, bytes.map_or(0, |bytes| bytes.len() - 1)) };
        bytes.map_or(ptr::null(), |bytes| bytes.as_ptr().cast())
    })
}

/// The bytes that this token adds, as the tokenizer has them: possibly a part of a character, or no UTF-8 at all; none
/// in the final chunk. `out_len` gets their number; without it they cannot be read. NULL and 0 for a NULL chunk. Never
/// fails.
///
/// Threads: shared.
///
/// # Safety
/// `chunk` is NULL or the one given to the running callback; `out_len` is NULL or points to a size_t.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_chunk_bytes(chunk: *const llr_chunk, out_len: *mut usize) -> *const u8 {
    guard_value(ptr::null(), || {
        // SAFETY: the caller's promise.
        let bytes = unsafe { chunk.as_ref() }.map(|chunk| chunk.bytes.as_slice());
        // SAFETY: the caller's promise.
        unsafe { write_len(out_len, bytes.map_or(0, <[u8]>::len)) };
        bytes.map_or(ptr::null(), <[u8]>::as_ptr)
    })
}

/// The token's id; -1 in the final chunk and for NULL. Never fails.
///
/// Threads: shared.
///
/// # Safety
/// `chunk` is NULL or the one given to the running callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_chunk_token_id(chunk: *const llr_chunk) -> i64 {
    guard_value(-1, || {
        // SAFETY: the caller's promise.
        let token = unsafe { chunk.as_ref() }.and_then(|chunk| chunk.token);
        token.and_then(|token| i64::try_from(token).ok()).unwrap_or(-1)
    })
}

/// The natural logarithm of the token's probability at temperature 1, whatever the temperature it was chosen at: of the
/// softmax of the whole row of logits. 0 is certainty, and nothing is above it. A logit that is NaN has no share; the
/// token's own being NaN gives NaN; of infinite logits each has an equal share, and minus infinity is what is left for
/// the others. NaN also in the final chunk, for NULL, and where the program does not say which reals its integers stand
/// for. Computed when asked for, in time linear in the vocabulary. Never fails.
///
/// Threads: shared.
///
/// # Safety
/// `chunk` is NULL or the one given to the running callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_chunk_log_probability(chunk: *const llr_chunk) -> f64 {
    guard_value(f64::NAN, || {
        // SAFETY: the caller's promise.
        let known = unsafe { chunk.as_ref() }.and_then(|chunk| Some((chunk.row.as_ref()?, chunk.token?)));
        // SAFETY: the chunk is that of the running callback, so the row has not changed.
        known.map_or(f64::NAN, |(row, token)| unsafe { row.borrow() }.log_probability(token))
    })
}

/// True for the turn's last chunk. It has no token, the text that was still held back, and the finish reason. False for
/// NULL. Never fails.
///
/// Threads: shared.
///
/// # Safety
/// `chunk` is NULL or the one given to the running callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_chunk_is_final(chunk: *const llr_chunk) -> bool {
    // SAFETY: the caller's promise.
    guard_value(false, || unsafe { llr_chunk_finish_reason(chunk) } != llr_finish_reason::None)
}

/// Why the turn ended; LLR_FINISH_REASON_NONE before the final chunk and for NULL. Never fails.
///
/// Threads: shared.
///
/// # Safety
/// `chunk` is NULL or the one given to the running callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_chunk_finish_reason(chunk: *const llr_chunk) -> llr_finish_reason {
    guard_value(llr_finish_reason::None, || {
        // SAFETY: the caller's promise.
        unsafe { chunk.as_ref() }.map_or(llr_finish_reason::None, |chunk| chunk.finish_reason)
    })
}

/// # Safety
/// `out_len` is NULL or points to a usize.
pub(super) unsafe fn write_len(out_len: *mut usize, len: usize) {
    if !out_len.is_null() {
        // SAFETY: not NULL, so it points to a usize.
        unsafe { out_len.write(len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_chunk_gives_defaults() {
        let mut len = 7;
        // SAFETY: NULL is allowed everywhere here.
        unsafe {
            assert!(llr_chunk_text(ptr::null(), &mut len).is_null());
            assert_eq!(len, 0);
            assert!(llr_chunk_bytes(ptr::null(), ptr::null_mut()).is_null());
            assert_eq!(llr_chunk_token_id(ptr::null()), -1);
            assert!(llr_chunk_log_probability(ptr::null()).is_nan());
            assert!(!llr_chunk_is_final(ptr::null()));
            assert_eq!(llr_chunk_finish_reason(ptr::null()), llr_finish_reason::None);
        }
    }

    #[test]
    fn finish_numbers_equal_those_of_the_crate() {
        use FinishReason::*;
        for reason in [Eos, SeqLen, ContextFull, Length, Cancelled] {
            assert_eq!(llr_finish_reason::from(reason) as i32, reason as i32);
        }
    }
}
