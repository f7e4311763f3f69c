//! Grows a method's plan: values of a graph become values of the plan, parts become instructions, and at the end every
//! tensor gets its memory.

use super::assets::Assets;
use super::error::LowerError;
use super::memory::{self, Request};
use crate::base::storage::Blob;
use crate::graph::{Graph, Int, Quantization, State, StateId, SymbolId, SymbolSource, ValueId, ValueKind};
use crate::pte::{
    BackendDelegate, Chain, EValue, ExecutionPlan, Instruction, OperatorName, ShapeDynamism, TensorData, TensorValue,
};
use crate::tensor::{DType, Dims};
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

/// Values that never change, so that one of each is enough.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Literal {
    Null,
    Int(i64),
    Bool(bool),
    /// As bits.
    Double(u64),
    Text(&'static str),
    /// Elements are values of the plan.
    Ints(Vec<u32>),
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

    fn literal(&mut self, literal: Literal) -> u32 {
        if let Some(&index) = self.literals.get(&literal) {
            return index;
        }
        let index = self.plan.push(match literal.clone() {
            Literal::Null => EValue::Null,
            Literal::Int(int) => EValue::Int(int),
            Literal::Bool(bool) => EValue::Bool(bool),
            Literal::Double(bits) => EValue::Double(f64::from_bits(bits)),
            Literal::Text(text) => EValue::String(text.to_owned()),
            Literal::Ints(items) => EValue::IntList(items),
        });
        self.literals.insert(literal, index);
        index
    }

    /// Nothing, for an optional argument.
    pub fn null(&mut self) -> u32 {
        self.literal(Literal::Null)
    }

    /// An integer argument.
    pub fn int(&mut self, int: i64) -> u32 {
        self.literal(Literal::Int(int))
    }

    /// A truth value.
    pub fn bool(&mut self, bool: bool) -> u32 {
        self.literal(Literal::Bool(bool))
    }

    /// A real number.
    pub fn double(&mut self, real: f64) -> u32 {
        self.literal(Literal::Double(real.to_bits()))
    }

    /// A text.
    pub fn text(&mut self, text: &'static str) -> u32 {
        self.literal(Literal::Text(text))
    }

    /// A list of integers.
    pub fn ints(&mut self, ints: &[i64]) -> u32 {
        let items = ints.iter().map(|&int| self.int(int)).collect();
        self.literal(Literal::Ints(items))
    }

    /// A list of integers that may be known only at run time.
    pub fn sizes(&mut self, ints: &[Int]) -> u32 {
        let items = ints.iter().map(|&int| self.integer(int)).collect();
        self.literal(Literal::Ints(items))
    }

    /// A list of tensors.
    pub(super) fn tensors(&mut self, items: Vec<u32>) -> u32 {
        self.plan.push(EValue::TensorList(items))
    }

    /// A list of tensors of which some are missing.
    pub(super) fn optional_tensors(&mut self, items: Vec<Option<u32>>) -> u32 {
        self.plan.push(EValue::OptionalTensorList(items))
    }

    /// An integer of the graph; a symbol is computed where it is first used.
    pub fn integer(&mut self, int: Int) -> u32 {
        match int {
            Int::Const(int) => self.int(int),
            Int::Symbol(id) => match self.symbols[id.0 as usize] {
                Some(index) => index,
                None => {
                    let index = super::symbols::compute(self, self.graph.symbols[id.0 as usize].source);
                    self.symbols[id.0 as usize] = Some(index);
                    index
                }
            },
        }
    }

    /// An integer that the graph has no symbol for, or may have one for.
    pub(super) fn derived(&mut self, source: SymbolSource) -> u32 {
        if let Some(symbol) = self.graph.symbols.iter().position(|symbol| symbol.source == source) {
            return self.integer(Int::Symbol(SymbolId(symbol as u32)));
        }
        if let Some((_, index)) = self.derived.iter().find(|(known, _)| *known == source) {
            return *index;
        }
        let index = super::symbols::compute(self, source);
        self.derived.push((source, index));
        index
    }

    /// The tensor that holds `start..start + count`, if [`Self::remember_range`] named one.
    pub(super) fn range(&self, start: Int, count: Int) -> Option<u32> {
        self.ranges.get(&(start, count)).copied()
    }

    /// Says that tensor `index` holds numbers from the first of the pair on, as many as the second says.
    pub(super) fn remember_range(&mut self, range: (Int, Int), index: u32) {
        self.ranges.insert(range, index);
    }

    /// An integer that instructions set.
    pub(super) fn integer_result(&mut self) -> u32 {
        self.plan.push(EValue::Int(0))
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

/// In `buffer`, at a place that is found when everything is known.
fn planned(buffer: u32) -> TensorData {
    TensorData::Planned { buffer, offset: 0, initial: None }
}
