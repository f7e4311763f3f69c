//! Follows a method's instructions, in order, and grows its graph: which value each tensor holds, which integers are known
//! only at run time, which planned tensors live from run to run.

use super::call::Call;
use super::contents::{Contents, Found, Place, overlap};
use super::{Fit, Unfit, delegate, find, sizes};
use crate::error::Result;
use crate::graph::{Graph, InputAxes, Int, NodeId, Op, StateId, ValueId};
use crate::pte::{EValue, ExecutionPlan, Instruction, ShapeDynamism, TensorData, TensorValue};
use crate::runtime::MethodSource;
use crate::tensor::{DType, MAX_RANK, element_count};
use std::collections::HashMap;

/// Most instructions of a method that is traced.
const MAX_INSTRUCTIONS: usize = 1 << 20;

/// Most rounds of finding equal sizes.
const MAX_ROUNDS: usize = 64;

/// A method as a graph, and where its inputs, outputs and states are among the method's values.
#[derive(Debug)]
pub(in crate::ops) struct Traced {
    pub graph: Graph,
    pub inputs: Vec<u32>,
    pub outputs: Vec<u32>,
    pub states: Vec<u32>,
}

/// Traces the method of `source`.
///
/// # Errors
/// The outer: what stops the method in any case. The inner: why it has no graph.
pub(in crate::ops) fn trace(source: &MethodSource<'_>) -> Result<Result<Traced, String>> {
    let plan = source.plan;
    let instructions: usize = plan.chains.iter().map(|chain| chain.instructions.len()).sum();
    if instructions > MAX_INSTRUCTIONS {
        return Ok(Err(format!("it has {instructions} instructions")));
    }
    let delegates = delegate::decode(source)?;
    let dims = tensors(plan, &plan.inputs).map(|(_, tensor)| (&tensor.sizes[..], is_dynamic(tensor)));
    let mut axes = InputAxes::new(dims);
    for _ in 0..MAX_ROUNDS {
        let mut method = Method::new(source, &delegates);
        match method.run(&axes) {
            Ok(()) => return Ok(Ok(method.traced)),
            Err(Unfit::Unequal(left, right)) if axes.unite(&method.traced.graph, left, right) => {}
            Err(Unfit::Unequal(left, right)) => {
                let name = |int| match int {
                    Int::Const(value) => value.to_string(),
                    Int::Symbol(id) => method.traced.graph.symbols[id.0 as usize].name.clone(),
                };
                let (left, right) = (name(left), name(right));
                return Ok(Err(format!("{}: sizes {left} and {right} would have to be equal", method.place)));
            }
            Err(Unfit::Why(why)) if method.place.is_empty() => return Ok(Err(why)),
            Err(Unfit::Why(why)) => return Ok(Err(format!("{}: {why}", method.place))),
        }
    }
    Ok(Err("which of its sizes are equal could not be found".into()))
}

/// The tensors among `values`.
fn tensors<'a>(plan: &'a ExecutionPlan, values: &'a [u32]) -> impl Iterator<Item = (u32, &'a TensorValue)> {
    values.iter().filter_map(|&value| match &plan.values[value as usize] {
        EValue::Tensor(tensor) => Some((value, tensor)),
        _ => None,
    })
}

fn is_dynamic(tensor: &TensorValue) -> bool {
    tensor.dynamism != ShapeDynamism::Static
}

/// A method that is being traced.
pub(super) struct Method<'a> {
    source: &'a MethodSource<'a>,
    delegates: &'a [delegate::Decoded],
    traced: Traced,
    contents: Contents,
    /// Of tensors that are views of others.
    places: HashMap<u32, Place>,
    /// Of tensors that were written or made views.
    shapes: HashMap<u32, Vec<Int>>,
    /// Integers that instructions have set.
    integers: HashMap<u32, Int>,
    constants: HashMap<u32, ValueId>,
    /// Values in other shapes.
    views: HashMap<(ValueId, Vec<Int>), ValueId>,
    /// Of each state: its place, and the value that it holds before a run.
    states: Vec<(Place, ValueId)>,
    producers: HashMap<ValueId, NodeId>,
    /// How many nodes are in `producers`.
    indexed: usize,
    /// Codes of `choose_qparams_per_token_asymmetric` by its scales.
    pub(super) codes: HashMap<ValueId, super::quantized::PerToken>,
    /// The current instruction, for messages and origins.
    place: String,
}

impl<'a> Method<'a> {
    fn new(source: &'a MethodSource<'a>, delegates: &'a [delegate::Decoded]) -> Self {
        let graph = Graph::new(source.plan.name.clone());
        Self {
            source,
            delegates,
            traced: Traced { graph, inputs: Vec::new(), outputs: Vec::new(), states: Vec::new() },
            contents: Contents::default(),
            places: HashMap::new(),
            shapes: HashMap::new(),
            integers: HashMap::new(),
            constants: HashMap::new(),
            views: HashMap::new(),
            states: Vec::new(),
            producers: HashMap::new(),
            indexed: 0,
            codes: HashMap::new(),
            place: String::new(),
        }
    }

