//! From the runner's token events to the host's stream callback.

use super::chunk::{llr_chunk, llr_finish_reason};
use crate::error::{Error, Result, Status};
use crate::runner::TokenEvent;
use crate::tokenizer::Utf8Stream;
use std::ffi::c_void;
use std::ops::ControlFlow;

/// What a stream callback answers. Any other number stops the turn, and the call fails with
/// LLR_STATUS_INVALID_ARGUMENT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum llr_stream_answer {
    /// Go on.
    Continue = 0,
    /// End the turn here; it finishes with LLR_FINISH_REASON_CANCELLED.
    Stop = 1,
}

/// Called on the thread that runs the turn, once for each new token and once more, with a final chunk, when the turn
/// ends without an error. `chunk` is valid until the callback returns. `user_data` is what was given with the callback.
///
/// Returns an llr_stream_answer; after LLR_STREAM_ANSWER_STOP only the final chunk follows, whose answer is ignored.
///
/// The callback may call every function that takes a const llr_runner*, llr_runner_cancel among them, anything on other
/// objects, and llr_runner_free: the turn then stops, and the memory goes when it is over. Other calls on the same
/// runner fail with LLR_STATUS_INVALID_STATE. The callback must return normally: no exception and no longjmp may leave
/// it.
pub type llr_token_callback = Option<unsafe extern "C" fn(chunk: *const llr_chunk, user_data: *mut c_void) -> i32>;

/// One turn's stream. Without a callback nothing is called and nothing is stopped.
pub(super) struct Stream {
    callback: llr_token_callback,
    user_data: *mut c_void,
    utf8: Utf8Stream,
    unknown_answer: Option<i32>,
}

impl Stream {
    /// # Safety
    /// `callback` may be called with `user_data` as long as the stream lives.
    pub(super) unsafe fn new(callback: llr_token_callback, user_data: *mut c_void) -> Self {
        Self { callback, user_data, utf8: Utf8Stream::new(), unknown_answer: None }
    }

    /// Hands one token to the host.
    pub(super) fn token(&mut self, event: &TokenEvent<'_>) -> ControlFlow<()> {
        let text = self.utf8.push(event.piece);
        let (bytes, row) = (event.piece.to_vec(), Some(event.logits.into()));
        let finish_reason = llr_finish_reason::None;
        match self.call(llr_chunk { text, bytes, token: Some(event.token), finish_reason, row }) {
            None => ControlFlow::Continue(()),
            Some(answer) if answer == llr_stream_answer::Continue as i32 => ControlFlow::Continue(()),
            Some(answer) => {
                if answer != llr_stream_answer::Stop as i32 {
                    self.unknown_answer = Some(answer);
                }
                ControlFlow::Break(())
            }
        }
    }

    /// Fails when the host answered with a number that is no answer.
    pub(super) fn check_answers(&self) -> Result<()> {
        match self.unknown_answer {
            None => Ok(()),
            Some(answer) => Err(Error::new(
                Status::InvalidArgument,
                format!("the stream callback answered {answer}, which is neither 0 (continue) nor 1 (stop)"),
            )),
        }
    }

    /// Hands out the final chunk.
    pub(super) fn finish(&mut self, reason: llr_finish_reason) {
        let text = self.utf8.flush();
        self.call(llr_chunk { text, bytes: Vec::new(), token: None, finish_reason: reason, row: None });
    }

