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

/// A buffer of the caller's for results whose number it asks for first.
pub(super) struct Buffer<T> {
    pub(super) data: *mut T,
    pub(super) capacity: usize,
    /// NULL when the caller does not want to know.
    pub(super) out_count: *mut usize,
}

impl<T: Copy> Buffer<T> {
    /// Fails where a buffer cannot be one, before any work is done for it.
    pub(super) fn check(&self) -> Result<()> {
        match (self.data.is_null(), self.capacity) {
            (true, 1..) => Err(null("buffer")),
            (false, _) if !self.data.is_aligned() => {
                Err(Error::new(Status::InvalidArgument, "`buffer` is not aligned to its elements"))
            }
            _ => Ok(()),
        }
    }

    /// Whether only the number is asked for.
    pub(super) fn asks(&self) -> bool {
        self.data.is_null()
    }

    /// Gives the number alone.
    ///
    /// # Safety
    /// `out_count` is NULL or points to a size_t.
    pub(super) unsafe fn count(&self, count: usize) {
        if !self.out_count.is_null() {
            // SAFETY: the caller's promise.
            unsafe { self.out_count.write(count) };
        }
    }

    /// Copies `items`, and gives their number. Only the number when `data` is NULL; nothing when they do not fit.
    ///
    /// # Safety
    /// `data` is NULL or has room for `capacity` elements, apart from `items`; `out_count` is NULL or points to a size_t.
    pub(super) unsafe fn fill(&self, items: &[T]) -> Result<()> {
        self.check()?;
        if !self.asks() {
            if items.len() > self.capacity {
                let message = format!("`buffer` has room for {} elements, {} are needed", self.capacity, items.len());
                return Err(Error::new(Status::InvalidArgument, message));
            }
            // SAFETY: not NULL, aligned, and with room for that many; the rest is the caller's promise.
            unsafe { std::ptr::copy_nonoverlapping(items.as_ptr(), self.data, items.len()) };
        }
        // SAFETY: the caller's promise.
        unsafe { self.count(items.len()) };
        Ok(())
    }
}

impl Buffer<c_char> {
    /// Copies `text` and a NUL, which counts. As [`Buffer::fill`].
    ///
    /// # Safety
    /// As [`Buffer::fill`].
    pub(super) unsafe fn fill_text(&self, text: &str) -> Result<()> {
        let bytes: Vec<c_char> = text.bytes().chain([0]).map(|byte| byte as c_char).collect();
        // SAFETY: the caller's promise.
        unsafe { self.fill(&bytes) }
    }
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
    fn a_buffer_is_filled_whole_or_not_at_all() {
        let (mut room, mut count) = ([9u64; 4], 0);
        let buffer = |data, capacity, out_count| Buffer { data, capacity, out_count };
        // SAFETY: NULL, or live with the room that is said.
        unsafe {
            buffer(ptr::null_mut(), 0, &mut count).fill(&[1, 2, 3]).unwrap();
            assert_eq!(count, 3);
            let short = buffer(room.as_mut_ptr(), 2, &mut count).fill(&[1, 2, 3, 4]).unwrap_err();
            assert_eq!(short.status(), Status::InvalidArgument);
            assert!(short.chain().contains("room for 2") && short.chain().contains("4 are"), "{}", short.chain());
            assert_eq!((room, count), ([9; 4], 3));
            buffer(room.as_mut_ptr(), 4, ptr::null_mut()).fill(&[1, 2, 3]).unwrap();
            assert_eq!(room, [1, 2, 3, 9]);
            let text = "ab";
            let mut chars = [7 as c_char; 3];
            Buffer { data: chars.as_mut_ptr(), capacity: 3, out_count: &mut count }.fill_text(text).unwrap();
            assert_eq!((chars.map(|c| c as u8), count), (*b"ab\0", 3));
        }
        assert!(buffer(ptr::null_mut(), 1, ptr::null_mut()).check().is_err());
        assert!(buffer(room.as_mut_ptr().cast::<u8>().wrapping_add(1).cast(), 1, ptr::null_mut()).check().is_err());
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
