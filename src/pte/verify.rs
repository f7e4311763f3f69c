//! The check of everything that the data model promises: once a program has passed, its indices and ranges may be
//! used without another look.

use super::error::{Place, PteError};
use super::program::{EValue, ExecutionPlan, Instruction, Program, TensorData, TensorValue};
use crate::base::storage::Blob;
use crate::tensor::{DType, MAX_RANK};
use std::collections::HashSet;

type Result<T, E = PteError> = std::result::Result<T, E>;

/// Most bytes that the planned buffers of one method may take together.
const MAX_PLANNED: u64 = 1 << 40;

impl Program {
    /// Checks every promise of the data model.
    ///
    /// # Errors
    /// The first broken promise, with its place.
    pub fn verify(&self) -> Result<()> {
        let mut names = HashSet::new();
        for plan in &self.plans {
            if !names.insert(plan.name.as_str()) {
                return Err(PteError::DuplicateMethod { name: plan.name.clone() });
            }
            Check { program: self, plan }.plan()?;
        }
        Ok(())
    }
}

struct Check<'a> {
    program: &'a Program,
    plan: &'a ExecutionPlan,
}

impl Check<'_> {
    fn plan(&self) -> Result<()> {
        let plan = self.plan;
        let place = || Place::Method { method: plan.name.clone() };
        self.buffers(place)?;
        for (index, value) in plan.values.iter().enumerate() {
            self.value(value, || Place::Value { method: plan.name.clone(), index })?;
        }
        for &input in &plan.inputs {
            in_range(input, plan.values.len(), "input", place)?;
        }
        for &output in &plan.outputs {
            in_range(output, plan.values.len(), "output", place)?;
        }
        for (chain, instructions) in plan.chains.iter().map(|chain| &chain.instructions).enumerate() {
            for (index, instruction) in instructions.iter().enumerate() {
                let place = || Place::Instruction { method: plan.name.clone(), chain, index };
                self.instruction(instruction, instructions.len(), place)?;
            }
        }
        Ok(())
    }

    fn buffers(&self, place: impl Fn() -> Place) -> Result<()> {
        // Buffer 0 is not allocated.
        let sizes = self.plan.non_const_buffer_sizes.iter().skip(1);
        let total = sizes.fold(0u64, |total, &size| total.saturating_add(size));
        if total > MAX_PLANNED {
            return Err(PteError::BuffersTooLarge { place: place(), total, limit: MAX_PLANNED });
        }
        Ok(())
    }

    fn value(&self, value: &EValue, place: impl Fn() -> Place) -> Result<()> {
        let is_int = |value: &EValue| matches!(value, EValue::Int(_));
        let is_tensor = |value: &EValue| matches!(value, EValue::Tensor(_));
        match value {
            EValue::Tensor(tensor) => self.tensor(tensor, place),
            EValue::IntList(items) => {
                items.iter().try_for_each(|&item| self.refers(item, "list item", is_int, "an integer", &place))
            }
            EValue::TensorList(items) => {
                items.iter().try_for_each(|&item| self.refers(item, "list item", is_tensor, "a tensor", &place))
            }
            EValue::OptionalTensorList(items) => {
                let mut items = items.iter().flatten();
                items.try_for_each(|&item| self.refers(item, "list item", is_tensor, "a tensor", &place))
            }
            _ => Ok(()),
        }
    }

    /// Value `index` exists and `is_expected`.
    fn refers(
        &self,
        index: u32,
        what: &'static str,
        is_expected: impl Fn(&EValue) -> bool,
        expected: &'static str,
        place: impl Fn() -> Place,
    ) -> Result<()> {
        match self.plan.values.get(index as usize) {
            Some(value) if is_expected(value) => Ok(()),
            Some(_) => Err(PteError::Kind { place: place(), what, index, expected }),
            None => in_range(index, self.plan.values.len(), what, place),
        }
    }

    fn tensor(&self, tensor: &TensorValue, place: impl Fn() -> Place) -> Result<()> {
        let rank = tensor.sizes.len();
        if rank > MAX_RANK {
            return Err(PteError::Rank { place: place(), rank });
        }
        // Sizes are stored with 31 bits.
        if let Some(dim) = tensor.sizes.iter().position(|&size| size > i32::MAX as usize) {
            return Err(PteError::Size { place: place(), dim, size: tensor.sizes[dim] as i64 });
        }
        let mut order = tensor.dim_order.clone();
        order.sort_unstable();
        if !order.iter().map(|&dim| usize::from(dim)).eq(0..rank) {
            return Err(PteError::DimOrder { place: place(), order: tensor.dim_order.clone(), rank });
        }
        let Some(need) = tensor.checked_byte_len() else {
            return Err(PteError::TooLarge { place: place(), sizes: tensor.sizes.clone() });
        };
        let named = || match tensor.fully_qualified_name.as_deref() {
            None | Some("") => Err(PteError::ExternalWithoutName { place: place() }),
            Some(_) => Ok(()),
        };
        match &tensor.data {
            TensorData::Unplanned => Ok(()),
            TensorData::External => named(),
            TensorData::ExternalMutable { buffer, offset } => {
                named()?;
                self.planned(*buffer, *offset, need as u64, &place)?;
                aligned(*offset, tensor.dtype, &place)
            }
            TensorData::Constant { index } => {
                let blob = stored(&self.program.constants, *index, "constant", &place)?;
                long_enough(blob, need, || format!("constant {index}"), &place)?;
                aligned(blob.range().start as u64, tensor.dtype, place)
            }
            TensorData::Planned { buffer, offset, initial } => {
                self.planned(*buffer, *offset, need as u64, &place)?;
                aligned(*offset, tensor.dtype, &place)?;
                let Some((segment, index)) = initial else { return Ok(()) };
                in_range(*segment, self.program.mutable_data.len(), "mutable data segment", &place)?;
                let blob = stored(&self.program.mutable_data[*segment as usize], *index, "mutable data", &place)?;
                long_enough(blob, need, || format!("mutable data {segment}/{index}"), place)
            }
        }
    }

    fn planned(&self, buffer: u32, offset: u64, need: u64, place: impl Fn() -> Place) -> Result<()> {
        let sizes = &self.plan.non_const_buffer_sizes;
        let have = match sizes.get(buffer as usize) {
            Some(&have) if buffer > 0 => have,
            _ => {
                let (index, count) = (buffer.into(), sizes.len().saturating_sub(1));
                return Err(PteError::Index { place: place(), what: "planned buffer", index, count });
            }
        };
        match offset.checked_add(need) {
            Some(end) if end <= have => Ok(()),
            _ => Err(PteError::PlannedOutside { place: place(), buffer, offset, need, have }),
        }
    }

    fn instruction(&self, instruction: &Instruction, count: usize, place: impl Fn() -> Place) -> Result<()> {
        let plan = self.plan;
        let value = |index: u32, what| in_range(index, plan.values.len(), what, &place);
        let arguments = |args: &[u32]| args.iter().try_for_each(|&arg| value(arg, "argument"));
        match instruction {
            Instruction::Kernel { operator, args } => {
                in_range(*operator, plan.operators.len(), "operator", &place)?;
                arguments(args)
            }
            Instruction::Delegate { delegate, args } => {
                in_range(*delegate, plan.delegates.len(), "delegate", &place)?;
                arguments(args)
            }
            Instruction::Move { from, to } => {
                value(*from, "source")?;
                value(*to, "destination")
            }
            Instruction::JumpFalse { condition, destination } => {
                let is_condition = |value: &EValue| match value {
                    EValue::Bool(_) => true,
                    EValue::Tensor(tensor) => tensor.dtype == DType::Bool,
                    _ => false,
                };
                self.refers(*condition, "condition", is_condition, "a bool or a tensor of bools", &place)?;
                // Jumping to the end ends the chain.
                in_range(*destination, count + 1, "destination instruction", &place)
            }
            Instruction::Free { value } => {
                let is_tensor = |value: &EValue| matches!(value, EValue::Tensor(_));
                self.refers(*value, "value", is_tensor, "a tensor", place)
            }
        }
    }
}