    fn run(&mut self, axes: &InputAxes) -> Fit {
        let plan = self.source.plan;
        self.add_inputs(axes)?;
        let instructions = plan.chains.iter().flat_map(|chain| &chain.instructions);
        for (number, instruction) in instructions.enumerate() {
            self.instruction(number, instruction)?;
        }
        self.place.clear();
        self.add_outputs()?;
        self.settle_states()
    }

    fn add_inputs(&mut self, axes: &InputAxes) -> Fit {
        let plan = self.source.plan;
        for (input, (value, tensor)) in tensors(plan, &plan.inputs).enumerate() {
            self.check_tensor(tensor)?;
            if self.traced.inputs.contains(&value) {
                return Unfit::why(format!("value {value} is two inputs"));
            }
            if matches!(tensor.data, TensorData::Constant { .. } | TensorData::External) {
                return Unfit::why(format!("input {input} is a constant"));
            }
            let shape = axes.shape(&mut self.traced.graph, input);
            let id = self.traced.graph.add_input(format!("input {input}"), tensor.dtype, shape.clone());
            self.traced.inputs.push(value);
            self.contents.write(place(value, tensor), id);
            self.shapes.insert(value, shape);
        }
        Ok(())
    }

    fn instruction(&mut self, number: usize, instruction: &'a Instruction) -> Fit {
        let plan = self.source.plan;
        match instruction {
            Instruction::Kernel { operator, args } => {
                let name = plan.operators[*operator as usize].to_string();
                self.place = format!("{name} #{number}");
                let Some(form) = find(&name) else { return Unfit::why("this operator has no graph form") };
                form(&mut Call::new(self, args))
            }
            Instruction::Delegate { delegate, args } => {
                self.place = format!("delegate {delegate} #{number}");
                let decoded = &self.delegates[*delegate as usize];
                delegate::lower(&mut Call::new(self, args), *delegate, decoded)
            }
            // What is freed is not read again.
            Instruction::Free { .. } => Ok(()),
            Instruction::Move { .. } => Unfit::why(format!("instruction {number} is a move")),
            Instruction::JumpFalse { .. } => Unfit::why(format!("instruction {number} is a jump")),
        }
    }

    fn add_outputs(&mut self) -> Fit {
        let plan = self.source.plan;
        if let Some(output) = plan.outputs.iter().find(|output| self.integers.contains_key(output)) {
            return Unfit::why(format!("output value {output} is an integer that the method computes"));
        }
        for (value, _) in tensors(plan, &plan.outputs) {
            let id = self.tensor(value)?;
            self.traced.graph.outputs.push(id);
            self.traced.outputs.push(value);
        }
        if self.traced.outputs.is_empty() { Unfit::why("it gives no tensor") } else { Ok(()) }
    }

    /// What each state holds at the end, and that no output is written over one.
    fn settle_states(&mut self) -> Fit {
        for (state, (place, before)) in self.states.clone().into_iter().enumerate() {
            let name = self.traced.graph.states[state].name.clone();
            let Found::Value(mut after) = self.contents.at(place) else {
                return Unfit::why(format!("what lives from run to run in {} is overwritten", name));
            };
            if after != before {
                let (old, new) = (self.graph().value(before).clone(), self.graph().value(after).clone());
                if old.dtype != new.dtype {
                    return Unfit::why(format!("{} of {} becomes {}", name, old.dtype, new.dtype));
                }
                if old.shape != new.shape {
                    after = self.emit(Op::Reshape, &[after], new.dtype, old.shape);
                }
                self.traced.graph.state_updates.push((StateId(state as u32), after));
            }
            for &output in &self.traced.outputs {
                let own = self.own_place(output)?;
                if own != place && overlap(own, place) {
                    return Unfit::why(format!("output value {output} lies over {name}"));
                }
            }
        }
        Ok(())
    }

    /// The graph so far.
    pub fn graph(&self) -> &Graph {
        &self.traced.graph
    }

    /// The graph so far, to add to.
    pub fn graph_mut(&mut self) -> &mut Graph {
        &mut self.traced.graph
    }

    /// Adds a node with one result.
    pub fn emit(&mut self, op: Op, inputs: &[ValueId], dtype: DType, shape: Vec<Int>) -> ValueId {
        let output = self.traced.graph.emit(self.place.clone(), op, inputs, dtype, shape);
        self.index_new_nodes();
        output
    }

    /// Adds a node with results that were added before.
    pub fn add_node(&mut self, op: Op, inputs: &[ValueId], outputs: &[ValueId]) {
        self.traced.graph.add_node(self.place.clone(), op, inputs, outputs);
        self.index_new_nodes();
    }

