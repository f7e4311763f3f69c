//! The bytes behind a method's tensors: constants of the program, planned buffers of the method.
#![allow(unsafe_code)]

use super::error::RuntimeError;
use super::external::External;
use super::shared_buffers::{PlannedBuffer, SharedBuffers};
use super::tensor::Tensor;
use crate::base::aligned::AlignedBuffer;
use crate::error::Result;
use crate::pte::{Blob, ExecutionPlan, Program, TensorData, TensorValue};
use crate::tensor::{MAX_RANK, element_count};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Most bytes of planned memory that one method may ask for.
pub const MAX_PLANNED_BYTES: u64 = 16 << 30;

/// What the methods of a module have in common.
#[derive(Default)]
pub(super) struct Common {
    /// Constants that do not lie aligned in the file, copied; by address and length.
    copies: BTreeMap<(usize, usize), Arc<AlignedBuffer>>,
    buffers: SharedBuffers,
}

/// Keeps alive, and finds again, all memory of a method that is not the caller's.
pub(super) struct Memory {
    program: Arc<Program>,
    /// By the program's buffer number.
    planned: Vec<PlannedBuffer>,
    copies: Vec<Arc<AlignedBuffer>>,
    external: Vec<Blob>,
}

impl Memory {
    /// Allocates the planned buffers of a method, zeroed, or takes those that another method shares with it.
    pub(super) fn new(program: &Arc<Program>, plan: &ExecutionPlan, common: &mut Common) -> Result<Self> {
        let sizes = &plan.non_const_buffer_sizes;
        let bytes = sizes.iter().fold(0u64, |sum, &size| sum.saturating_add(size));
        if bytes > MAX_PLANNED_BYTES {
            return Err(RuntimeError::PlannedTooLarge { bytes, max: MAX_PLANNED_BYTES }.into());
        }
        let planned = (0..sizes.len() as u32).map(|index| common.buffers.buffer(program, plan, index));
        let planned = planned.collect::<Result<_>>()?;
        Ok(Self { program: Arc::clone(program), planned, copies: Vec::new(), external: Vec::new() })
    }

    /// The run-time form of a tensor of the program: bound when it is a constant or planned, with its initial contents.
    pub(super) fn tensor(&mut self, value: &TensorValue, external: &External, common: &mut Common) -> Result<Tensor> {
        if value.sizes.len() > MAX_RANK {
            return Err(RuntimeError::RankTooLarge { rank: value.sizes.len(), max: MAX_RANK }.into());
        }
        let bytes = element_count(&value.sizes)? * value.dtype.size();
        let mut tensor = Tensor::from_program(value);
        match value.data {
            TensorData::Unplanned => {}
            TensorData::Constant { index } => self.bind_constant(&mut tensor, index, bytes, common)?,
            TensorData::Planned { buffer, offset, initial } => {
                self.bind_planned(&mut tensor, buffer, offset, bytes)?;
                if let Some((segment, index)) = initial {
                    let blob =
                        self.program.mutable_data.get(segment as usize).and_then(|blobs| blobs.get(index as usize));
                    let blob = blob.ok_or(RuntimeError::NoInitialContents { segment, index })?;
                    self.fill(&mut tensor, buffer, blob)?;
                }
            }
            TensorData::External => {
                let blob = external.tensor(value)?;
                self.bind_blob(&mut tensor, blob, bytes, common)?;
                self.external.push(blob.clone());
            }
            TensorData::ExternalMutable { buffer, offset } => {
                let blob = external.tensor(value)?;
                self.bind_planned(&mut tensor, buffer, offset, bytes)?;
                self.fill(&mut tensor, buffer, blob)?;
            }
        }
        Ok(tensor)
    }

    fn bind_constant(&mut self, tensor: &mut Tensor, index: u32, bytes: usize, common: &mut Common) -> Result<()> {
        let Some(blob) = self.program.constants.get(index as usize).cloned() else {
            let len = self.program.constants.len();
            return Err(RuntimeError::OutOfRange { what: "constant", index: index.into(), len }.into());
        };
        if blob.len() < bytes {
            return Err(RuntimeError::ConstantTooShort { index, have: blob.len(), need: bytes }.into());
        }
        self.bind_blob(tensor, &blob, bytes, common)
    }

