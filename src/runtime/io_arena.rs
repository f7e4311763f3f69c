//! One block of memory for every input, output and cache of a runner.
//!
//! The runner owns the arena and lends it to [`Module::execute`](super::Module::execute) by `&mut`, so the borrow
//! checker proves that nobody reads or writes an I/O buffer while a method runs. In between the runner works on slices
//! of it by checked ranges; nobody keeps a pointer but the module, which may use it only during `execute`.
#![allow(unsafe_code)]

use super::shared_memory::SharedMemory;
use crate::base::aligned::{ALIGNMENT, AlignedBuffer};
use crate::error::{Error, Result, Status};
use crate::tensor::Element;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A range of an arena, in bytes. Copyable, and checked against the arena at every use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IoSlice {
    /// First byte.
    pub offset: usize,
    /// Number of bytes.
    pub len: usize,
}

impl IoSlice {
    /// The part of `self` that `range` names, in bytes relative to its start; `None` when it sticks out.
    pub fn part(self, range: Range<usize>) -> Option<IoSlice> {
        (range.start <= range.end && range.end <= self.len)
            .then(|| IoSlice { offset: self.offset + range.start, len: range.end - range.start })
    }

    /// One past the last byte.
    pub fn end(self) -> usize {
        self.offset + self.len
    }
}

/// Where an arena's bytes are.
#[derive(Debug)]
enum Block {
    Heap(AlignedBuffer),
    Shared(Arc<SharedMemory>),
}

impl Block {
    #[inline]
    fn as_ptr(&self) -> *mut u8 {
        match self {
            Self::Heap(buffer) => buffer.as_ptr(),
            Self::Shared(memory) => memory.as_ptr(),
        }
    }

    #[inline]
    fn len(&self) -> usize {
        match self {
            Self::Heap(buffer) => buffer.len(),
            Self::Shared(memory) => memory.len(),
        }
    }
}

/// The memory itself.
#[derive(Debug)]
pub struct IoArena {
    buffer: Block,
    used: usize,
    id: u64,
}

impl IoArena {
    /// An arena of `capacity` zero bytes.
    pub fn new(capacity: usize) -> Result<Self> {
        Ok(Self::of(Block::Heap(AlignedBuffer::zeroed(capacity)?)))
    }

    /// An arena that lies in `memory` and fills it.
    pub fn in_shared_memory(memory: SharedMemory) -> Self {
        Self::of(Block::Shared(Arc::new(memory)))
    }

    fn of(buffer: Block) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self { buffer, used: 0, id: NEXT.fetch_add(1, Ordering::Relaxed) }
    }

    /// The memory shared with the DSP that the arena lies in; `None` on the heap. Backends that tell their vendor's
    /// library of it keep it as long as that library knows it.
    pub fn shared_memory(&self) -> Option<&Arc<SharedMemory>> {
        match &self.buffer {
            Block::Heap(_) => None,
            Block::Shared(memory) => Some(memory),
        }
    }

    /// Bytes that `alloc(len)` takes, alignment included.
    pub const fn footprint(len: usize) -> usize {
        len.next_multiple_of(ALIGNMENT)
    }

    /// Takes the next `len` bytes, aligned to 64.
    pub fn alloc(&mut self, len: usize) -> Result<IoSlice> {
        let offset = self.used;
        let end = len.checked_next_multiple_of(ALIGNMENT).and_then(|n| offset.checked_add(n));
        match end {
            Some(end) if offset + len <= self.buffer.len() => {
                self.used = end;
                Ok(IoSlice { offset, len })
            }
            _ => Err(Error::new(
                Status::MemoryAllocationFailed,
                format!("the I/O arena has {} bytes left, {len} asked", self.buffer.len().saturating_sub(offset)),
            )),
        }
    }

    /// Tells arenas apart: no two of a process share it.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Capacity in bytes.
    pub fn capacity(&self) -> usize {
        self.buffer.len()
    }

    /// The bytes of `slice`. Panics when it does not lie inside, like slice indexing.
    pub fn bytes(&self, slice: IoSlice) -> &[u8] {
        self.check(slice);
        // SAFETY: the range lies inside the block, and `&self` keeps everybody from writing to it: all writes go
        // through `&mut IoArena` (here and in `Module::execute`).
        unsafe { std::slice::from_raw_parts(self.buffer.as_ptr().add(slice.offset), slice.len) }
    }

    /// The bytes of `slice`, to write.
    pub fn bytes_mut(&mut self, slice: IoSlice) -> &mut [u8] {
        self.check(slice);
        // SAFETY: as in `bytes`; `&mut self` makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.buffer.as_ptr().add(slice.offset), slice.len) }
    }

    /// `slice` as numbers. Panics when its length or alignment does not fit `T`; both are facts of the layout.
    pub fn typed<T: Element>(&self, slice: IoSlice) -> &[T] {
        bytemuck::cast_slice(self.bytes(slice))
    }

    /// `slice` as numbers, to write.
    pub fn typed_mut<T: Element>(&mut self, slice: IoSlice) -> &mut [T] {
        bytemuck::cast_slice_mut(self.bytes_mut(slice))
    }

    /// Copies `from` to `to`; they may overlap. Panics when the lengths differ.
    pub fn copy(&mut self, from: IoSlice, to: IoSlice) {
        assert_eq!(from.len, to.len, "copy between slices of different length");
        self.check(from);
        self.check(to);
        let base = self.buffer.as_ptr();
        // SAFETY: both ranges lie inside the block, `&mut self` is exclusive, and `copy` allows overlap.
        unsafe { std::ptr::copy(base.add(from.offset), base.add(to.offset), from.len) }
    }

    /// Address of `slice` for a module's tensor table; `None` when it does not lie inside. May be dereferenced only
    /// while the arena is lent to `Module::execute`.
    pub(crate) fn address(&self, slice: IoSlice) -> Option<*mut u8> {
        let end = slice.offset.checked_add(slice.len)?;
        // The offset is inside the block, so plain wrapping arithmetic on the address is exact.
        (end <= self.buffer.len()).then(|| self.buffer.as_ptr().wrapping_add(slice.offset))
    }

    fn check(&self, slice: IoSlice) {
        let inside = slice.offset.checked_add(slice.len).is_some_and(|end| end <= self.buffer.len());
        assert!(inside, "{slice:?} is outside an arena of {} bytes", self.buffer.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocations_are_aligned_and_bounded() {
        let mut arena = IoArena::new(256).unwrap();
        let a = arena.alloc(3).unwrap();
        let b = arena.alloc(128).unwrap();
        assert_eq!((a.offset, b.offset), (0, 64));
        assert_eq!(arena.alloc(65).unwrap_err().status(), Status::MemoryAllocationFailed);
        arena.typed_mut::<u16>(b)[0] = 7;
        arena.copy(b.part(0..2).unwrap(), a.part(1..3).unwrap());
        assert_eq!(arena.bytes(a), [0, 7, 0]);
    }

    #[test]
    #[should_panic(expected = "outside an arena")]
    fn a_foreign_slice_panics() {
        IoArena::new(64).unwrap().bytes(IoSlice { offset: 60, len: 8 });
    }
}
