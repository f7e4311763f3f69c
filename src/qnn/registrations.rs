//! Where a delegate's tensors lie in memory shared with the DSP, as the library has been told: by a handle for each
//! tensor and place. Handles are kept, for most tensors never move; those that do take new ones and give up the oldest.

use super::context::Context;
use super::mem_api::SharedPlace;
use super::result::QnnError;
use super::sys;
use crate::log_warning;
use crate::runtime::{SharedMemory, Unshared};
use std::sync::Arc;

/// Most places of one tensor that are registered at a time. A cache moves at each step with ShiftPointer; everything
/// else stays where it is.
pub(super) const MAX_PLACES: usize = 4;

/// A handle with all that must outlive it.
struct Registration {
    handle: sys::Qnn_MemHandle_t,
    offset: usize,
    context: Arc<Context>,
    _memory: Arc<SharedMemory>,
}

// SAFETY: the handle is only given to the library under `QnnLock`, which makes calls one at a time; the library does
// not care from which thread.
unsafe impl Send for Registration {}

impl Drop for Registration {
    fn drop(&mut self) {
        // SAFETY: the handle is this value's own, and it holds the context; tensors that bear the handle are written
        // anew before each execution.
        unsafe { self.context.deregister(self.handle) }
    }
}

/// What is known of one tensor.
#[derive(Default)]
struct Places {
    /// The last used first.
    known: Vec<Registration>,
    /// The library has refused a place.
    refused: bool,
}

/// All handles of a delegate.
pub(super) struct Registrations {
    context: Arc<Context>,
    memory: Option<Arc<SharedMemory>>,
    /// Inputs, then outputs.
    tensors: Vec<Places>,
}

impl Registrations {
    /// Without memory, for this many inputs and outputs.
    pub(super) fn new(context: &Arc<Context>, tensors: usize) -> Self {
        let tensors = std::iter::repeat_with(Places::default).take(tensors).collect();
        Self { context: Arc::clone(context), memory: None, tensors }
    }

    /// Deregisters everything; from now on places are looked for in `memory`.
    pub(super) fn share(&mut self, memory: Option<&Arc<SharedMemory>>) {
        self.tensors.iter_mut().for_each(|places| *places = Places::default());
        self.memory = memory.cloned();
    }

    /// The handle of tensor `index` at `address`. `None` when it is to be a client buffer: it does not lie in shared
    /// memory, or the library does not take it there.
    #[inline]
    pub(super) fn handle(
        &mut self,
        index: usize,
        tensor: &sys::Qnn_TensorV1_t,
        (address, len): (*const u8, usize),
    ) -> Result<Option<sys::Qnn_MemHandle_t>, QnnError> {
        let Some(memory) = &self.memory else { return Ok(None) };
        let Some(offset) = memory.offset_of(address, len) else { return Ok(None) };
        let places = &mut self.tensors[index];
        match places.known.iter().position(|known| known.offset == offset) {
            Some(0) => {}
            Some(at) => places.known[..=at].rotate_right(1),
            None if places.refused => return Ok(None),
            None => {
                places.known.truncate(MAX_PLACES - 1);
                let place = SharedPlace { fd: memory.fd(), block_len: memory.block_len(), offset };
                // SAFETY: the delegate's tensor has valid dimensions, and the registration holds context and memory.
                match unsafe { self.context.register(tensor, place) } {
                    Ok(handle) => {
                        let (context, memory) = (Arc::clone(&self.context), Arc::clone(memory));
                        places.known.insert(0, Registration { handle, offset, context, _memory: memory });
                    }
                    Err(error) if memory.unshared() == Unshared::Copies => {
                        places.refused = true;
                        self.warn(&error);
                        return Ok(None);
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(Some(self.tensors[index].known[0].handle))
    }

    /// Once for all tensors that have been refused in this memory.
    #[cold]
    fn warn(&self, error: &QnnError) {
        if self.tensors.iter().filter(|places| places.refused).count() == 1 {
            log_warning!("shared_buffer: {error}; such tensors are copied");
        }
    }
}
