//! The few functions of the C library that loading and logging need.

use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

#[repr(C)]
struct DlInfo {
    file_name: *const c_char,
    base: *mut c_void,
    symbol_name: *const c_char,
    symbol: *mut c_void,
}

unsafe extern "C" {
    fn dladdr(address: *const c_void, info: *mut DlInfo) -> c_int;
    pub(super) fn vsnprintf(buffer: *mut c_char, size: usize, format: *const c_char, args: *mut c_void) -> c_int;
    pub(super) fn fflush(stream: *mut c_void) -> c_int;
    pub(super) fn dup2(from: c_int, to: c_int) -> c_int;
}

/// The file that the code or data at `address` was loaded from.
pub(super) fn file_of(address: *const c_void) -> Option<PathBuf> {
    let mut info = DlInfo {
        file_name: std::ptr::null(),
        base: std::ptr::null_mut(),
        symbol_name: std::ptr::null(),
        symbol: std::ptr::null_mut(),
    };
    // SAFETY: dladdr takes any address and only writes to `info`.
    let found = unsafe { dladdr(address, &mut info) } != 0;
    if !found || info.file_name.is_null() {
        return None;
    }
    // SAFETY: on success `file_name` is a C string that lives as long as the file is loaded, which it is: the caller
    // has an address in it.
    let name = unsafe { CStr::from_ptr(info.file_name) };
    std::path::absolute(OsStr::from_bytes(name.to_bytes())).ok()
}
