//! The meaning of a graph: runs it node by node, plainly. What the engine computes is right when it equals this, and
//! passes are right when they leave this unchanged.
//!
//! Reals are f32, rounded to f16 or bf16 where a value says so; sums accumulate in f64 and round once. Integers and
//! booleans are exact. A quantized value holds the reals that its codes stand for, so quantization is simulated
//! exactly. States live from run to run.

mod attention;
mod elementwise;
mod fused;
mod linear;
mod movement;
mod observe;
mod quantized;
mod reduce;
mod step;
mod symbols;
mod tensor;
#[cfg(test)]
mod tests;

pub use observe::{MinMax, fake_quantize};
pub use tensor::{Data, Tensor};

use super::{Graph, StateId, ValueId, ValueKind, VerifyError};
use crate::error::{Error, Status};
use crate::tensor::element_count;
use step::Step;

/// Most elements of one value: what a reference is good for, and far less than what could exhaust memory.
pub const MAX_VALUE_ELEMENTS: usize = 1 << 28;

/// Why a run was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InterpretError {
    /// Another number of inputs than the graph has.
    #[error("{have} inputs where the graph has {need}")]
    InputCount {
        /// Given.
        have: usize,
        /// Expected.
        need: usize,
    },
    /// An input of another type or shape than the graph says.
    #[error("input {index} ({name}): {why}")]
    Input {
        /// Which.
        index: usize,
        /// Its value's name.
        name: String,
        /// What does not fit.
        why: String,
    },
    /// A run-time integer outside its bounds.
    #[error("{symbol} is {value}, outside {min}..={max}")]
    SymbolOutOfBounds {
        /// The symbol's name.
        symbol: String,
        /// What it would be.
        value: i64,
        /// Lower bound.
        min: i64,
        /// Upper bound.
        max: i64,
    },
    /// A run-time integer that cannot be computed.
    #[error("{symbol}: {why}")]
    Symbol {
        /// The symbol's name.
        symbol: String,
        /// Why not.
        why: &'static str,
    },
    /// A value of more than [`MAX_VALUE_ELEMENTS`].
    #[error("value {value} of shape {shape:?} is too large to interpret")]
    TooLarge {
        /// Its name.
        value: String,
        /// Its shape in this run.
        shape: Vec<usize>,
    },
    /// Operands that a node cannot work on.
    #[error("{origin} ({op}): {why}")]
    Node {
        /// Where the node came from.
        origin: String,
        /// Its operation.
        op: String,
        /// What is wrong.
        why: String,
    },
}

impl From<InterpretError> for Error {
    fn from(error: InterpretError) -> Self {
        let status = match error {
            InterpretError::TooLarge { .. } => Status::OutOfResources,
            _ => Status::InvalidArgument,
        };
        Error::from_source(status, error)
    }
}

/// Sees each input, state and computed value once in a run, in order; may change it (fake quantization).
pub type Hook<'a> = &'a mut dyn FnMut(ValueId, &mut Tensor);

/// A graph with the contents of its states.
#[derive(Debug)]
pub struct Interpreter<'g> {
    graph: &'g Graph,
    states: Vec<Tensor>,
}

impl<'g> Interpreter<'g> {
    /// Verifies `graph`; all states are zero.
    pub fn new(graph: &'g Graph) -> Result<Self, VerifyError> {
        graph.verify()?;
        let states = graph.states.iter().map(|state| Tensor::zeros(state.dtype, &state.shape)).collect();
        Ok(Self { graph, states })
    }

    /// Zeroes all states.
    pub fn reset(&mut self) {
        for state in &mut self.states {
            *state = Tensor::zeros(state.dtype, &state.shape);
        }
    }

    /// The contents of a state after the last run.
    pub fn state(&self, id: StateId) -> Option<&Tensor> {
        self.states.get(id.0 as usize)
    }

    /// Runs the graph once. After an error the states are what they were before.
    pub fn run(&mut self, inputs: &[Tensor]) -> Result<Vec<Tensor>, InterpretError> {
        self.run_with(inputs, &mut |_, _| {})
    }

