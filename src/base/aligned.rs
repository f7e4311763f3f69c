//! Zeroed heap memory with an alignment of its own, for tensors that vendor libraries and vector kernels read. A large
//! block costs nothing until it is touched, so what a file says it needs cannot use up the machine.
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
    base: NonNull<u8>,
    len: usize,
    /// What was allocated; `base` is its first aligned byte.
    block: NonNull<u8>,
}

// SAFETY: the block is plain memory owned by this value; access through the base address is governed by the `&`/`&mut`
// rules that each user of `as_ptr` states.
unsafe impl Send for AlignedBuffer {}
// SAFETY: as above; `&AlignedBuffer` alone gives no access to the bytes except through an unsafe dereference.
unsafe impl Sync for AlignedBuffer {}

impl AlignedBuffer {
    /// Allocates `len` zero bytes. Running out of memory is an error, not an abort.
    pub fn zeroed(len: usize) -> Result<Self> {
        let layout = Self::layout(len)?;
        // SAFETY: the layout has a non-zero size.
        let block = unsafe { alloc_zeroed(layout) };
        let block = NonNull::new(block)
            .ok_or_else(|| Error::new(Status::MemoryAllocationFailed, format!("cannot allocate {len} bytes")))?;
        // SAFETY: the block is ALIGNMENT bytes longer than `len`, so the next aligned byte and `len` more are inside.
        let base = unsafe { block.add(block.align_offset(ALIGNMENT)) };
        Ok(Self { base, len, block })
    }

    /// The allocator gets fresh pages from the system without writing to them only when it need not align them, so the
    /// block is aligned within its size.
    fn layout(len: usize) -> Result<Layout> {
        let size = len.checked_add(ALIGNMENT).and_then(|size| Layout::from_size_align(size, 1).ok());
        size.ok_or_else(|| {
            Error::new(Status::MemoryAllocationFailed, format!("{len} bytes is more than this machine can address"))
        })
    }

    /// First byte of the block; valid for `len` bytes as long as the value lives.
    pub fn as_ptr(&self) -> *mut u8 {
        self.base.as_ptr()
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
        let layout = Self::layout(self.len).expect("checked when allocated");
        // SAFETY: `block` came from `alloc_zeroed` with this very layout and is freed once.
        unsafe { dealloc(self.block.as_ptr(), layout) }
    }
}

/// Zeroed bytes at the start of a page with one owner, for what is large and touched in part: pages that nobody wrote
/// to take no memory.
#[derive(Debug)]
pub struct ZeroedBytes(memmap2::MmapMut);

impl ZeroedBytes {
    /// `len` zero bytes. Running out of memory is an error, not an abort.
    pub fn new(len: usize) -> Result<Self> {
        let fail = |error| {
            let message = format!("cannot allocate {len} bytes: {error}");
            Error::new(Status::MemoryAllocationFailed, message)
        };
        // Allocators write the zeros themselves where they take up old memory.
        memmap2::MmapMut::map_anon(len).map(Self).map_err(fail)
    }
}

impl std::ops::Deref for ZeroedBytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl std::ops::DerefMut for ZeroedBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_zeroed_and_aligned() {
        for len in [0, 1, 63, 64, 100, 4097] {
            let buffer = AlignedBuffer::zeroed(len).unwrap();
            assert_eq!(buffer.as_ptr() as usize % ALIGNMENT, 0);
            // SAFETY: the block has `len` initialised bytes.
            let bytes = unsafe { std::slice::from_raw_parts(buffer.as_ptr(), buffer.len()) };
            assert!(bytes.len() == len && bytes.iter().all(|&b| b == 0));
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn memory_that_is_not_touched_is_not_taken() {
        let resident_pages = || -> usize {
            let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
            statm.split(' ').nth(1).unwrap().parse().unwrap()
        };
        let before = resident_pages();
        let buffer = AlignedBuffer::zeroed(512 << 20).unwrap();
        let taken = resident_pages().saturating_sub(before);
        // Pages have at least 4 KiB; other tests of the process may take some meanwhile.
        assert!(taken < (256 << 20) / 4096, "{taken} pages for {} bytes", buffer.len());
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
