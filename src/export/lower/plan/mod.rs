//! Grows a method's plan: values of a graph become values of the plan, parts become instructions, and at the end every
//! tensor gets its memory.

mod arguments;
mod finish;

use super::assets::Assets;
use super::error::LowerError;
use crate::base::storage::Blob;
use crate::graph::{Graph, Int, Quantization, State, StateId, SymbolSource, ValueId, ValueKind};
use crate::pte::{
    BackendDelegate, EValue, ExecutionPlan, Instruction, OperatorName, ShapeDynamism, TensorData, TensorValue,
};
use crate::tensor::{DType, Dims};
use arguments::Literal;
use std::collections::HashMap;

type Result<T, E = LowerError> = std::result::Result<T, E>;

/// Planned buffer of what lives within a run.
const ACTIVATIONS: u32 = 1;
/// Planned buffer of what lives from run to run.
const STATES: u32 = 2;

/// A plan under construction.
///
/// What the caller exchanges with a static method is unplanned, as in upstream's static programs: it brings the memory.
/// A method with run-time sizes has planned outputs, as upstream's `forward` programs do.
pub struct PlanBuilder<'g, 'a> {
    graph: &'g Graph,
    assets: &'a mut Assets,
    plan: ExecutionPlan,
    instructions: Vec<Instruction>,
    /// The plan's value of each of the graph's.
    tensors: Vec<Option<u32>>,
    /// The plan's integer of each of the graph's symbols.
    symbols: Vec<Option<u32>>,
    /// Tensors of numbers in a row, by the first and how many.
    ranges: HashMap<(Int, Int), u32>,
    /// Integers that are no symbol of the graph.
    derived: Vec<(SymbolSource, u32)>,
    literals: HashMap<Literal, u32>,
    operators: HashMap<String, u32>,
    states: Vec<Option<u32>>,
    /// Values of the plan whose memory is another's: the view, and what it looks at.
    views: HashMap<u32, u32>,
    /// Graph outputs that a part writes itself.
    bound: Vec<ValueId>,
}

impl<'g, 'a> PlanBuilder<'g, 'a> {
    /// A plan of `graph`'s name, inputs and states, without instructions.
    ///
    /// # Errors
    /// An input that no tensor can be.
    pub fn new(graph: &'g Graph, assets: &'a mut Assets) -> Result<Self> {
        let bound = graph.outputs.iter().copied().filter(|&id| graph.value(id).kind == ValueKind::Computed).collect();
        let mut builder = Self {
            graph,
            assets,
            plan: ExecutionPlan { name: graph.name.clone(), ..ExecutionPlan::default() },
            instructions: Vec::new(),
            tensors: vec![None; graph.values.len()],
            symbols: vec![None; graph.symbols.len()],
            ranges: HashMap::new(),
            derived: Vec::new(),
            literals: HashMap::new(),
            operators: HashMap::new(),
            states: vec![None; graph.states.len()],
            views: HashMap::new(),
            bound,
        };
        for &input in &graph.inputs {
            let tensor = builder.tensor_of(input, TensorData::Unplanned)?;
            let index = builder.plan.push(EValue::Tensor(tensor));
            builder.plan.inputs.push(index);
            builder.tensors[input.0 as usize] = Some(index);
        }
        Ok(builder)
    }

