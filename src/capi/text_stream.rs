//! `llr_text_stream`: whole characters from tokens, for hosts that decode token by token.

use super::chunk::write_len;
use super::guard::{guard, guard_value};
use super::handle::Handle;
use super::pointer::{check_out, reference};
use super::runner::llr_runner;
use super::status::llr_status;
use super::tokens::previous_token;
use crate::tokenizer::{TokenId, Tokenizer, Utf8Stream};
use std::ffi::c_char;
use std::ptr;
use std::sync::Arc;

/// Makes text of tokens, one after the other: made by llr_text_stream_create, freed by llr_text_stream_free. It keeps
/// the tokenizer that it needs, so the runner may be freed before it.
///
/// Functions: llr_text_stream_*.
pub struct llr_text_stream(Handle<State>);

struct State {
    tokenizer: Arc<dyn Tokenizer>,
    previous: Option<TokenId>,
    utf8: Utf8Stream,
    /// Of the last call: whole characters, then one NUL.
    text: String,
    bytes: Vec<u8>,
}

impl State {
    fn set(&mut self, mut text: String, bytes: Vec<u8>) {
        text.push('\0');
        (self.text, self.bytes) = (text, bytes);
    }
}

/// A stream that begins after token `previous`, the last one of a prompt, or, with -1, where a text begins. To be freed
/// by llr_text_stream_free.
///
/// Errors, after which `*out_stream` is as before: LLR_STATUS_INVALID_ARGUMENT (NULL, `previous` below -1),
/// LLR_STATUS_INVALID_STATE (the runner is not loaded).
///
/// Threads: shared.
///
/// # Safety
/// `runner` is NULL or live; `out_stream` is NULL or points to a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_text_stream_create(
    runner: *const llr_runner,
    previous: i64,
    out_stream: *mut *mut llr_text_stream,
) -> llr_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let runner = unsafe { reference(runner, "runner") }?;
        check_out(out_stream, "out_stream")?;
        let previous = previous_token(previous)?;
        let tokenizer = Arc::clone(&runner.facts()?.tokenizer);
        let state = State { tokenizer, previous, utf8: Utf8Stream::new(), text: "\0".into(), bytes: Vec::new() };
        let stream = Box::new(llr_text_stream(Handle::new(state)));
        // SAFETY: not NULL, so it points to a pointer of the caller.
        unsafe { out_stream.write(Box::into_raw(stream)) };
        Ok(())
    })
}

/// Frees the stream; NULL is fine.
///
/// Threads: last.
///
/// # Safety
/// `stream` is NULL or from llr_text_stream_create, not freed, and not in use by another call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_text_stream_free(stream: *mut llr_text_stream) {
    guard_value((), || {
        if !stream.is_null() {
            // SAFETY: from `Box::into_raw` above, and given back once, as the caller promises.
            drop(unsafe { Box::from_raw(stream) });
        }
    })
}

/// Takes the next token. llr_text_stream_text and llr_text_stream_bytes tell what it adds.
///
/// Errors, after which the stream is as it was: LLR_STATUS_INVALID_ARGUMENT (NULL), LLR_STATUS_TOKENIZER_FAILED (an id
/// that the tokenizer does not know).
///
/// Threads: one at a time.
///
/// # Safety
/// `stream` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_text_stream_push(stream: *mut llr_text_stream, token: u64) -> llr_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let stream = unsafe { reference(stream, "stream") }?;
        stream.0.write(|state| {
            let piece = state.tokenizer.decode(state.previous, token)?;
            state.previous = Some(token);
            let text = state.utf8.push(&piece);
            state.set(text, piece);
            Ok(())
        })
    })
}

/// Ends the text: llr_text_stream_text then gives U+FFFD for a character that never came whole, else nothing. More
/// tokens may follow.
///
/// Errors: LLR_STATUS_INVALID_ARGUMENT (NULL).
///
/// Threads: one at a time.
///
/// # Safety
/// `stream` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_text_stream_finish(stream: *mut llr_text_stream) -> llr_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let stream = unsafe { reference(stream, "stream") }?;
        stream.0.write(|state| {
            let text = state.utf8.flush();
            state.set(text, Vec::new());
            Ok(())
        })
    })
}

/// The text that the last call completed: whole UTF-8 characters, possibly none. `out_len` (may be NULL) gets its length
/// in bytes; a NUL follows it, not counted. Valid until the next call that takes the stream without const. NULL and 0 for
/// NULL. Never fails.
///
/// Threads: shared.
///
/// # Safety
/// `stream` is NULL or live; `out_len` is NULL or points to a size_t.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_text_stream_text(stream: *const llr_text_stream, out_len: *mut usize) -> *const c_char {
    guard_value(ptr::null(), || {
        // SAFETY: the caller's promise.
        let found = unsafe { view(stream, |state| (state.text.as_ptr().cast(), state.text.len() - 1)) };
        let (text, len) = found.unwrap_or((ptr::null(), 0));
        // SAFETY: the caller's promise.
        unsafe { write_len(out_len, len) };
        text
    })
}

/// The bytes that the last token adds, as the tokenizer has them; none after llr_text_stream_finish. `out_len` gets their
/// number. Valid until the next call that takes the stream without const. NULL and 0 for NULL. Never fails.
///
/// Threads: shared.
///
/// # Safety
/// `stream` is NULL or live; `out_len` is NULL or points to a size_t.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_text_stream_bytes(stream: *const llr_text_stream, out_len: *mut usize) -> *const u8 {
    guard_value(ptr::null(), || {
        // SAFETY: the caller's promise.
        let found = unsafe { view(stream, |state| (state.bytes.as_ptr(), state.bytes.len())) };
        let (bytes, len) = found.unwrap_or((ptr::null(), 0));
        // SAFETY: the caller's promise.
        unsafe { write_len(out_len, len) };
        bytes
    })
}

/// # Safety
/// `stream` is NULL or live.
unsafe fn view<T>(stream: *const llr_text_stream, get: impl FnOnce(&State) -> T) -> Option<T> {
    // SAFETY: the caller's promise.
    unsafe { stream.as_ref() }.and_then(|stream| stream.0.read(|state| Ok(get(state))).ok())
}
