//! The end of a plan: outputs where callers expect them, the next contents of states, and memory for everything.

use super::super::memory::{self, Request};
use super::{ACTIVATIONS, PlanBuilder, Result, STATES, planned};
use crate::graph::{ValueId, ValueKind};
use crate::pte::{Chain, EValue, ExecutionPlan, Instruction, TensorData, TensorValue};
use std::collections::HashMap;

impl PlanBuilder<'_, '_> {
    /// The finished plan: outputs that no part made where they belong are copied there, states get their next
    /// contents, and memory is planned.
    ///
    /// # Errors
    /// An output, or the next contents of a state, that nothing made.
    pub fn finish(mut self) -> Result<ExecutionPlan> {
        self.outputs()?;
        self.state_updates()?;
        self.plan_memory();
        let Self { mut plan, instructions, .. } = self;
        plan.chains = vec![Chain { instructions }];
        Ok(plan)
    }

    fn outputs(&mut self) -> Result<()> {
        for &id in &self.graph.outputs {
            let index = self.operand(id)?;
            let updated = self.states.contains(&Some(index));
            let own =
                self.graph.value(id).kind == ValueKind::Computed && !updated && !self.plan.outputs.contains(&index);
            let index = if own { index } else { self.clone_of(id, index)? };
            self.plan.outputs.push(index);
        }
        Ok(())
    }

    fn clone_of(&mut self, id: ValueId, index: u32) -> Result<u32> {
        let data = if self.graph.symbols.is_empty() { TensorData::Unplanned } else { planned(ACTIVATIONS) };
        let tensor = self.tensor_of(id, data)?;
        let out = self.plan.push(EValue::Tensor(tensor));
        let format = self.null();
        self.call("aten::clone.out", &[index, format], out);
        Ok(out)
    }

    fn state_updates(&mut self) -> Result<()> {
        let mut copies = Vec::new();
        for &(state, id) in &self.graph.state_updates {
            let mut from = self.operand(id)?;
            let to = self.state(state);
            if from == to {
                continue;
            }
            if self.states.contains(&Some(from)) {
                let value = self.graph.value(id);
                let copy = self.temporary(value.dtype, &value.shape);
                let format = self.null();
                self.call("aten::clone.out", &[from, format], copy);
                from = copy;
            }
            copies.push((to, from));
        }
        let wait = self.bool(false);
        for (to, from) in copies {
            self.kernel("aten::copy_", &[to, from, wait, to]);
        }
        Ok(())
    }

    /// What memory `index` lies in, views followed.
    fn owner(&self, mut index: u32) -> u32 {
        while let Some(&of) = self.views.get(&index) {
            index = of;
        }
        index
    }

    fn plan_memory(&mut self) {
        let mut lives: HashMap<u32, (usize, usize)> = HashMap::new();
        let last = self.instructions.len();
        for (at, instruction) in self.instructions.iter().enumerate() {
            let (Instruction::Kernel { args, .. } | Instruction::Delegate { args, .. }) = instruction else { continue };
            for &arg in args {
                let items: Vec<u32> = match &self.plan.values[arg as usize] {
                    EValue::TensorList(items) => items.clone(),
                    EValue::OptionalTensorList(items) => items.iter().flatten().copied().collect(),
                    _ => vec![arg],
                };
                for item in items {
                    lives.entry(self.owner(item)).or_insert((at, at)).1 = at;
                }
            }
        }
        for &output in &self.plan.outputs {
            lives.entry(self.owner(output)).or_insert((0, last)).1 = last;
        }
        let mut activations = Vec::new();
        let mut states = 0;
        let mut offsets: HashMap<u32, u64> = HashMap::new();
        for (index, value) in (0..).zip(&self.plan.values) {
            let EValue::Tensor(tensor) = value else { continue };
            let bytes = tensor.byte_len() as u64;
            match tensor.data {
                TensorData::Planned { buffer: STATES, .. } if !self.views.contains_key(&index) => {
                    offsets.insert(index, states);
                    states += bytes.next_multiple_of(16);
                }
                TensorData::Planned { .. } if !self.views.contains_key(&index) => {
                    let (first, last) = lives.get(&index).copied().unwrap_or((0, last));
                    activations.push((index, Request { bytes, life: first..=last }));
                }
                _ => {}
            }
        }
        let (indices, requests): (Vec<u32>, Vec<Request>) = activations.into_iter().unzip();
        let (places, end) = memory::plan(&requests);
        offsets.extend(indices.into_iter().zip(places));
        for index in 0..self.plan.values.len() as u32 {
            let owner = self.owner(index);
            let place = match &self.plan.values[owner as usize] {
                EValue::Tensor(TensorValue { data: TensorData::Planned { buffer, .. }, .. }) => *buffer,
                _ => continue,
            };
            if let (EValue::Tensor(tensor), Some(&offset)) =
                (&mut self.plan.values[index as usize], offsets.get(&owner))
            {
                tensor.data = TensorData::Planned { buffer: place, offset, initial: None };
            }
        }
        self.plan.non_const_buffer_sizes = match (end, states) {
            (0, 0) => vec![0, 0],
            (_, 0) => vec![0, end],
            _ => vec![0, end, states],
        };
    }
}
