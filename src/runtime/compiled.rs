//! Whole methods as something faster than their instructions: the seam between the runtime and whoever compiles.

use super::error::RuntimeError;
use super::external::External;
use super::tensor::Tensor;
use super::value::Value;
use crate::error::Result;
use crate::pte::{Blob, ExecutionPlan, Program, TensorData, TensorValue};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How methods are executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Execution {
    /// Compiled where that is possible, otherwise instruction by instruction.
    #[default]
    Auto,
    /// Compiled; loading a method that cannot be compiled is an error, unless it takes nothing.
    Compiled,
    /// Instruction by instruction.
    Instructions,
}

/// What came of an attempt to compile a method.
pub enum Compilation {
    /// It runs so.
    Done(Box<dyn CompiledMethod>),
    /// It cannot be compiled, for this reason; its instructions can still run.
    Unfit(String),
}

/// Compiles methods.
pub trait MethodCompiler: Send + Sync {
    /// Compiles the method, if all of it is known.
    ///
    /// # Errors
    /// What stands in the way of the method however it is executed: a damaged delegate, no memory.
    fn compile(&self, source: &MethodSource<'_>) -> Result<Compilation>;

    /// Bytes of the weights that were packed.
    fn weight_bytes(&self) -> u64 {
        0
    }

    /// Threads that compiled methods run on; `None` as long as nothing was compiled.
    fn threads(&self) -> Option<usize> {
        None
    }
}

/// A method as its compiler sees it. Indices of the plan were checked.
pub struct MethodSource<'a> {
    /// The program.
    pub program: &'a Program,
    /// The method.
    pub plan: &'a ExecutionPlan,
    pub(super) external: &'a External,
}

impl<'a> MethodSource<'a> {
    /// The bytes of a constant tensor, as many as it has; `None` for tensors that are no constants.
    pub fn constant(&self, value: &TensorValue) -> Result<Option<Blob>> {
        let (index, blob) = match value.data {
            TensorData::Constant { index } => (index, self.program.constants.get(index as usize)),
            TensorData::External => (0, Some(self.external.tensor(value)?)),
            _ => return Ok(None),
        };
        let (have, need) = (blob.map_or(0, |blob| blob.len()), value.byte_len());
        let blob = blob.filter(|_| have >= need).map(|blob| blob.head(need));
        blob.map(Some).ok_or_else(|| RuntimeError::ConstantTooShort { index, have, need }.into())
    }

    /// Blobs that delegates ask for by key.
    pub fn named_data(&self) -> &'a BTreeMap<String, Blob> {
        &self.external.named_data
    }
}

/// Told the name of each step of a run, when it began and how long it took.
pub type StepObserver<'a> = &'a mut dyn FnMut(&str, Instant, Duration);

/// A compiled method.
pub trait CompiledMethod: Send {
    /// Does what the method's instructions do to its outputs and mutable buffers. What the memory of other values holds
    /// afterwards is not defined.
    fn run(&mut self, values: &mut MethodValues<'_>, observer: Option<StepObserver<'_>>) -> Result<()>;

    /// Tokens that a call should take at most; see [`Module::chunk`](super::Module::chunk).
    fn chunk(&self) -> Option<usize> {
        None
    }

    /// Bytes of intermediate values that it holds.
    fn scratch_bytes(&self) -> u64 {
        0
    }
}

/// The values of a method while it runs: all inputs, outputs and planned tensors have their memory.
pub struct MethodValues<'a> {
    values: &'a mut [Value],
}

/// States to write, and inputs to read.
pub type Split<'a> = (Vec<&'a mut [u8]>, Vec<&'a Tensor>);

impl<'a> MethodValues<'a> {
    pub(super) fn new(values: &'a mut [Value]) -> Self {
        Self { values }
    }

    /// The tensor with this number.
    pub fn tensor_mut(&mut self, value: u32) -> Result<&mut Tensor> {
        match self.values.get_mut(value as usize) {
            Some(Value::Tensor(tensor)) => Ok(tensor),
            other => Err(wrong(value, other.map(|value| &*value))),
        }
    }

