//! Brings QNN's log lines to the library's log sink, with their level and in their order, from whichever thread of
//! QNN's they come. The sink is called inside a QNN call and must not call back into this library.

use super::{cstd, sys};
use crate::base::log::{self, Level};
use std::ffi::{CStr, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Longer lines are cut.
const LINE_CAPACITY: usize = 4096;

/// QNN's number of a level, which is ours.
pub(super) fn level_number(level: Level) -> u32 {
    level as i32 as u32
}

fn level_of(number: u32) -> Level {
    match number {
        sys::QNN_LOG_LEVEL_ERROR => Level::Error,
        sys::QNN_LOG_LEVEL_WARN => Level::Warning,
        sys::QNN_LOG_LEVEL_INFO => Level::Info,
        sys::QNN_LOG_LEVEL_VERBOSE => Level::Verbose,
        _ => Level::Debug,
    }
}

/// Given to `logCreate`.
///
/// # Safety
/// `format` and `args` must be what a C caller would give vprintf.
pub(super) unsafe extern "C" fn callback(format: *const c_char, number: u32, _timestamp: u64, args: *mut c_void) {
    let level = level_of(number);
    if format.is_null() || log::level().is_none_or(|wanted| level > wanted) {
        return;
    }
    let mut line = [0u8; LINE_CAPACITY];
    // SAFETY: the buffer has the size told, and the caller vouches for format and args.
    let written = unsafe { cstd::vsnprintf(line.as_mut_ptr().cast(), line.len(), format, args) };
    if written < 0 {
        return;
    }
    let text = CStr::from_bytes_until_nul(&line).unwrap_or_default().to_string_lossy();
    // A panic of the host's sink must not unwind into C.
    let _ = catch_unwind(AssertUnwindSafe(|| log::write(level, format_args!("QNN: {}", text.trim_end()))));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_numbered_alike() {
        for level in [Level::Error, Level::Warning, Level::Info, Level::Verbose, Level::Debug] {
            assert_eq!(level_of(level_number(level)), level);
        }
        assert_eq!(level_of(77), Level::Debug);
    }
}