    /// `blob` has at least `bytes` bytes, and the caller keeps it alive in `program` or `external`.
    fn bind_blob(&mut self, tensor: &mut Tensor, blob: &Blob, bytes: usize, common: &mut Common) -> Result<()> {
        let mut data = blob.as_ptr().cast_mut();
        if !(data as usize).is_multiple_of(tensor.dtype.size()) {
            let key = (data as usize, blob.len());
            let copy = match common.copies.get(&key) {
                Some(copy) => Arc::clone(copy),
                None => {
                    let copy = AlignedBuffer::zeroed(blob.len())?;
                    // SAFETY: the new block has `blob.len()` bytes, and nothing else refers to it.
                    unsafe { std::ptr::copy_nonoverlapping(blob.as_ptr(), copy.as_ptr(), blob.len()) };
                    Arc::clone(common.copies.entry(key).or_insert(Arc::new(copy)))
                }
            };
            data = copy.as_ptr();
            self.copies.push(copy);
        }
        // SAFETY: `program`, `external` or `copies` keeps the bytes alive as long as the method, nobody writes to them,
        // their number was checked by the callers and their alignment above.
        unsafe { tensor.bind(data, bytes, false) };
        Ok(())
    }

    fn bind_planned(&self, tensor: &mut Tensor, buffer: u32, offset: u64, bytes: usize) -> Result<()> {
        let Some(slot) = self.planned.get(buffer as usize) else {
            let len = self.planned.len();
            return Err(RuntimeError::OutOfRange { what: "planned buffer", index: buffer.into(), len }.into());
        };
        let slot = slot.memory.as_deref();
        let len = slot.map_or(0, AlignedBuffer::len);
        let start = usize::try_from(offset).ok().filter(|start| start.checked_add(bytes).is_some_and(|end| end <= len));
        let Some(start) = start else {
            return Err(RuntimeError::PlannedOutside { buffer, offset, bytes, len }.into());
        };
        if !start.is_multiple_of(tensor.dtype.size()) {
            return Err(RuntimeError::PlannedUnaligned { buffer, offset, dtype: tensor.dtype }.into());
        }
        // An empty buffer can only hold an empty tensor, which any address fits.
        let base = slot.map_or(std::ptr::without_provenance_mut(64), AlignedBuffer::as_ptr);
        // SAFETY: `start + bytes` lies inside the buffer, which lives as long as the method and which only methods of
        // its module touch, one at a time, for `execute` has the module by `&mut`; base and offset are aligned to the
        // element.
        unsafe { tensor.bind(base.wrapping_add(start), bytes, true) };
        Ok(())
    }

    /// Writes the initial contents of a tensor of planned buffer `buffer`, unless another method works on it already.
    fn fill(&self, tensor: &mut Tensor, buffer: u32, blob: &Blob) -> Result<()> {
        let target = tensor.bytes_mut()?;
        let need = target.len();
        let source = blob.get(..need).ok_or(RuntimeError::InitialTooShort { have: blob.len(), need })?;
        if self.planned.get(buffer as usize).is_some_and(|planned| !planned.in_use) {
            target.copy_from_slice(source);
        }
        Ok(())
    }

    /// Planned buffer `index`, if it has bytes.
    pub(super) fn planned_buffer(&self, index: u32) -> Option<&Arc<AlignedBuffer>> {
        self.planned.get(index as usize)?.memory.as_ref()
    }

    /// All planned buffers with bytes.
    pub(super) fn planned_buffers(&self) -> impl Iterator<Item = &Arc<AlignedBuffer>> {
        self.planned.iter().filter_map(|buffer| buffer.memory.as_ref())
    }

    /// Constants that were copied.
    pub(super) fn copies(&self) -> impl Iterator<Item = &Arc<AlignedBuffer>> {
        self.copies.iter()
    }

    /// The bytes of `tensor` when they lie in this memory, `None` when they are the caller's.
    pub(super) fn find(&self, tensor: &Tensor) -> Option<&[u8]> {
        let (start, len) = (tensor.address() as usize, tensor.byte_len());
        // An empty tensor may have no buffer behind it.
        if len == 0 {
            return Some(&[]);
        }
        let inside = |base: usize, size: usize| start >= base && start - base <= size && size - (start - base) >= len;
        let mut planned = self.planned.iter().filter_map(|buffer| buffer.memory.as_deref());
        let own = planned.any(|buffer| inside(buffer.as_ptr() as usize, buffer.len()))
            || self.copies.iter().any(|copy| inside(copy.as_ptr() as usize, copy.len()))
            || self.external.iter().any(|blob| inside(blob.as_ptr() as usize, blob.len()))
            || self.program.constants.iter().any(|blob| inside(blob.as_ptr() as usize, blob.len()));
        // SAFETY: the range lies inside a block that `self` keeps alive; planned memory is only written by `execute` of
        // a method of the same module, which takes the module by `&mut`, so it does not change while the slice lives.
        own.then(|| unsafe { std::slice::from_raw_parts(tensor.address().cast_const(), len) })
    }
}