    /// As [`Self::run`], with a look at every value.
    pub fn run_with(&mut self, inputs: &[Tensor], hook: Hook<'_>) -> Result<Vec<Tensor>, InterpretError> {
        let graph = self.graph;
        let symbols = symbols::evaluate(graph, inputs)?;
        let mut values: Vec<Option<Tensor>> = vec![None; graph.values.len()];
        for (index, (&id, input)) in graph.inputs.iter().zip(inputs).enumerate() {
            let mut tensor = self.admit(index, id, input, &symbols)?;
            hook(id, &mut tensor);
            values[id.0 as usize] = Some(tensor);
        }
        for (index, value) in graph.values.iter().enumerate() {
            if let ValueKind::State(state) = value.kind {
                let mut tensor = self.states[state.0 as usize].clone();
                hook(ValueId(index as u32), &mut tensor);
                values[index] = Some(tensor);
            }
        }
        let mut uses_left = graph.use_counts();
        for node in &graph.nodes {
            let results = Step::new(graph, node, &values, &symbols)?.run()?;
            for (&id, mut tensor) in node.outputs.iter().zip(results) {
                hook(id, &mut tensor);
                values[id.0 as usize] = Some(tensor);
            }
            for &ValueId(index) in &node.inputs {
                uses_left[index as usize] -= 1;
                if uses_left[index as usize] == 0 {
                    values[index as usize] = None;
                }
            }
        }
        let result = |id: ValueId| match graph.constant(id) {
            Some(data) => quantized::decode(graph.value(id), data),
            None => Ok(values[id.0 as usize].clone().expect("a verified graph makes its results")),
        };
        let outputs = graph.outputs.iter().map(|&id| result(id)).collect::<Result<_, _>>()?;
        let updates = graph.state_updates.iter().map(|&(state, id)| Ok((state, result(id)?)));
        for (state, tensor) in updates.collect::<Result<Vec<_>, InterpretError>>()? {
            self.states[state.0 as usize] = tensor;
        }
        Ok(outputs)
    }

    /// Checks an input against the graph and puts it on the grid of its type.
    fn admit(&self, index: usize, id: ValueId, input: &Tensor, symbols: &[i64]) -> Result<Tensor, InterpretError> {
        let value = self.graph.value(id);
        let fail = |why: String| InterpretError::Input { index, name: value.name.clone(), why };
        let shape = symbols::shape(&value.shape, symbols).map_err(fail)?;
        if input.dtype != value.dtype || input.shape != shape {
            let why = format!("{}{:?} where {}{shape:?} is needed", input.dtype, input.shape, value.dtype);
            return Err(fail(why));
        }
        if input.data.len() != element_count(&shape).map_err(|error| fail(error.to_string()))? {
            return Err(fail(format!("{} elements for shape {shape:?}", input.data.len())));
        }
        let data = match (&input.data, &value.quantization) {
            (Data::Integer(codes), Some(quantization)) => {
                quantized::reals_of_codes(quantization, codes).map_err(fail)?
            }
            (data, None) if data.is_real() != tensor::is_real(value.dtype) => {
                return Err(fail(format!("its data does not fit {}", value.dtype)));
            }
            (data, _) => data.clone(),
        };
        Ok(Tensor { dtype: value.dtype, data: quantized::settle(value, &shape, data), shape })
    }
}

/// The lines along the last axis of a constant as reals, decoded one at a time.
pub struct ConstantLines<'g> {
    rows: quantized::Rows<'g>,
    count: usize,
}

impl<'g> ConstantLines<'g> {
    /// Of `id` in a verified graph; `None` for a value that is no constant or holds integers.
    pub fn of(graph: &'g Graph, id: ValueId) -> Option<Self> {
        let (value, data) = (graph.value(id), graph.constant(id)?);
        (value.quantization.is_some() || tensor::is_real(value.dtype)).then_some(())?;
        let shape = graph.max_shape(id);
        let columns = shape.last().copied().unwrap_or(1);
        let count = shape.iter().rev().skip(1).product();
        Some(Self { rows: quantized::Rows::Constant { value, data, columns }, count })
    }

    /// All lines, in order.
    pub fn iter(&self) -> impl Iterator<Item = Vec<f32>> {
        (0..self.count).map(|line| self.rows.row(line))
    }
}

/// The results of a node whose operands are all constants and whose attributes and shapes are all known; `None` when
/// they are not, or when the node fails.
pub(crate) fn fold(graph: &Graph, node: &super::Node) -> Option<Vec<Tensor>> {
    let known = |id: &ValueId| graph.value(*id).shape.iter().all(|dim| matches!(dim, super::Int::Const(_)));
    let constants = node.inputs.iter().all(|&id| graph.constant(id).is_some());
    if !constants || !node.op.ints().all(|int| matches!(int, super::Int::Const(_))) || !node.outputs.iter().all(known) {
        return None;
    }
    Step::new(graph, node, &[], &[]).ok()?.run().ok()
}