    /// The graph that this is the plan of.
    pub fn graph(&self) -> &'g Graph {
        self.graph
    }

    pub(super) fn assets(&mut self) -> &mut Assets {
        self.assets
    }

    /// True for graph outputs in memory of the caller: what makes them must write there.
    pub(super) fn is_unplanned_output(&self, id: ValueId) -> bool {
        self.graph.symbols.is_empty() && self.bound.contains(&id)
    }

    /// The tensor of a graph value that is there already: an input, a state, a constant, or what a part made.
    ///
    /// # Errors
    /// `Unmade`; a constant that no tensor can be.
    pub fn operand(&mut self, id: ValueId) -> Result<u32> {
        if let Some(index) = self.tensors[id.0 as usize] {
            return Ok(index);
        }
        let value = self.graph.value(id);
        let index = match &value.kind {
            ValueKind::Constant(constant) => {
                let index = self.assets.constant(&constant.data);
                let tensor = self.tensor_of(id, TensorData::Constant { index })?;
                self.plan.push(EValue::Tensor(tensor))
            }
            ValueKind::State(state) => self.state(*state),
            ValueKind::Input(_) | ValueKind::Computed => {
                return Err(LowerError::Unmade { value: value.name.clone() });
            }
        };
        self.tensors[id.0 as usize] = Some(index);
        Ok(index)
    }

    /// The tensor of a state.
    fn state(&mut self, id: StateId) -> u32 {
        if let Some(index) = self.states[id.0 as usize] {
            return index;
        }
        let State { name, dtype, shape } = &self.graph.states[id.0 as usize];
        let mut tensor = TensorValue::new(*dtype, shape.clone(), planned(STATES));
        tensor.fully_qualified_name = Some(name.clone());
        let index = self.plan.push(EValue::Tensor(tensor));
        self.states[id.0 as usize] = Some(index);
        index
    }

    /// The tensor that is to hold a graph value from now on.
    ///
    /// # Errors
    /// A value that no tensor can be.
    pub fn result(&mut self, id: ValueId) -> Result<u32> {
        let data = if self.is_unplanned_output(id) { TensorData::Unplanned } else { planned(ACTIVATIONS) };
        let tensor = self.tensor_of(id, data)?;
        let index = self.plan.push(EValue::Tensor(tensor));
        self.tensors[id.0 as usize] = Some(index);
        Ok(index)
    }

    /// Says that tensor `index` holds graph value `id`: a state after its update in place.
    pub(super) fn set(&mut self, id: ValueId, index: u32) {
        self.tensors[id.0 as usize] = Some(index);
    }

    /// A tensor that the graph does not know.
    pub(super) fn temporary(&mut self, dtype: DType, shape: &[Int]) -> u32 {
        let tensor = self.tensor(dtype, shape, planned(ACTIVATIONS));
        self.plan.push(EValue::Tensor(tensor))
    }

    /// A constant that the graph does not know.
    pub(super) fn constant(&mut self, dtype: DType, dims: Dims, data: &Blob) -> u32 {
        let index = self.assets.constant(data);
        self.plan.push(EValue::Tensor(TensorValue::new(dtype, dims, TensorData::Constant { index })))
    }

    /// `x` at other sizes, in the same memory: its own must be planned.
    pub(super) fn view(&mut self, x: u32, dtype: DType, shape: &[Int]) -> u32 {
        let sizes = self.sizes(shape);
        let view = self.temporary(dtype, shape);
        self.views.insert(view, x);
        self.kernel("executorch_prim::et_view.default", &[x, sizes, view]);
        view
    }

    /// True where `index` is a tensor in planned memory.
    pub(super) fn is_planned(&self, index: u32) -> bool {
        matches!(
            &self.plan.values[index as usize],
            EValue::Tensor(TensorValue { data: TensorData::Planned { .. }, .. })
        )
    }

    /// Calls an operator by its full name with these values; those that it writes come last.
    pub fn kernel(&mut self, name: &str, args: &[u32]) {
        let operator = *self.operators.entry(name.to_owned()).or_insert_with(|| {
            self.plan.operators.push(OperatorName::parse(name));
            self.plan.operators.len() as u32 - 1
        });
        self.instructions.push(Instruction::Kernel { operator, args: args.to_vec() });
    }

    /// As [`Self::kernel`], for an operator with an output argument: it is among the arguments and the result too.
    pub fn call(&mut self, name: &str, args: &[u32], out: u32) {
        let args: Vec<u32> = args.iter().copied().chain([out, out]).collect();
        self.kernel(name, &args);
    }

    /// Calls a delegate, whose arguments are `inputs` and then `outputs`.
    ///
    /// # Errors
    /// An input that nothing made; values that no tensor can be.
    pub fn delegate(&mut self, delegate: BackendDelegate, inputs: &[ValueId], outputs: &[ValueId]) -> Result<()> {
        let mut args = inputs.iter().map(|&id| self.operand(id)).collect::<Result<Vec<_>>>()?;
        for &id in outputs {
            args.push(self.result(id)?);
        }
        self.plan.delegates.push(delegate);
        let delegate = self.plan.delegates.len() as u32 - 1;
        self.instructions.push(Instruction::Delegate { delegate, args });
        Ok(())
    }

    /// The plan's value of graph input `input`.
    pub(super) fn input(&self, input: usize) -> u32 {
        self.plan.inputs[input]
    }

    fn tensor(&self, dtype: DType, shape: &[Int], data: TensorData) -> TensorValue {
        let sizes = shape.iter().map(|&dim| self.graph.bounds(dim).1.max(0) as usize).collect();
        let mut tensor = TensorValue::new(dtype, sizes, data);
        if shape.iter().any(|dim| matches!(dim, Int::Symbol(_))) {
            tensor.dynamism = ShapeDynamism::DynamicBound;
        }
        tensor
    }

    fn tensor_of(&self, id: ValueId, data: TensorData) -> Result<TensorValue> {
        let value = self.graph.value(id);
        match value.quantization {
            None | Some(Quantization::PerTensor { .. }) => Ok(self.tensor(value.dtype, &value.shape, data)),
            Some(_) => Err(LowerError::value(self.graph, id, "its codes have no form outside a delegate")),
        }
    }
}

/// In `buffer`, at a place that is found when everything is known.
fn planned(buffer: u32) -> TensorData {
    TensorData::Planned { buffer, offset: 0, initial: None }
}
