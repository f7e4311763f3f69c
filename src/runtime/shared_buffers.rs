//! Mutable buffers that the methods of a program have in common, as exporters of separate prefill and decode methods plan
//! them: a planned buffer is one and the same for all methods that place the same named tensors at the same offsets in
//! it.

use super::error::RuntimeError;
use crate::base::aligned::AlignedBuffer;
use crate::error::Result;
use crate::pte::{EValue, ExecutionPlan, Program, TensorData};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Name, offset and size in bytes of each named tensor of a planned buffer.
type State = BTreeSet<(String, u64, usize)>;

/// The buffers that more than one method uses, made when the first of them is loaded.
#[derive(Default)]
pub(super) struct SharedBuffers(BTreeMap<(u32, State), Arc<AlignedBuffer>>);

/// A planned buffer of a method.
#[derive(Debug)]
pub(super) struct PlannedBuffer {
    /// `None` for no bytes.
    pub(super) memory: Option<Arc<AlignedBuffer>>,
    /// Another method has it already: its contents are not the initial ones any more.
    pub(super) in_use: bool,
}

impl SharedBuffers {
    /// Planned buffer `index` of `plan`, zeroed unless another loaded method shares it.
    pub(super) fn buffer(&mut self, program: &Program, plan: &ExecutionPlan, index: u32) -> Result<PlannedBuffer> {
        let size = size(plan, index);
        if size == 0 {
            return Ok(PlannedBuffer { memory: None, in_use: false });
        }
        let state = state(plan, index);
        let sharing: Vec<&ExecutionPlan> = match state.is_empty() {
            true => Vec::new(),
            false => program.plans.iter().filter(|other| self::state(other, index) == state).collect(),
        };
        if sharing.len() < 2 {
            return Ok(PlannedBuffer { memory: Some(Arc::new(zeroed(size)?)), in_use: false });
        }
        let key = (index, state);
        if let Some(memory) = self.0.get(&key) {
            return Ok(PlannedBuffer { memory: Some(Arc::clone(memory)), in_use: true });
        }
        let largest = sharing.iter().map(|other| self::size(other, index)).max().unwrap_or(size);
        let memory = Arc::new(zeroed(largest)?);
        self.0.insert(key, Arc::clone(&memory));
        Ok(PlannedBuffer { memory: Some(memory), in_use: false })
    }
}

/// A mutable buffer that both methods have by name and that each keeps for itself.
pub(super) fn kept_apart(one: &ExecutionPlan, other: &ExecutionPlan) -> Option<String> {
    let states = |plan: &ExecutionPlan| -> Vec<State> {
        (0..plan.non_const_buffer_sizes.len() as u32).map(|index| state(plan, index)).collect()
    };
    let (ones, others) = (states(one), states(other));
    let of_other: BTreeSet<&str> = others.iter().flatten().map(|(name, ..)| name.as_str()).collect();
    let apart = ones.iter().enumerate().filter(|&(index, state)| others.get(index) != Some(state));
    apart.flat_map(|(_, state)| state).map(|(name, ..)| name).find(|name| of_other.contains(name.as_str())).cloned()
}

fn size(plan: &ExecutionPlan, index: u32) -> u64 {
    plan.non_const_buffer_sizes.get(index as usize).copied().unwrap_or(0)
}

fn zeroed(size: u64) -> Result<AlignedBuffer> {
    let too_large = RuntimeError::PlannedTooLarge { bytes: size, max: usize::MAX as u64 };
    AlignedBuffer::zeroed(usize::try_from(size).map_err(|_| too_large)?)
}

/// Planned buffer `index` of `plan` by its named tensors.
fn state(plan: &ExecutionPlan, index: u32) -> State {
    let named = plan.values.iter().filter_map(|value| match value {
        EValue::Tensor(tensor) => match tensor.data {
            TensorData::Planned { buffer, offset, .. } | TensorData::ExternalMutable { buffer, offset }
                if buffer == index =>
            {
                Some((tensor.fully_qualified_name.clone()?, offset, tensor.byte_len()))
            }
            _ => None,
        },
        _ => None,
    });
    named.collect()
}