    /// The bytes of the tensors `states`, to write, beside the tensors `inputs`, to read. Refused when a number comes
    /// twice, or a state shares memory with another or with an input. Inputs may share theirs.
    pub fn split(&mut self, states: &[u32], inputs: &[u32]) -> Result<Split<'_>> {
        let mut wanted: Vec<(u32, Option<usize>, usize)> = Vec::with_capacity(states.len() + inputs.len());
        wanted.extend(states.iter().enumerate().map(|(place, &value)| (value, Some(place), 0)));
        wanted.extend(inputs.iter().enumerate().map(|(place, &value)| (value, None, place)));
        wanted.sort_unstable();
        self.check_apart(states, inputs)?;
        let mut bytes: Vec<Option<&mut [u8]>> = states.iter().map(|_| None).collect();
        let mut tensors: Vec<Option<&Tensor>> = inputs.iter().map(|_| None).collect();
        let (mut rest, mut first) = (&mut *self.values, 0u32);
        for (value, state, input) in wanted {
            let skip = value.checked_sub(first).ok_or_else(|| wrong(value, None))? as usize;
            let (_, after) = std::mem::take(&mut rest).split_at_mut_checked(skip).ok_or_else(|| wrong(value, None))?;
            let (found, after) = after.split_first_mut().ok_or_else(|| wrong(value, None))?;
            (rest, first) = (after, value + 1);
            match (found, state) {
                (Value::Tensor(tensor), Some(place)) => bytes[place] = Some(tensor.bytes_mut()?),
                (Value::Tensor(tensor), None) => tensors[input] = Some(tensor),
                (other, _) => return Err(wrong(value, Some(other))),
            }
        }
        Ok((bytes.into_iter().flatten().collect(), tensors.into_iter().flatten().collect()))
    }

    fn check_apart(&self, states: &[u32], inputs: &[u32]) -> Result<()> {
        let span = |&value: &u32| match self.values.get(value as usize) {
            Some(Value::Tensor(tensor)) => {
                let start = tensor.address().addr();
                Ok((start, start + tensor.byte_len(), value))
            }
            other => Err(wrong(value, other)),
        };
        let mut written = states.iter().map(span).collect::<Result<Vec<_>>>()?;
        written.sort_unstable();
        let shared = |a: u32, b: u32| RuntimeError::ValuesShareMemory { a, b }.into();
        if let Some(pair) = written.windows(2).find(|pair| pair[0].1 > pair[1].0) {
            return Err(shared(pair[0].2, pair[1].2));
        }
        for value in inputs {
            let (start, end, value) = span(value)?;
            let at = written.partition_point(|state| state.1 <= start);
            if let Some(state) = written.get(at).filter(|state| state.0 < end) {
                return Err(shared(state.2, value));
            }
        }
        Ok(())
    }
}

#[cold]
fn wrong(value: u32, found: Option<&Value>) -> crate::error::Error {
    let kind = found.map_or("missing, or named twice", Value::kind);
    RuntimeError::NotTheTensor { value, kind }.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::DType;

    /// Six values: tensors of two bytes at the given places of 16 bytes, and an integer at the end.
    fn with_values(places: [usize; 5], check: impl FnOnce(&mut MethodValues<'_>)) {
        let mut memory: Vec<u8> = (0..16).collect();
        let mut values: Vec<Value> = places
            .iter()
            .map(|&place| {
                let mut tensor = Tensor::unbound(DType::U8, vec![2], vec![0]);
                bind(&mut tensor, &mut memory, place);
                Value::Tensor(tensor)
            })
            .collect();
        values.push(Value::Int(7));
        check(&mut MethodValues::new(&mut values));
    }

    #[allow(unsafe_code)]
    fn bind(tensor: &mut Tensor, memory: &mut [u8], place: usize) {
        assert!(place + 2 <= memory.len());
        // SAFETY: `with_values` keeps the memory alive, and touches it through the tensors only.
        unsafe { tensor.bind(memory.as_mut_ptr().wrapping_add(place), 2, true) };
    }

    #[test]
    fn states_and_inputs_come_in_the_order_asked() {
        with_values([0, 2, 4, 6, 8], |values| {
            let (states, inputs) = values.split(&[3, 0], &[4, 1]).unwrap();
            assert_eq!((&states[0][..], &states[1][..]), (&[6, 7][..], &[0, 1][..]));
            assert_eq!(inputs.iter().map(|tensor| tensor.bytes().unwrap()[0]).collect::<Vec<_>>(), [8, 2]);
        });
    }

    #[test]
    fn what_overlaps_a_state_is_refused_and_inputs_may_overlap() {
        let fault = |places, states: &[u32], inputs: &[u32]| {
            let mut fault = None;
            with_values(places, |values| fault = values.split(states, inputs).err());
            fault
        };
        assert!(fault([0, 2, 4, 4, 8], &[0, 1], &[2, 3]).is_none());
        for (places, states, inputs) in [
            ([0, 1, 4, 6, 8], &[0, 1][..], &[][..]),
            ([0, 2, 4, 6, 8], &[1, 1], &[]),
            ([0, 2, 4, 5, 8], &[1, 3], &[2]),
            ([0, 2, 4, 5, 8], &[2], &[3]),
            ([0, 2, 4, 6, 8], &[2], &[2]),
            ([0, 2, 4, 6, 8], &[5], &[]),
            ([0, 2, 4, 6, 8], &[0], &[5]),
            ([0, 2, 4, 6, 8], &[0], &[6]),
        ] {
            assert!(fault(places, states, inputs).is_some(), "{places:?} {states:?} {inputs:?}");
        }
    }
}
