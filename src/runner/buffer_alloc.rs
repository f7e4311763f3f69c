//! BufferAlloc: one arena for every input, output and cache of a runner. Sizes are added up first and memory is taken
//! once, so nothing is sized by guess and every buffer is a checked range of the same block.

use super::config::{RunnerOptions, SharedBuffer};
use super::error::RunnerError;
use crate::error::Result;
use crate::log_warning;
use crate::runtime::{IoArena, IoSlice, RpcMem, SharedMemory, Unshared};
use std::path::Path;

/// Where the memory comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memory<'a> {
    /// The heap.
    ClientMem,
    /// Memory shared with the DSP.
    RpcMem {
        /// libcdsprpc.so; `None`: see [`RpcMem::load`].
        library: Option<&'a Path>,
        /// What backends do that cannot use it as such.
        unshared: Unshared,
    },
}

/// Adds up buffers, then takes the memory for all of them.
#[derive(Debug, Default)]
pub struct BufferAlloc {
    len: usize,
}

impl BufferAlloc {
    /// A place of `len` bytes in the arena that [`allocate`](Self::allocate) will make.
    pub fn reserve(&mut self, len: usize) -> Result<IoSlice, RunnerError> {
        let slice = IoSlice { offset: self.len, len };
        // Half of the address space is the most that an allocation may take.
        let end = slice.offset.checked_add(len).filter(|&end| end < isize::MAX as usize - IoArena::footprint(1));
        self.len = IoArena::footprint(end.ok_or(RunnerError::TooLarge)?);
        Ok(slice)
    }

    /// The arena with every reserved place, zeroed.
    pub fn allocate(&self, memory: Memory<'_>) -> Result<IoArena> {
        let mut arena = match memory {
            Memory::ClientMem => IoArena::new(self.len)?,
            Memory::RpcMem { library, unshared } => {
                let memory = SharedMemory::allocate(&RpcMem::load(library)?, self.len, unshared)?;
                IoArena::in_shared_memory(memory)
            }
        };
        arena.alloc(self.len)?;
        Ok(arena)
    }

    /// The same in the memory that `options` ask for. Where shared memory is only preferred and cannot be had, a warning
    /// says why, and the heap is taken.
    pub fn allocate_as(&self, options: &RunnerOptions) -> Result<IoArena> {
        let library = options.rpcmem_lib.as_deref();
        match options.shared_buffer {
            SharedBuffer::Off => self.allocate(Memory::ClientMem),
            SharedBuffer::Require => self.allocate(Memory::RpcMem { library, unshared: Unshared::Fails }),
            SharedBuffer::Prefer => {
                self.allocate(Memory::RpcMem { library, unshared: Unshared::Copies }).or_else(|error| {
                    log_warning!("shared_buffer: {}; inputs and outputs are copied", error.chain());
                    self.allocate(Memory::ClientMem)
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Status;
    use crate::runtime::RpcMemError;

    #[test]
    fn places_are_aligned_disjoint_and_inside() {
        let mut buffers = BufferAlloc::default();
        let slices = [1, 64, 65, 0, 3].map(|len| buffers.reserve(len).unwrap());
        let arena = buffers.allocate(Memory::ClientMem).unwrap();
        for pair in slices.windows(2) {
            assert!(pair[0].end() <= pair[1].offset && pair[1].offset % 64 == 0);
        }
        assert!(slices[4].end() <= arena.capacity());
    }

    #[test]
    fn absurd_sizes_are_refused() {
        let mut buffers = BufferAlloc::default();
        buffers.reserve(1 << 40).unwrap();
        assert_eq!(buffers.reserve(usize::MAX), Err(RunnerError::TooLarge));
        assert_eq!(buffers.reserve(isize::MAX as usize), Err(RunnerError::TooLarge));
    }

    #[test]
    fn oc6_shared_memory_that_is_not_there_is_a_typed_error_or_the_heap_as_asked() {
        let dir = tempfile::tempdir().unwrap();
        let mut buffers = BufferAlloc::default();
        buffers.reserve(100).unwrap();
        let rpcmem_lib = Some(dir.path().to_owned());
        let mut options = RunnerOptions { shared_buffer: SharedBuffer::Require, rpcmem_lib, ..Default::default() };
        let error = buffers.allocate_as(&options).unwrap_err();
        assert_eq!(error.status(), Status::LibraryUnavailable);
        assert!(matches!(error.find(), Some(RpcMemError::NotLoaded { .. })), "{error:?}");
        for other in [SharedBuffer::Prefer, SharedBuffer::Off] {
            options.shared_buffer = other;
            let arena = buffers.allocate_as(&options).unwrap();
            assert!(arena.shared_memory().is_none() && arena.capacity() >= 100);
        }
    }
}
