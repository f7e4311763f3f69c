//! Keeps QNN's own printing off standard output: loading libQnnHtp.so and preparing graphs print lines there on some
//! SDKs, in the middle of what a program writes for its user.

use super::cstd::{dup2, fflush};
use super::lock::QnnLock;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

const STDOUT: i32 = 1;
const STDERR: i32 = 2;

/// Runs `f` while file descriptor 1 leads to where 2 leads. Text that another thread of the process writes to standard
/// output meanwhile goes to standard error too, so only calls that load or prepare are wrapped, never executions.
pub(super) fn on_stderr<T>(_lock: &QnnLock, f: impl FnOnce() -> T) -> T {
    let _restore = Redirected::begin();
    f()
}

struct Redirected(OwnedFd);

impl Redirected {
    /// `None` when there is no standard output or error to speak of.
    fn begin() -> Option<Self> {
        // SAFETY: the borrow ends within this statement; a closed descriptor makes the duplication fail, no more.
        let saved = unsafe { BorrowedFd::borrow_raw(STDOUT) }.try_clone_to_owned().ok()?;
        flush();
        // SAFETY: dup2 takes any numbers; a closed descriptor 2 makes it fail and leaves 1 as it was.
        (unsafe { dup2(STDERR, STDOUT) } >= 0).then_some(Self(saved))
    }
}

impl Drop for Redirected {
    fn drop(&mut self) {
        // What the library printed lies in the C library's buffer until it is flushed.
        flush();
        // SAFETY: as in `begin`; the saved descriptor is open, so this puts standard output back.
        unsafe { dup2(self.0.as_raw_fd(), STDOUT) };
    }
}

fn flush() {
    // SAFETY: a null stream means all of them.
    unsafe { fflush(std::ptr::null_mut()) };
}