    /// Takes notice of nodes that were added to the graph directly.
    pub fn index_new_nodes(&mut self) {
        let known = self.indexed;
        let new = self.traced.graph.nodes.iter().enumerate().skip(known);
        self.producers.extend(new.flat_map(|(id, node)| node.outputs.iter().map(move |&output| (output, id))));
        self.indexed = self.traced.graph.nodes.len();
    }

    /// The node that makes `value`.
    pub fn producer(&self, value: ValueId) -> Option<&crate::graph::Node> {
        self.producers.get(&value).map(|&id| &self.traced.graph.nodes[id])
    }

    /// Value `value` of the plan.
    pub fn value(&self, value: u32) -> &'a EValue {
        &self.source.plan.values[value as usize]
    }

    /// Tensor `value` of the plan.
    pub fn plan_tensor(&self, value: u32) -> Fit<&'a TensorValue> {
        match self.value(value) {
            EValue::Tensor(tensor) => Ok(tensor),
            _ => Unfit::why(format!("value {value} is no tensor")),
        }
    }

    /// An integer, as instructions have left it.
    pub fn integer(&self, value: u32) -> Fit<Int> {
        match (self.integers.get(&value), self.value(value)) {
            (Some(&int), _) => Ok(int),
            (None, EValue::Int(int)) => Ok(Int::Const(*int)),
            _ => Unfit::why(format!("value {value} is no integer")),
        }
    }

    /// Whether instructions have set the scalar `value`.
    pub fn is_computed(&self, value: u32) -> bool {
        self.integers.contains_key(&value)
    }

    /// Sets an integer.
    pub fn set_integer(&mut self, value: u32, int: Int) -> Fit {
        match self.value(value) {
            EValue::Tensor(_) => Unfit::why(format!("value {value} is a tensor where an integer is set")),
            _ => {
                self.integers.insert(value, int);
                Ok(())
            }
        }
    }

    /// What tensor `value` holds now, in its current shape.
    pub fn tensor(&mut self, value: u32) -> Fit<ValueId> {
        let tensor = self.plan_tensor(value)?;
        self.check_tensor(tensor)?;
        let place = self.place_of(value)?;
        let id = match (place, self.contents.at(place)) {
            (Place::Constant(of), _) => self.constant(of)?,
            (_, Found::Value(id)) => id,
            (Place::Planned { .. }, Found::Untouched) => self.add_state(value, tensor, place)?,
            (_, Found::Untouched) => return Unfit::why(format!("value {value} is read before it is written")),
            (_, Found::Overwritten) => {
                return Unfit::why(format!("value {value} is read after its memory was partly overwritten"));
            }
        };
        let found = self.graph().value(id);
        if found.dtype != tensor.dtype {
            return Unfit::why(format!("value {value} of {} is read from bytes of {}", tensor.dtype, found.dtype));
        }
        let shape = match self.shapes.get(&value) {
            Some(shape) => shape.clone(),
            None if is_dynamic(tensor) && !matches!(place, Place::Constant(_)) => {
                return Unfit::why(format!("value {value} has no known shape"));
            }
            None => dims(tensor),
        };
        if found.shape == shape {
            return Ok(id);
        }
        // The same view is the same value, so that what is said of one is known of the other.
        if let Some(&known) = self.views.get(&(id, shape.clone())) {
            return Ok(known);
        }
        let from = found.shape.clone();
        let shape = sizes::reshape(self.graph_mut(), &from, &shape)?;
        let view = self.emit(Op::Reshape, &[id], tensor.dtype, shape.clone());
        self.views.insert((id, shape), view);
        Ok(view)
    }

    /// Current shape of tensor `value`.
    pub fn shape(&mut self, value: u32) -> Fit<Vec<Int>> {
        let id = self.tensor(value)?;
        Ok(self.graph().value(id).shape.clone())
    }

    /// Writes `id` to tensor `value`, which takes its shape.
    pub fn write(&mut self, value: u32, id: ValueId) -> Fit {
        let tensor = self.plan_tensor(value)?;
        self.check_tensor(tensor)?;
        let written = self.graph().value(id).clone();
        if written.dtype != tensor.dtype || written.quantization.is_some() {
            return Unfit::why(format!("{} is stored as {}", written.dtype, tensor.dtype));
        }
        check_shape(tensor, &written.shape)?;
        check_size(&self.graph().max_shape(id))?;
        let place = self.place_of(value)?;
        if let Place::Constant(_) = place {
            return Unfit::why(format!("value {value}, a constant, is written"));
        }
        // A named tensor lives from run to run, read or not.
        let named = tensor.fully_qualified_name.is_some() && matches!(place, Place::Planned { .. });
        if named && self.contents.at(place) == Found::Untouched {
            self.add_state(value, tensor, place)?;
        }
        self.contents.write(place, id);
        self.shapes.insert(value, written.shape);
        Ok(())
    }

    /// Makes tensor `value` a view of tensor `of`, with this shape.
    pub fn view(&mut self, value: u32, of: u32, shape: Vec<Int>) -> Fit {
        let (tensor, source) = (self.plan_tensor(value)?, self.plan_tensor(of)?);
        self.check_tensor(tensor)?;
        if tensor.dtype != source.dtype {
            return Unfit::why(format!("a view of {} as {}", source.dtype, tensor.dtype));
        }
        check_shape(tensor, &shape)?;
        let place = self.place_of(of)?;
        self.places.insert(value, place);
        self.shapes.insert(value, shape);
        Ok(())
    }

    /// A constant of the file as it is.
    pub fn constant(&mut self, value: u32) -> Fit<ValueId> {
        if let Some(&known) = self.constants.get(&value) {
            return Ok(known);
        }
        let tensor = self.plan_tensor(value)?;
        let data = match self.source.constant(tensor) {
            Ok(Some(data)) => data,
            Ok(None) => return Unfit::why(format!("value {value} is no constant")),
            Err(error) => return Unfit::why(error.chain()),
        };
        let name = tensor.fully_qualified_name.clone().unwrap_or_else(|| format!("value {value}"));
        let id = self.graph_mut().add_constant(name, tensor.dtype, &tensor.sizes, None, data);
        self.constants.insert(value, id);
        Ok(id)
    }

    /// Whether tensor `value` is a constant of the file.
    pub fn is_constant(&self, value: u32) -> Fit<bool> {
        Ok(matches!(self.place_of(value)?, Place::Constant(_)))
    }

    fn place_of(&self, value: u32) -> Fit<Place> {
        match self.places.get(&value) {
            Some(&place) => Ok(place),
            None => self.own_place(value),
        }
    }

    fn own_place(&self, value: u32) -> Fit<Place> {
        Ok(place(value, self.plan_tensor(value)?))
    }

    /// Takes a planned tensor for one that lives from run to run: it is read, and nothing has been written there.
    fn add_state(&mut self, value: u32, tensor: &TensorValue, place: Place) -> Fit<ValueId> {
        if is_dynamic(tensor) || self.own_place(value)? != place {
            return Unfit::why(format!("value {value}, which may live from run to run, has no fixed shape"));
        }
        let name = tensor.fully_qualified_name.clone().unwrap_or_else(|| format!("value {value}"));
        let (_, id) = self.graph_mut().add_state(name, tensor.dtype, &tensor.sizes);
        self.traced.states.push(value);
        self.states.push((place, id));
        self.contents.write(place, id);
        Ok(id)
    }

    fn check_tensor(&self, tensor: &TensorValue) -> Fit {
        if tensor.dim_order.iter().enumerate().any(|(place, &dim)| place != usize::from(dim)) {
            return Unfit::why(format!("dimensions in the order {:?}", tensor.dim_order));
        }
        if tensor.sizes.len() > MAX_RANK {
            return Unfit::why(format!("{} dimensions", tensor.sizes.len()));
        }
        check_size(&tensor.sizes)?;
        if tensor.dynamism == ShapeDynamism::DynamicUnbound {
            return Unfit::why("sizes without a limit");
        }
        Ok(())
    }
}

