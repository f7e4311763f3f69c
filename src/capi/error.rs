//! The last error of each thread: a status and a message with every cause, there even when no object could be made.

use super::guard::guard_value;
use super::status::llr_status;
use crate::error::Error;
use std::cell::RefCell;
use std::ffi::c_char;

/// What went wrong in a thread's last call.
pub(super) struct LastError {
    status: llr_status,
    message: String,
}

impl LastError {
    pub(super) fn status(&self) -> llr_status {
        self.status
    }
}

impl From<&Error> for LastError {
    fn from(error: &Error) -> Self {
        // A NUL would end the text early for a C reader.
        Self { status: error.status().into(), message: error.chain().replace('\0', "\\0") }
    }
}

thread_local! {
    static LAST: RefCell<Option<LastError>> = const { RefCell::new(None) };
}

/// Puts `error` in place of the thread's last error. Without effect while the thread's locals are being destroyed.
pub(super) fn replace(error: Option<LastError>) {
    let _ = LAST.try_with(|last| last.replace(error));
}

/// The last error's message; `None` after success.
pub(super) fn message_of_this_thread() -> Option<String> {
    LAST.try_with(|last| last.borrow().as_ref().map(|error| error.message.clone())).ok().flatten()
}

/// Status of the last function that returned an `llr_status` on the calling thread; LLR_STATUS_OK when it succeeded or
/// when there was none.
///
/// The last error of a thread always describes the last finished call on that thread to a function that returns
/// `llr_status`, llr_last_error_message excepted: success clears it, failure replaces it. Functions that return
/// anything else leave it alone, and so do other threads.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn llr_last_error_code() -> llr_status {
    guard_value(llr_status::Ok, || {
        LAST.try_with(|last| last.borrow().as_ref().map_or(llr_status::Ok, LastError::status)).unwrap_or(llr_status::Ok)
    })
}

/// Copies the calling thread's last error message, with its causes ("what: why: why"), one line of UTF-8; empty after
/// success. It works when no object exists, for instance after a failed llr_runner_create.
///
/// Ask for the size with `buffer` NULL and `buffer_len` 0, then fill. A shorter buffer gets as many whole characters as
/// fit; the text in the buffer always ends with a NUL. `out_needed` (may be NULL) gets the size of the whole message,
/// its NUL included. The last error itself is neither cleared nor replaced by this function.
///
/// Errors: LLR_STATUS_INVALID_ARGUMENT when `buffer` is NULL and `buffer_len` is not 0.
///
/// Threads: any.
///
/// # Safety
/// `buffer` is NULL or has room for `buffer_len` bytes; `out_needed` is NULL or points to a size_t.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_last_error_message(
    buffer: *mut c_char,
    buffer_len: usize,
    out_needed: *mut usize,
) -> llr_status {
    guard_value(llr_status::Panic, || {
        if buffer.is_null() && buffer_len > 0 {
            return llr_status::InvalidArgument;
        }
        let message = message_of_this_thread().unwrap_or_default();
        if buffer_len > 0 {
            let end = message.floor_char_boundary(buffer_len - 1);
            // SAFETY: the caller gives `buffer_len` writable bytes, and `end` < `buffer_len`; a fresh String cannot
            // overlap them.
            unsafe {
                std::ptr::copy_nonoverlapping(message.as_ptr(), buffer.cast::<u8>(), end);
                buffer.add(end).write(0);
            }
        }
        if !out_needed.is_null() {
            // SAFETY: not NULL, so it points to a size_t of the caller.
            unsafe { out_needed.write(message.len() + 1) };
        }
        llr_status::Ok
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capi::guard::guard;
    use crate::error::Status;
    use std::ptr;

    fn fill(len: usize) -> (llr_status, Vec<u8>, usize) {
        let mut buffer = vec![0xaa_u8; len + 1];
        let mut needed = 0;
        // SAFETY: `len` writable bytes and a usize.
        let status = unsafe { llr_last_error_message(buffer.as_mut_ptr().cast(), len, &mut needed) };
        assert_eq!(buffer.pop(), Some(0xaa), "wrote past the end");
        (status, buffer, needed)
    }

    #[test]
    fn asks_size_then_fills() {
        guard(|| Err(Error::new(Status::NotFound, "grün").context("a\0b")));
        let mut needed = 0;
        // SAFETY: NULL with length 0 asks for the size.
        assert_eq!(unsafe { llr_last_error_message(ptr::null_mut(), 0, &mut needed) }, llr_status::Ok);
        assert_eq!(needed, "a\\0b: grün".len() + 1);
        assert_eq!(fill(needed), (llr_status::Ok, "a\\0b: grün\0".as_bytes().to_vec(), needed));
    }

    #[test]
    fn short_buffer_gets_whole_characters_and_a_nul() {
        guard(|| Err(Error::new(Status::NotFound, "grün")));
        for (len, want) in [(1, &b"\0"[..]), (3, b"gr\0"), (4, b"gr\0"), (5, "grü\0".as_bytes())] {
            let (status, buffer, needed) = fill(len);
            assert_eq!((status, needed), (llr_status::Ok, 6));
            assert_eq!(&buffer[..want.len()], want, "length {len}");
        }
    }

    #[test]
    fn null_buffer_with_a_length_is_refused_and_keeps_the_error() {
        guard(|| Err(Error::new(Status::NotFound, "kept")));
        // SAFETY: NULL is refused.
        let status = unsafe { llr_last_error_message(ptr::null_mut(), 3, ptr::null_mut()) };
        assert_eq!((status, llr_last_error_code()), (llr_status::InvalidArgument, llr_status::NotFound));
    }

    #[test]
    fn threads_do_not_see_each_other() {
        guard(|| Err(Error::new(Status::NotFound, "mine")));
        let other = std::thread::spawn(|| (llr_last_error_code(), message_of_this_thread())).join().unwrap();
        assert_eq!(other, (llr_status::Ok, None));
        assert_eq!(llr_last_error_code(), llr_status::NotFound);
    }
}
