//! What the methods of a module keep from one execution to the next, to be saved and restored, and how much memory they
//! hold. States lie in planned memory, however a method is executed.
#![allow(unsafe_code)]

use super::memory::Memory;
use crate::base::aligned::AlignedBuffer;
use crate::base::storage::Storage;
use crate::pte::{EValue, ExecutionPlan, FlatTensor, Program, TensorData, TensorValue};
use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

/// A piece of planned memory.
struct Region {
    /// Its name with type and sizes.
    name: String,
    buffer: Arc<AlignedBuffer>,
    range: Range<usize>,
}

impl Region {
    fn same_place(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.buffer, &other.buffer) && self.range == other.range
    }
}

/// The states of loaded methods, each place once. A method that names its mutable buffers has these; another's are
/// somewhere in its planned memory, so that is taken as a whole.
pub(super) struct States(Vec<Region>);

impl States {
    pub(super) fn new<'a>(methods: impl Iterator<Item = (&'a ExecutionPlan, &'a Memory)>) -> Self {
        let mut states = Vec::<Region>::new();
        for (plan, memory) in methods {
            // What takes nothing gives the same each time.
            if plan.inputs.is_empty() {
                continue;
            }
            let named = named(plan, memory);
            let regions = if named.is_empty() { whole(plan, memory) } else { named };
            for region in regions {
                if !states.iter().any(|known| known.same_place(&region)) {
                    states.push(region);
                }
            }
        }
        Self(states)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.0.iter().map(|region| region.range.len() as u64).sum()
    }

    /// Shows every region. Only for whoever has the module by `&mut`.
    pub(super) fn visit(&mut self, visit: &mut dyn FnMut(&str, &mut [u8])) {
        for region in &self.0 {
            let Range { start, end } = region.range;
            debug_assert!(end <= region.buffer.len());
            // SAFETY: the range was checked against the buffer, which `region` keeps alive. Planned memory is touched
            // by methods of its module alone, and only while one executes; whoever calls has the module by `&mut`, so
            // none does, and nobody holds a slice of an output. Regions are visited one after the other, so those that
            // overlap are never lent together.
            let bytes = unsafe { std::slice::from_raw_parts_mut(region.buffer.as_ptr().add(start), end - start) };
            visit(&region.name, bytes);
        }
    }
}

fn named(plan: &ExecutionPlan, memory: &Memory) -> Vec<Region> {
    let region = |value: &EValue| {
        let EValue::Tensor(tensor) = value else { return None };
        let (TensorData::Planned { buffer, offset, .. } | TensorData::ExternalMutable { buffer, offset }) = tensor.data
        else {
            return None;
        };
        let name = tensor.fully_qualified_name.as_ref()?;
        let buffer = Arc::clone(memory.planned_buffer(buffer)?);
        let start = usize::try_from(offset).ok()?;
        let end = start.checked_add(tensor.byte_len()).filter(|&end| end <= buffer.len())?;
        Some(Region { name: describe(name, tensor), buffer, range: start..end })
    };
    plan.values.iter().filter_map(region).collect()
}

fn describe(name: &str, tensor: &TensorValue) -> String {
    format!("{name} {}{:?}", tensor.dtype, tensor.sizes)
}

fn whole(plan: &ExecutionPlan, memory: &Memory) -> Vec<Region> {
    let region = |index: u32| {
        let buffer = Arc::clone(memory.planned_buffer(index)?);
        let range = 0..buffer.len();
        Some(Region { name: format!("{} planned memory {index} [{}]", plan.name, range.len()), buffer, range })
    };
    (0..plan.non_const_buffer_sizes.len() as u32).filter_map(region).collect()
}

/// Sizes of all distinct planned buffers, and of all distinct copies of constants.
pub(super) fn held<'a>(memories: impl Iterator<Item = &'a Memory>) -> (u64, u64) {
    let (mut planned, mut copies) = (Vec::new(), Vec::new());
    for memory in memories {
        planned.extend(memory.planned_buffers());
        copies.extend(memory.copies());
    }
    (distinct_bytes(planned), distinct_bytes(copies))
}

fn distinct_bytes(mut buffers: Vec<&Arc<AlignedBuffer>>) -> u64 {
    buffers.sort_unstable_by_key(|buffer| Arc::as_ptr(buffer));
    buffers.dedup_by_key(|buffer| Arc::as_ptr(buffer));
    buffers.into_iter().map(|buffer| buffer.len() as u64).sum()
}

/// Bytes of the files that the blobs of `program` lie in, and whether they are mapped.
pub(super) fn program_bytes(program: &Program) -> (u64, bool) {
    let storages = storages(program, &[]);
    let mapped = storages.iter().any(|storage| matches!(**storage, Storage::Mapped(_)));
    (storages.iter().map(|storage| storage.len() as u64).sum(), mapped)
}

/// The files that the blobs of `program` and of its external data lie in, each once, in an order that they alone decide.
pub(super) fn storages(program: &Program, data: &[FlatTensor]) -> Vec<Arc<Storage>> {
    let delegates = program.plans.iter().flat_map(|plan| &plan.delegates).map(|delegate| &delegate.processed);
    let own = program.segments.iter().chain(&program.constants).chain(delegates).chain(program.named_data.values());
    let blobs = own.chain(data.iter().flat_map(|file| file.entries.values().map(|entry| &entry.blob)));
    let mut seen = HashSet::new();
    let storages = blobs.map(|blob| blob.storage()).filter(|storage| !storage.is_empty());
    storages.filter(|storage| seen.insert(Arc::as_ptr(storage))).cloned().collect()
}
