//! Zeroed heap memory with an alignment of its own, for tensors that vendor libraries and vector kernels read.
#![allow(unsafe_code)]

use crate::error::{Error, Result, Status};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

/// Alignment of every buffer, in bytes: a cache line, and the widest vector register.
pub const ALIGNMENT: usize = 64;

/// An owned, zeroed, 64-byte-aligned block. It hands out its base address, and callers that share it (tensors of one
/// method, slices of one arena) derive everything from that address, so no Rust reference covers the whole block.
#[derive(Debug)]
pub struct AlignedBuffer {
    block: NonNull<u8>,
    skip: usize,
    len: usize,
}

// SAFETY: the block is plain memory owned by this value; access through the base address is governed by the `&`/`&mut`
// rules that each user of `as_ptr` states.
unsafe impl Send for AlignedBuffer {}
// SAFETY: as above; `&AlignedBuffer` alone gives no access to the bytes except through an unsafe dereference.
unsafe impl Sync for AlignedBuffer {}

impl AlignedBuffer {
    /// Allocates `len` zero bytes. Running out of memory is an error, not an abort.
    pub fn zeroed(len: usize) -> Result<Self> {
        let (block, skip) = zeroed_block(len)?;
        Ok(Self { block, skip, len })
    }

    /// First byte of the block; valid for `len` bytes as long as the value lives.
    pub fn as_ptr(&self) -> *mut u8 {
        // `skip` is less than what the block has beyond `len`.
        self.block.as_ptr().wrapping_add(self.skip)
    }

    /// Size in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True when it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Drop for AlignedBuffer {
    fn drop(&mut self) {
        // SAFETY: the block came from `zeroed_block` for this length and is freed once.
        unsafe { free_block(self.block, self.len) }
    }
}

/// A block with `len` zero bytes after the returned offset, which is below ALIGNMENT and makes them aligned. Pages that
/// nobody writes to take no memory: asking the allocator for the alignment would make it write the zeros.
fn zeroed_block(len: usize) -> Result<(NonNull<u8>, usize)> {
    let layout = layout(len)?;
    // SAFETY: the layout is never empty (`layout` adds ALIGNMENT).
    let block = unsafe { alloc_zeroed(layout) };
    let block = NonNull::new(block)
        .ok_or_else(|| Error::new(Status::MemoryAllocationFailed, format!("cannot allocate {len} bytes")))?;
    Ok((block, block.as_ptr().addr().wrapping_neg() % ALIGNMENT))
}

/// # Safety
/// `block` came from `zeroed_block(len)` and nobody uses it any more.
unsafe fn free_block(block: NonNull<u8>, len: usize) {
    let layout = layout(len).expect("checked when allocated");
    // SAFETY: the caller's promise; the layout is that of the allocation.
    unsafe { dealloc(block.as_ptr(), layout) }
}

fn layout(len: usize) -> Result<Layout> {
    let too_much = || {
        let message = format!("{len} bytes is more than this machine can address");
        Error::new(Status::MemoryAllocationFailed, message)
    };
    let padded = len.checked_add(ALIGNMENT).ok_or_else(too_much)?;
    Layout::from_size_align(padded, 1).map_err(|_| too_much())
}

/// Zeroed bytes at a 64-byte boundary with one owner, for what is large and touched in part: pages that nobody wrote
/// to take no memory.
#[derive(Debug)]
pub struct ZeroedBytes {
    block: NonNull<u8>,
    skip: usize,
    len: usize,
}

// SAFETY: the block is plain memory that this value alone owns; it is reached through `&self` and `&mut self` only.
unsafe impl Send for ZeroedBytes {}
// SAFETY: as above, `&self` only reads.
unsafe impl Sync for ZeroedBytes {}

impl ZeroedBytes {
    /// `len` zero bytes. Running out of memory is an error, not an abort.
    pub fn new(len: usize) -> Result<Self> {
        let (block, skip) = zeroed_block(len)?;
        Ok(Self { block, skip, len })
    }
}

impl std::ops::Deref for ZeroedBytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the block has `len` + ALIGNMENT initialised bytes, `skip` is below ALIGNMENT, and the bytes are
        // borrowed as `self` is.
        unsafe { std::slice::from_raw_parts(self.block.as_ptr().add(self.skip), self.len) }
    }
}

impl std::ops::DerefMut for ZeroedBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; `&mut self` makes the borrow the only one.
        unsafe { std::slice::from_raw_parts_mut(self.block.as_ptr().add(self.skip), self.len) }
    }
}

impl Drop for ZeroedBytes {
    fn drop(&mut self) {
        // SAFETY: as in `AlignedBuffer`.
        unsafe { free_block(self.block, self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_zeroed_and_aligned() {
        let buffer = AlignedBuffer::zeroed(100).unwrap();
        assert_eq!(buffer.as_ptr() as usize % ALIGNMENT, 0);
        // SAFETY: the block has 100 initialised bytes.
        let bytes = unsafe { std::slice::from_raw_parts(buffer.as_ptr(), buffer.len()) };
        assert!(bytes.iter().all(|&b| b == 0));
    }

    #[test]
    fn absurd_size_is_an_error() {
        assert_eq!(AlignedBuffer::zeroed(usize::MAX).unwrap_err().status(), Status::MemoryAllocationFailed);
        for len in [usize::MAX, isize::MAX as usize, 1 << 60] {
            assert_eq!(ZeroedBytes::new(len).unwrap_err().status(), Status::MemoryAllocationFailed);
        }
    }

    #[test]
    fn owned_bytes_are_zeroed_and_aligned() {
        for len in [0, 1, 64, 1000] {
            let mut bytes = ZeroedBytes::new(len).unwrap();
            assert_eq!(bytes.as_ptr() as usize % ALIGNMENT, 0);
            assert!(bytes.len() == len && bytes.iter().all(|&b| b == 0));
            bytes.fill(7);
            assert!(bytes.iter().all(|&b| b == 7));
        }
    }
}