fn in_range(index: u32, count: usize, what: &'static str, place: impl Fn() -> Place) -> Result<()> {
    if (index as usize) < count {
        return Ok(());
    }
    Err(PteError::Index { place: place(), what, index: index.into(), count })
}

/// Entry `index` of `blobs`, where entry 0 stands for "nothing stored".
fn stored<'a>(blobs: &'a [Blob], index: u32, what: &'static str, place: impl Fn() -> Place) -> Result<&'a Blob> {
    match blobs.get(index as usize) {
        Some(blob) if index > 0 => Ok(blob),
        _ => Err(PteError::Index { place: place(), what, index: index.into(), count: blobs.len().saturating_sub(1) }),
    }
}

fn long_enough(blob: &Blob, need: usize, stored: impl Fn() -> String, place: impl Fn() -> Place) -> Result<()> {
    if blob.len() >= need {
        return Ok(());
    }
    Err(PteError::DataTooShort { place: place(), stored: stored(), need: need as u64, have: blob.len() as u64 })
}

fn aligned(offset: u64, dtype: DType, place: impl Fn() -> Place) -> Result<()> {
    let size = dtype.size();
    if offset.is_multiple_of(size as u64) {
        return Ok(());
    }
    Err(PteError::Misaligned { place: place(), offset, size })
}
