//! BufferAlloc: one arena for every input, output and cache of a runner. Sizes are added up first and memory is taken
//! once, so nothing is sized by guess and every buffer is a checked range of the same block.

use super::error::RunnerError;
use crate::error::Result;
use crate::runtime::{IoArena, IoSlice};

/// Where the memory comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    /// The heap.
    ClientMem,
    /// Memory shared with the DSP.
    RpcMem,
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
    pub fn allocate(self, memory: Memory) -> Result<IoArena> {
        if memory == Memory::RpcMem {
            return Err(RunnerError::SharedBuffer.into());
        }
        let mut arena = IoArena::new(self.len)?;
        arena.alloc(self.len)?;
        Ok(arena)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Status;

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
    fn oc6_shared_memory_is_a_typed_error_and_no_null_pointer() {
        let error = BufferAlloc::default().allocate(Memory::RpcMem).unwrap_err();
        assert_eq!(error.status(), Status::NotSupported);
        assert_eq!(error.find::<RunnerError>(), Some(&RunnerError::SharedBuffer));
    }
}
