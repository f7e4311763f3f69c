//! The log callback: the only way anything is said outside of return values. It needs no other object.

use super::guard::guard;
use super::status::llr_status;
use crate::base::log::{self, Level};
use crate::error::{Error, Result, Status};
use std::ffi::{c_char, c_void};
use std::sync::Arc;

/// How grave a log line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum llr_log_level {
    /// Something failed.
    Error = 1,
    /// Something is not as asked, and the work goes on.
    Warning = 2,
    /// Milestones: which library, which method, which mode.
    Info = 3,
    /// Details for someone who looks for a fault.
    Verbose = 4,
    /// Everything.
    Debug = 5,
}

/// Receives one log line without a line end: UTF-8, `line_len` bytes and a NUL behind, valid until the callback
/// returns. `level` is an llr_log_level. It is called on whichever thread has something to say, possibly on several at
/// once. It may call any function, but must return normally: no exception and no longjmp may leave it.
pub type llr_log_callback =
    Option<unsafe extern "C" fn(level: i32, line: *const c_char, line_len: usize, user_data: *mut c_void)>;

/// The host's pointer, on its way to whichever thread logs.
struct UserData(*mut c_void);

// SAFETY: the library only hands the pointer back; `llr_set_log_callback` demands that the callback may be called with
// it on any thread.
unsafe impl Send for UserData {}
// SAFETY: as above, and from several threads at once.
unsafe impl Sync for UserData {}

impl UserData {
    /// A method, so that closures capture the whole value and not the bare pointer.
    fn pointer(&self) -> *mut c_void {
        self.0
    }
}

/// Sends the log lines of the whole process up to `level` (an llr_log_level) to `callback`, which replaces any other;
/// NULL silences the library, which is how it starts. The library itself never prints. May be called at any time, from
/// any thread, before any object exists. When it returns, a call of the earlier callback may still be running on
/// another thread.
///
/// Errors: LLR_STATUS_INVALID_ARGUMENT for an unknown level (looked at only with a callback); nothing is changed then.
///
/// Threads: any.
///
/// # Safety
/// `callback` may be called with `user_data` on any thread, at any time, until another one has been set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_set_log_callback(
    level: i32,
    callback: llr_log_callback,
    user_data: *mut c_void,
) -> llr_status {
    guard(|| {
        let Some(callback) = callback else {
            log::set_sink(None);
            return Ok(());
        };
        let user_data = UserData(user_data);
        let sink = move |level: Level, line: &str| {
            let text = format!("{line}\0");
            // SAFETY: the caller's promise; the line lives during the call and ends with a NUL.
            unsafe { callback(level as i32, text.as_ptr().cast(), line.len(), user_data.pointer()) }
        };
        log::set_sink(Some((level_of(level)?, Arc::new(sink))));
        Ok(())
    })
}

fn level_of(number: i32) -> Result<Level> {
    [Level::Error, Level::Warning, Level::Info, Level::Verbose, Level::Debug]
        .into_iter()
        .find(|level| *level as i32 == number)
        .ok_or_else(|| {
            Error::new(Status::InvalidArgument, format!("log level {number} is none of 1 (error) to 5 (debug)"))
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;
    use std::ptr;
    use std::sync::Mutex;

    static LINES: Mutex<Vec<(i32, String)>> = Mutex::new(Vec::new());

    unsafe extern "C" fn record(level: i32, line: *const c_char, line_len: usize, user_data: *mut c_void) {
        // SAFETY: called by the sink above with a text that ends with NUL.
        let line = unsafe { CStr::from_ptr(line) }.to_str().unwrap();
        if line.starts_with("capi::log") {
            assert_eq!((line.len(), user_data as usize), (line_len, 0x77));
            LINES.lock().unwrap().push((level, line.to_owned()));
        }
    }

    #[test]
    fn lines_up_to_the_level_arrive_until_silenced() {
        let user_data = ptr::without_provenance_mut(0x77);
        // SAFETY: `record` never looks behind `user_data` and may be called from any thread.
        unsafe {
            assert_eq!(llr_set_log_callback(2, Some(record), user_data), llr_status::Ok);
            crate::log_warning!("capi::log {}", 1);
            crate::log_info!("capi::log {}", 2);
            for unknown in [0, 6, -1] {
                assert_eq!(llr_set_log_callback(unknown, Some(record), user_data), llr_status::InvalidArgument);
            }
            crate::log_error!("capi::log {}", 3);
            assert_eq!(llr_set_log_callback(0, None, ptr::null_mut()), llr_status::Ok);
            crate::log_error!("capi::log {}", 4);
        }
        assert_eq!(*LINES.lock().unwrap(), [(2, "capi::log 1".to_owned()), (1, "capi::log 3".to_owned())]);
    }

    #[test]
    fn level_numbers_equal_those_of_the_crate() {
        use llr_log_level as C;
        for level in [C::Error, C::Warning, C::Info, C::Verbose, C::Debug] {
            let found = level_of(level as i32).unwrap();
            assert_eq!((format!("{found:?}"), found as i32), (format!("{level:?}"), level as i32));
        }
    }
}