    fn call(&self, mut chunk: llr_chunk) -> Option<i32> {
        let callback = self.callback?;
        chunk.text.push('\0');
        // SAFETY: `new` was promised that the two may be used together; the chunk outlives the call.
        Some(unsafe { callback(&chunk, self.user_data) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capi::chunk::{
        llr_chunk_bytes, llr_chunk_finish_reason, llr_chunk_is_final, llr_chunk_log_probability, llr_chunk_text,
        llr_chunk_token_id,
    };
    use crate::runner::LogitsRow;
    use crate::tensor::DType;
    use crate::tokenizer::TokenId;
    use std::ffi::CStr;
    use std::{ptr, slice};

    #[derive(Default)]
    struct Seen {
        chunks: Vec<(String, Vec<u8>, i64, bool, i32)>,
        answer: i32,
    }

    unsafe extern "C" fn record(chunk: *const llr_chunk, user_data: *mut c_void) -> i32 {
        let (mut text_len, mut byte_len) = (0, 0);
        // SAFETY: called by `Stream` with a live chunk and the `Seen` of the test.
        unsafe {
            let seen = &mut *user_data.cast::<Seen>();
            let text = llr_chunk_text(chunk, &mut text_len);
            assert_eq!(CStr::from_ptr(text).to_bytes().len(), text_len, "one NUL, right behind the text");
            let bytes = slice::from_raw_parts(llr_chunk_bytes(chunk, &mut byte_len), byte_len).to_vec();
            seen.chunks.push((
                CStr::from_ptr(text).to_str().expect("whole characters").to_owned(),
                bytes,
                llr_chunk_token_id(chunk),
                llr_chunk_is_final(chunk),
                llr_chunk_finish_reason(chunk) as i32,
            ));
            seen.answer
        }
    }

    fn event(token: TokenId, piece: &[u8]) -> TokenEvent<'_> {
        let logits = LogitsRow { dtype: DType::F32, encoding: None, bytes: &[0; 40] };
        TokenEvent { token, piece, position: 0, row: 0, logits }
    }

    fn stream(seen: &mut Seen) -> Stream {
        // SAFETY: the tests keep `seen` alive beside the stream, and nobody else touches it during a call.
        unsafe { Stream::new(Some(record), ptr::from_mut(seen).cast()) }
    }

    #[test]
    fn o26_text_comes_in_whole_characters_and_bytes_as_they_are() {
        let mut seen = Seen::default();
        let mut stream = stream(&mut seen);
        for (token, piece) in [(5, &b"\xf0"[..]), (6, b"\x9f"), (7, b"\x98"), (8, b"\x80"), (9, b"\xc3")] {
            assert!(stream.token(&event(token, piece)).is_continue());
        }
        stream.finish(llr_finish_reason::Length);
        let texts = seen.chunks.iter().map(|chunk| chunk.0.as_str()).collect::<Vec<_>>();
        assert_eq!(texts, ["", "", "", "😀", "", "\u{fffd}"]);
        assert_eq!(seen.chunks[1], (String::new(), vec![0x9f], 6, false, 0));
        assert_eq!(seen.chunks[5], ("\u{fffd}".into(), vec![], -1, true, 4));
    }

    unsafe extern "C" fn log_probability(chunk: *const llr_chunk, user_data: *mut c_void) -> i32 {
        // SAFETY: called by `Stream` with a live chunk and the list of the test.
        unsafe { (*user_data.cast::<Vec<f64>>()).push(llr_chunk_log_probability(chunk)) };
        llr_stream_answer::Continue as i32
    }

    #[test]
    fn log_probability_is_of_the_chunks_token_and_nan_at_the_end() {
        let mut seen: Vec<f64> = Vec::new();
        // SAFETY: `seen` outlives the stream.
        let mut stream = unsafe { Stream::new(Some(log_probability), ptr::from_mut(&mut seen).cast()) };
        let row = [1.0f32; 4];
        let logits = LogitsRow { dtype: DType::F32, encoding: None, bytes: bytemuck::cast_slice(&row) };
        assert!(stream.token(&TokenEvent { logits, ..event(2, b"x") }).is_continue());
        stream.finish(llr_finish_reason::Eos);
        assert!((seen[0] + 4f64.ln()).abs() < 1e-9 && seen[1].is_nan(), "{seen:?}");
    }

    #[test]
    fn stop_stops_and_is_no_error() {
        let mut seen = Seen { answer: llr_stream_answer::Stop as i32, ..Seen::default() };
        let mut stream = stream(&mut seen);
        assert!(stream.token(&event(1, b"a")).is_break());
        assert!(stream.check_answers().is_ok());
    }

    #[test]
    fn unknown_answer_stops_and_is_an_error_that_names_it() {
        let mut seen = Seen { answer: 9, ..Seen::default() };
        let mut stream = stream(&mut seen);
        assert!(stream.token(&event(1, b"a")).is_break());
        let error = stream.check_answers().unwrap_err();
        assert!(error.status() == Status::InvalidArgument && error.chain().contains("answered 9"));
    }

    #[test]
    fn no_callback_is_fine() {
        // SAFETY: nothing to call.
        let mut stream = unsafe { Stream::new(None, ptr::null_mut()) };
        assert!(stream.token(&event(1, b"a")).is_continue());
        stream.finish(llr_finish_reason::Eos);
    }
}
