//! A block of memory that the CPU and the DSP both see, known to vendors' libraries by a descriptor and an offset.
#![allow(unsafe_code)]

use super::rpc_mem::{RpcMem, RpcMemError};
use crate::base::aligned::ALIGNMENT;
use std::ptr::NonNull;
use std::sync::Arc;

/// What a backend does that cannot use shared memory as such.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unshared {
    /// It uses the bytes like any others.
    Copies,
    /// It fails.
    Fails,
}

/// A zeroed block from libcdsprpc.so. It is freed with its last owner: the arena that lies in it, and every backend that
/// has told its vendor's library of it.
#[derive(Debug)]
pub struct SharedMemory {
    library: Arc<RpcMem>,
    /// What was allocated.
    block: NonNull<u8>,
    block_len: usize,
    /// Distance of the first aligned byte from the block's start.
    start: usize,
    len: usize,
    fd: i32,
    unshared: Unshared,
}

// SAFETY: the block is plain memory owned by this value; access through the address is governed by the `&`/`&mut` rules
// of the arena, its one user. The library's functions may be called from any thread.
unsafe impl Send for SharedMemory {}
// SAFETY: as above; `&SharedMemory` alone gives no access to the bytes except through an unsafe dereference.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// Allocates `len` zero bytes, aligned to 64 wherever the library puts its blocks.
    pub fn allocate(library: &Arc<RpcMem>, len: usize, unshared: Unshared) -> Result<Self, RpcMemError> {
        let block_len = len.checked_add(ALIGNMENT).ok_or(RpcMemError::TooLarge { bytes: len })?;
        let block = library.alloc(block_len)?;
        // SAFETY: the library says that the block has this many bytes, and nobody else knows it yet.
        unsafe { std::ptr::write_bytes(block.base.as_ptr(), 0, block_len) };
        let start = block.base.as_ptr().align_offset(ALIGNMENT);
        Ok(Self { library: Arc::clone(library), block: block.base, block_len, start, len, fd: block.fd, unshared })
    }

    /// First byte; valid for [`len`](Self::len) bytes as long as the value lives.
    pub fn as_ptr(&self) -> *mut u8 {
        self.block.as_ptr().wrapping_add(self.start)
    }

    /// Size in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True when it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Descriptor of the whole block.
    pub fn fd(&self) -> i32 {
        self.fd
    }

    /// Size in bytes of the whole block, which begins at most 63 bytes before [`as_ptr`](Self::as_ptr).
    pub fn block_len(&self) -> usize {
        self.block_len
    }

    /// What a backend does that cannot use it as shared memory.
    pub fn unshared(&self) -> Unshared {
        self.unshared
    }

    /// Where in the block `len` bytes at `address` lie; `None` when they do not lie in this memory.
    pub fn offset_of(&self, address: *const u8, len: usize) -> Option<usize> {
        let at = address.addr().checked_sub(self.as_ptr().addr())?;
        (at <= self.len && self.len - at >= len).then_some(self.start + at)
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: the block is this value's own; whoever used it held this value and is gone.
        unsafe { self.library.free(self.block) }
    }
}