/// No product of sizes may be absurd, not even beside a size of zero.
fn check_size(dims: &[usize]) -> Fit {
    let sizes: Vec<usize> = dims.iter().map(|&dim| dim.max(1)).collect();
    if element_count(&sizes).is_ok() { Ok(()) } else { Unfit::why(format!("a tensor of sizes {dims:?}")) }
}

fn dims(tensor: &TensorValue) -> Vec<Int> {
    tensor.sizes.iter().map(|&dim| dim.into()).collect()
}

fn place(value: u32, tensor: &TensorValue) -> Place {
    match tensor.data {
        TensorData::Unplanned => Place::Own(value),
        TensorData::Constant { .. } | TensorData::External => Place::Constant(value),
        TensorData::Planned { buffer, offset, .. } | TensorData::ExternalMutable { buffer, offset } => {
            Place::Planned { buffer, start: offset, end: offset.saturating_add(tensor.byte_len() as u64) }
        }
    }
}

/// What is written has as many axes as the tensor, and its sizes where those are fixed.
fn check_shape(tensor: &TensorValue, shape: &[Int]) -> Fit {
    if shape.len() != tensor.sizes.len() {
        return Unfit::why(format!("{} dimensions are stored in {}", shape.len(), tensor.sizes.len()));
    }
    if is_dynamic(tensor) {
        return Ok(());
    }
    shape.iter().zip(&tensor.sizes).try_for_each(|(&have, &want)| sizes::equal(have, want.into()))
}
