//! Where a method's inputs and outputs are in the caller's arena.
//!
//! A tensor without a plan points straight into the arena. A planned one keeps its own memory: a bound input is copied
//! in before a run, a bound output is copied out after it. The same goes for an output whose value is also an input, a
//! constant, or was made a view of something else.
#![allow(unsafe_code)]

use super::error::{RuntimeError, Side};
use super::io_arena::{IoArena, IoSlice};
use super::memory::Memory;
use super::value::Value;
use crate::error::Result;
use crate::tensor::DType;

/// Where the tensor of a slot has its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Home {
    /// In the caller's arena, and only there.
    Arena,
    /// In planned memory.
    Planned,
    /// In the program's constants.
    Constant,
    /// In another slot: an output that is an input, or the same output again.
    OtherSlot,
    /// Nowhere: it is no tensor.
    NoTensor,
}

/// One input or output.
pub(super) struct Slot {
    pub(super) value: u32,
    pub(super) home: Home,
    pub(super) dtype: DType,
    /// Size at the upper bounds.
    pub(super) bytes: usize,
    /// Whether instructions may point the value at other memory.
    pub(super) repointed: bool,
    bound: Option<IoSlice>,
}

impl Slot {
    pub(super) fn new(value: u32, home: Home, dtype: DType, bytes: usize, repointed: bool) -> Self {
        Self { value, home, dtype, bytes, repointed, bound: None }
    }
}

/// All inputs and outputs of a method.
pub(super) struct Bindings {
    method: String,
    pub(super) inputs: Vec<Slot>,
    pub(super) outputs: Vec<Slot>,
    /// The arena of every bound slice.
    arena: Option<u64>,
    /// Slots at home in the arena that are not bound.
    unbound: usize,
    /// Inputs to point or copy again before a run.
    inputs_before: Vec<usize>,
    /// Outputs to point again before a run.
    outputs_before: Vec<usize>,
    /// Outputs to copy out after a run if they are elsewhere.
    outputs_after: Vec<usize>,
}

impl Bindings {
    pub(super) fn new(method: String, inputs: Vec<Slot>, outputs: Vec<Slot>) -> Self {
        let pick = |slots: &[Slot], want: fn(&Slot) -> bool| -> Vec<usize> {
            slots.iter().enumerate().filter(|(_, slot)| want(slot)).map(|(index, _)| index).collect()
        };
        let unbound = inputs.iter().chain(&outputs).filter(|slot| slot.home == Home::Arena).count();
        let inputs_before =
            pick(&inputs, |slot| slot.home == Home::Planned || (slot.home == Home::Arena && slot.repointed));
        let outputs_before = pick(&outputs, |slot| slot.home == Home::Arena && slot.repointed);
        let outputs_after =
            pick(&outputs, |slot| slot.home != Home::NoTensor && (slot.home != Home::Arena || slot.repointed));
        Self { method, inputs, outputs, arena: None, unbound, inputs_before, outputs_before, outputs_after }
    }

    /// Binds a slot. Allocates nothing and costs a few nanoseconds while the arena stays the same; another arena
    /// releases every earlier binding.
    pub(super) fn bind(
        &mut self,
        (side, index): (Side, usize),
        (arena, slice): (&IoArena, IoSlice),
        values: &mut [Value],
        memory: &Memory,
    ) -> Result<()> {
        let slot = match side {
            Side::Input => self.inputs.get(index),
            Side::Output => self.outputs.get(index),
        };
        let address = match (slot, arena.address(slice)) {
            (Some(slot), Some(address))
                if slice.len == slot.bytes
                    && (address as usize).is_multiple_of(slot.dtype.size())
                    && slot.home != Home::NoTensor
                    && (slot.home != Home::Constant || side == Side::Output) =>
            {
                address
            }
            _ => return Err(self.refuse(side, index, slice, values).into()),
        };
        if self.arena != Some(arena.id()) {
            self.change_arena(arena.id(), values, memory);
        }
        let slot = match side {
            Side::Input => &mut self.inputs[index],
            Side::Output => &mut self.outputs[index],
        };
        let first = slot.bound.replace(slice).is_none();
        if slot.home == Home::Arena {
            self.unbound -= usize::from(first);
            if let Value::Tensor(tensor) = &mut values[slot.value as usize] {
                // SAFETY: the range lies inside the arena and is aligned (checked above). The tensor is used only in
                // `execute`, which is lent this very arena (`check` compares ids, which are unique) by `&mut`.
                unsafe { tensor.bind(address, slice.len, true) };
            }
        }
        Ok(())
    }

