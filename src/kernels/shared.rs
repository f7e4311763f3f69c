//! One mutable slice written by several threads, each its own part: what lets a parallel loop fill columns of a row-major
//! matrix.
#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::ops::Range;

/// A slice that is borrowed mutably for `'a` and handed out in parts.
#[derive(Debug)]
pub(crate) struct SharedMut<'a, T> {
    base: *mut T,
    len: usize,
    borrow: PhantomData<&'a mut [T]>,
}

// SAFETY: it stands for a `&mut [T]`, which may be sent where T may; parts are only handed out under `part`'s contract.
unsafe impl<T: Send> Send for SharedMut<'_, T> {}
// SAFETY: shared use hands out disjoint parts only (`part`'s contract), as `split_at_mut` would.
unsafe impl<T: Send> Sync for SharedMut<'_, T> {}

impl<'a, T> SharedMut<'a, T> {
    pub(crate) fn new(slice: &'a mut [T]) -> Self {
        Self { base: slice.as_mut_ptr(), len: slice.len(), borrow: PhantomData }
    }

    /// The part `range`; panics when it leaves the slice.
    ///
    /// # Safety
    /// As long as the returned part lives, no other part that overlaps it may be alive.
    #[inline(always)]
    pub(crate) unsafe fn part(&self, range: Range<usize>) -> &'a mut [T] {
        assert!(range.start <= range.end && range.end <= self.len);
        // SAFETY: the range lies in the slice that `new` borrowed for `'a`; the caller keeps parts disjoint.
        unsafe { std::slice::from_raw_parts_mut(self.base.add(range.start), range.len()) }
    }
}
