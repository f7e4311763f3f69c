//! From C pointers to Rust references, with the checks that can be made: NULL, lengths, UTF-8.

use crate::error::{Error, Result, Status};
use std::ffi::c_char;

/// The object behind `pointer`; NULL is an error that names the parameter.
///
/// # Safety
/// `pointer` is NULL, or points to a `T` that lives and is not mutably borrowed for `'a`.
pub(super) unsafe fn reference<'a, T>(pointer: *const T, parameter: &str) -> Result<&'a T> {
    // SAFETY: the caller's promise; NULL gives `None`.
    unsafe { pointer.as_ref() }.ok_or_else(|| null(parameter))
}

/// `len` elements at `pointer`, which is not looked at when `len` is 0: C passes NULL there.
///
/// # Safety
/// `pointer` is NULL or points to `len` elements that live and do not change for `'a`.
pub(super) unsafe fn slice<'a, T>(pointer: *const T, len: usize, parameter: &str) -> Result<&'a [T]> {
    if len == 0 {
        return Ok(&[]);
    }
    if pointer.is_null() {
        return Err(null(parameter));
    }
    if !pointer.is_aligned() || len.checked_mul(size_of::<T>()).is_none_or(|bytes| bytes > isize::MAX as usize) {
        return Err(Error::new(Status::InvalidArgument, format!("`{parameter}`: {len} elements cannot be there")));
    }
    // SAFETY: not NULL, aligned and of a possible size, as just checked; the rest is the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(pointer, len) })
}

/// `len` bytes of UTF-8 at `pointer`, without a NUL at the end; a NUL inside is part of the text.
///
/// # Safety
/// As [`slice`].
pub(super) unsafe fn text<'a>(pointer: *const c_char, len: usize, parameter: &str) -> Result<&'a str> {
    // SAFETY: the caller's promise; c_char and u8 have one layout.
    let bytes = unsafe { slice(pointer.cast::<u8>(), len, parameter) }?;
    std::str::from_utf8(bytes)
        .map_err(|error| Error::from_source(Status::InvalidArgument, error).context(format!("`{parameter}`")))
}

/// Fails when an out-parameter is NULL, before any work is done for it.
pub(super) fn check_out<T>(pointer: *mut T, parameter: &str) -> Result<()> {
    if pointer.is_null() { Err(null(parameter)) } else { Ok(()) }
}

fn null(parameter: &str) -> Error {
    Error::new(Status::InvalidArgument, format!("`{parameter}` is NULL"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr;

    #[test]
    fn null_is_named() {
        // SAFETY: NULL is allowed.
        let error = unsafe { reference(ptr::null::<u32>(), "options") }.unwrap_err();
        assert_eq!((error.status(), error.chain().as_str()), (Status::InvalidArgument, "`options` is NULL"));
        assert!(check_out(ptr::null_mut::<u32>(), "out").is_err());
    }

    #[test]
    fn empty_slice_may_be_null_and_others_may_not() {
        // SAFETY: NULL is allowed.
        unsafe {
            assert_eq!(slice(ptr::null::<u64>(), 0, "tokens").unwrap(), [0u64; 0]);
            assert!(slice(ptr::null::<u64>(), 1, "tokens").is_err());
            assert_eq!(text(ptr::null(), 0, "prompt").unwrap(), "");
        }
    }

    #[test]
    fn impossible_length_is_refused() {
        let one = 1u64;
        // SAFETY: refused before the elements are looked at.
        assert!(unsafe { slice(&one, usize::MAX / 4, "tokens") }.is_err());
    }

    #[test]
    fn bytes_that_are_no_utf8_are_refused_with_their_place() {
        let bytes = b"ab\xff";
        // SAFETY: three live bytes.
        let error = unsafe { text(bytes.as_ptr().cast(), bytes.len(), "prompt") }.unwrap_err();
        assert_eq!(error.status(), Status::InvalidArgument);
        assert!(error.chain().contains("`prompt`") && error.chain().contains("index 2"), "{}", error.chain());
    }
}