    #[cold]
    fn refuse(&self, side: Side, index: usize, slice: IoSlice, values: &[Value]) -> RuntimeError {
        let method = self.method.clone();
        let slots = match side {
            Side::Input => &self.inputs,
            Side::Output => &self.outputs,
        };
        let Some(slot) = slots.get(index) else {
            return RuntimeError::NoSuchSlot { method, side, index, len: slots.len() };
        };
        let value = &values[slot.value as usize];
        match slot.home {
            Home::NoTensor => RuntimeError::NotATensor { method, side, index, kind: value.kind() },
            Home::Constant if side == Side::Input => RuntimeError::ConstantSlot { method, side, index },
            _ if slice.len != slot.bytes => {
                let (tensor, need, have) = (value.to_string(), slot.bytes, slice.len);
                RuntimeError::BindLength { method, side, index, tensor, need, have }
            }
            _ if !slice.offset.is_multiple_of(slot.dtype.size()) => {
                RuntimeError::BindUnaligned { method, side, index, offset: slice.offset, dtype: slot.dtype }
            }
            _ => RuntimeError::BindOutside { method, side, index },
        }
    }

    #[cold]
    fn change_arena(&mut self, arena: u64, values: &mut [Value], memory: &Memory) {
        self.arena = Some(arena);
        for slot in self.inputs.iter_mut().chain(&mut self.outputs) {
            if slot.bound.take().is_some() && slot.home == Home::Arena {
                self.unbound += 1;
            }
        }
        // Views of inputs point into the old arena too, which may be gone by the next run.
        for value in values {
            if let Value::Tensor(tensor) = value
                && memory.find(tensor).is_none()
            {
                tensor.unbind();
            }
        }
    }

    /// Whether everything is bound, and to `arena`.
    #[inline]
    pub(super) fn check(&self, arena: &IoArena, values: &[Value]) -> Result<()> {
        if self.unbound == 0 && self.arena.is_none_or(|id| id == arena.id()) {
            return Ok(());
        }
        let sides = [(Side::Input, &self.inputs), (Side::Output, &self.outputs)];
        for (side, slots) in sides {
            let open = slots.iter().position(|slot| slot.home == Home::Arena && slot.bound.is_none());
            if let Some(index) = open {
                let (method, tensor) = (self.method.clone(), values[slots[index].value as usize].to_string());
                return Err(RuntimeError::Unbound { method, side, index, tensor }.into());
            }
        }
        Err(RuntimeError::ForeignArena { method: self.method.clone() }.into())
    }

    /// Points repointed tensors back at the arena and copies planned inputs in.
    #[inline]
    pub(super) fn before(&self, arena: &IoArena, values: &mut [Value]) -> Result<()> {
        for (slots, picked) in [(&self.inputs, &self.inputs_before), (&self.outputs, &self.outputs_before)] {
            for &index in picked {
                let slot = &slots[index];
                let (Some(slice), Value::Tensor(tensor)) = (slot.bound, &mut values[slot.value as usize]) else {
                    continue;
                };
                let Some(address) = arena.address(slice) else { continue };
                if slot.home == Home::Arena {
                    // SAFETY: as in `bind`; `check` has just compared the arena.
                    unsafe { tensor.bind(address, slice.len, true) };
                } else {
                    let target = tensor.bytes_mut()?;
                    let (target, len) = (target.as_mut_ptr(), target.len().min(slice.len));
                    // SAFETY: `bytes_mut` proved `len` bytes at `target`, the slice has as many at `address`. `copy`
                    // allows overlap, and no reference to either is alive.
                    unsafe { std::ptr::copy(address, target, len) };
                }
            }
        }
        Ok(())
    }

    /// Copies bound outputs out whose bytes are not where they are bound.
    #[inline]
    pub(super) fn after(&self, arena: &IoArena, values: &[Value]) -> Result<()> {
        for &index in &self.outputs_after {
            let slot = &self.outputs[index];
            let Some(slice) = slot.bound else { continue };
            let (method, side) = (|| self.method.clone(), Side::Output);
            let (Some(address), Value::Tensor(tensor)) = (arena.address(slice), &values[slot.value as usize]) else {
                let kind = values[slot.value as usize].kind();
                return Err(RuntimeError::NotATensor { method: method(), side, index, kind }.into());
            };
            if tensor.address() == address {
                continue;
            }
            let source = tensor.bytes()?;
            let (source, len) = (source.as_ptr(), source.len());
            if len > slice.len {
                let (tensor, need, have) = (tensor.to_string(), len, slice.len);
                return Err(RuntimeError::BindLength { method: method(), side, index, tensor, need, have }.into());
            }
            // SAFETY: `bytes` proved `len` bytes at `source`, the slice has at least as many at `address`, and both
            // the method and the arena are lent exclusively. `copy` allows overlap, and no reference is alive.
            unsafe { std::ptr::copy(source, address, len) };
        }
        Ok(())
    }

    /// Whether the bindings are to `arena`.
    pub(super) fn is_bound_to(&self, arena: &IoArena) -> bool {
        self.arena == Some(arena.id())
    }
}
