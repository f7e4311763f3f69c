//! Says which QNN operations each node of a graph becomes. One file a family of operations.

mod constant;
mod convert;
mod elementwise;
mod linear;
mod lookup;
mod movement;
mod normalize;

use super::composer::Composer;
use super::error::CompileError;
use super::operation::{Operation, TensorId};
use super::tensor::{Coding, Role, TensorSpec};
use crate::error::{Error, Result};
use crate::graph::{Graph, Int, Node, Op, Quantization, Value, ValueId, ValueKind};
use crate::qnn::QnnError;
use crate::qnn::sys;
use crate::tensor::{DType, Encoding};
use std::collections::HashMap;

/// A graph on its way into a composer.
pub(super) struct Lowering<'a> {
    graph: &'a Graph,
    composer: Composer<'a>,
    /// Tensors of inputs, outputs, computed values, and of constants that hold codes.
    tensors: HashMap<ValueId, TensorId>,
    /// Real constants, quantized to so many bits.
    quantized: HashMap<(ValueId, u8), TensorId>,
    /// Values in other shapes.
    reshaped: HashMap<(ValueId, Vec<usize>), TensorId>,
    made: usize,
}

/// What a node's operation writes to, and the operations that bring it from there to the node's result.
struct Delivery {
    into: TensorId,
    then: Vec<Operation>,
}

impl<'a> Lowering<'a> {
    pub(super) fn new(graph: &'a Graph, composer: Composer<'a>) -> Self {
        let (tensors, quantized, reshaped) = Default::default();
        Self { graph, composer, tensors, quantized, reshaped, made: 0 }
    }

    /// Lowers all nodes and compiles the result.
    pub(super) fn run(mut self) -> Result<()> {
        let graph = self.graph;
        if let Some(state) = graph.states.first() {
            let state = state.name.clone();
            return Err(CompileError::State { graph: graph.name.clone(), state }.into());
        }
        self.declare_arguments()?;
        for node in &graph.nodes {
            self.node(node).map_err(|error| self.located(error, node))?;
        }
        self.composer.finalize().map_err(|error| detailed(error, format!("graph {}", graph.name)))
    }

    /// Tensors of the caller's come first and in order, so that the context binary lists them so.
    fn declare_arguments(&mut self) -> Result<()> {
        let graph = self.graph;
        let uses = graph.use_counts();
        for (index, &id) in graph.inputs.iter().enumerate() {
            let value = graph.value(id);
            if uses[id.0 as usize] == 0 {
                return Err(CompileError::UnusedInput { graph: graph.name.clone(), input: value.name.clone() }.into());
            }
            let name = format!("input_{index}_{}@0", plain(&value.name));
            self.declare(id, name, Role::Input)?;
        }
        for (index, &id) in graph.outputs.iter().enumerate() {
            let value = graph.value(id);
            let (name, output) = (graph.name.clone(), value.name.clone());
            if value.kind != ValueKind::Computed {
                return Err(CompileError::PassThrough { graph: name, output }.into());
            }
            if self.tensors.contains_key(&id) {
                return Err(CompileError::RepeatedOutput { graph: name, output }.into());
            }
            let name = format!("output_{index}_{}@0", plain(&value.name));
            self.declare(id, name, Role::Output)?;
        }
        Ok(())
    }

    fn declare(&mut self, id: ValueId, name: String, role: Role) -> Result<TensorId> {
        let (data_type, coding) = self.element(id)?;
        let dims = self.dims(id)?;
        let tensor = self.composer.tensor(&TensorSpec { name, role, data_type, dims, coding })?;
        self.tensors.insert(id, tensor);
        Ok(tensor)
    }

    fn node(&mut self, node: &Node) -> Result<()> {
        match &node.op {
            Op::FullyConnected => linear::fully_connected(self, node),
            Op::MatMul { transpose_b } => linear::matmul(self, node, *transpose_b),
            Op::Embedding => lookup::embedding(self, node),
            Op::RmsNorm { epsilon } => normalize::rms_norm(self, node, *epsilon),
            Op::Softmax { axis } => normalize::softmax(self, node, *axis),
            Op::Mean { axes } => normalize::mean(self, node, axes),
            Op::Unary(op) => elementwise::unary(self, node, *op),
            Op::Binary(op) => elementwise::binary(self, node, *op),
            Op::Clamp { min, max } => elementwise::clamp(self, node, [*min, *max]),
            Op::Convert => convert::convert(self, node),
            Op::Reshape => movement::reshape(self, node),
            Op::Permute { perm } => movement::permute(self, node, perm),
            Op::Slice { axis, start, step } => movement::slice(self, node, movement::Cut::new(*axis, *start, *step)),
            Op::Concat { axis } => movement::concat(self, node, *axis),
            Op::Expand => movement::expand(self, node),
            Op::Rotary { .. } | Op::SwiGlu => Err(self.refuse(node, "it must be decomposed before")),
            _ => Err(self.refuse(node, "the HTP has no such operation")),
        }
    }

    /// An error of this node.
    fn refuse(&self, node: &Node, why: impl Into<String>) -> Error {
        let (graph, origin, op) = (self.graph.name.clone(), node.origin.clone(), format!("{:?}", node.op));
        CompileError::Node { graph, origin, op, why: why.into() }.into()
    }

    fn bad_value(&self, id: ValueId, why: impl Into<String>) -> Error {
        let (graph, value) = (self.graph.name.clone(), self.graph.value(id).name.clone());
        CompileError::Value { graph, value, why: why.into() }.into()
    }

    /// Says to which node an error of the library belongs.
    fn located(&self, error: Error, node: &Node) -> Error {
        detailed(error, format!("graph {}, node {} ({:?})", self.graph.name, node.origin, node.op))
    }

    fn dims(&self, id: ValueId) -> Result<Vec<usize>> {
        let known = |dim: &Int| match dim {
            Int::Const(size) => usize::try_from(*size).ok(),
            Int::Symbol(_) => None,
        };
        let dims: Option<Vec<usize>> = self.graph.value(id).shape.iter().map(known).collect();
        dims.ok_or_else(|| self.bad_value(id, "its shape is known only when the graph runs"))
    }

    /// QNN's element type of a value, and how its codes stand for reals.
    fn element(&self, id: ValueId) -> Result<(u32, Coding)> {
        let value = self.graph.value(id);
        element_of(value).ok_or_else(|| self.bad_value(id, format!("the HTP has no {} of this encoding", value.dtype)))
    }

    /// The encoding of a value of 8 or 16 bits; `None` for all others.
    fn encoding(&self, id: ValueId) -> Option<Encoding> {
        per_tensor(self.graph.value(id))
    }

    /// Bits of an element.
    fn bits(&self, id: ValueId) -> u8 {
        8 * self.graph.value(id).dtype.size() as u8
    }

    /// Operand `id` of a node whose result has `bits`, to which real constants are quantized.
    fn operand(&mut self, id: ValueId, bits: u8) -> Result<TensorId> {
        if let Some(&tensor) = self.tensors.get(&id) {
            return Ok(tensor);
        }
        if self.graph.constant(id).is_some() {
            return self.constant(id, bits);
        }
        Err(self.bad_value(id, "it is used before it is made"))
    }

    /// The tensor of a node's result.
    fn result(&mut self, node: &Node) -> Result<TensorId> {
        let id = node.outputs[0];
        match self.tensors.get(&id) {
            Some(&tensor) => Ok(tensor),
            None => {
                let name = self.name(&self.graph.value(id).name);
                self.declare(id, name, Role::Inner)
            }
        }
    }

    /// A name for a tensor of our own, with `hint` in it.
    fn name(&mut self, hint: &str) -> String {
        self.made += 1;
        format!("t{}_{}", self.made, plain(hint))
    }

    /// A tensor between two operations.
    fn inner(&mut self, hint: &str, (data_type, coding): (u32, Coding), dims: &[usize]) -> Result<TensorId> {
        let name = self.name(hint);
        let spec = TensorSpec { name, role: Role::Inner, data_type, dims: dims.to_vec(), coding };
        self.composer.tensor(&spec)
    }

    fn add(&mut self, node: &Node, operation: &Operation) -> Result<()> {
        self.composer.add(&plain(&node.origin), operation)
    }

    /// Adds what makes the node's result, and what follows.
    fn deliver(&mut self, node: &Node, delivery: Delivery, operation: Operation) -> Result<()> {
        debug_assert_eq!(operation.output, delivery.into);
        self.add(node, &operation)?;
        delivery.then.iter().try_for_each(|operation| self.add(node, operation))
    }

    /// Where to write the node's result in `dims`, with at least `bits`: products of 16-bit operands have no 8-bit
    /// results on the HTP.
    fn delivery(&mut self, node: &Node, dims: &[usize], bits: u8) -> Result<Delivery> {
        let id = node.outputs[0];
        let result = self.result(node)?;
        let mut delivery = Delivery { into: result, then: Vec::new() };
        let name = self.graph.value(id).name.clone();
        if self.dims(id)? != dims {
            let element = self.element(id)?;
            let inner = self.inner(&name, element, dims)?;
            delivery.then.push(Operation::new(c"Reshape", &[inner], delivery.into));
            delivery.into = inner;
        }
        if let Some(encoding) = self.encoding(id).filter(|_| self.bits(id) < bits) {
            let wide = widened(self.graph.value(id).dtype, encoding);
            let element = (sys::QNN_DATATYPE_UFIXED_POINT_16, Coding::PerTensor(wide));
            let inner = self.inner(&name, element, dims)?;
            delivery.then.insert(0, Operation::new(c"Convert", &[inner], delivery.into));
            delivery.into = inner;
        }
        Ok(delivery)
    }

    /// Operand `id` in `dims`; reshaped once.
    fn reshaped(&mut self, node: &Node, id: ValueId, dims: &[usize]) -> Result<TensorId> {
        let bits = self.bits(node.outputs[0]);
        let tensor = self.operand(id, bits)?;
        if self.dims(id)? == dims {
            return Ok(tensor);
        }
        let key = (id, dims.to_vec());
        if let Some(&known) = self.reshaped.get(&key) {
            return Ok(known);
        }
        let element = self.element(id)?;
        let name = self.graph.value(id).name.clone();
        let inner = self.inner(&name, element, dims)?;
        self.add(node, &Operation::new(c"Reshape", &[tensor], inner))?;
        self.reshaped.insert(key, inner);
        Ok(inner)
    }
}

/// Adds where it happened to an error of the library.
fn detailed(error: Error, detail: String) -> Error {
    match error.find::<QnnError>() {
        Some(call) => call.clone().detail(detail).into(),
        None => error,
    }
}

/// `name` in the letters that QNN's tools take.
fn plain(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}

fn per_tensor(value: &Value) -> Option<Encoding> {
    match value.quantization {
        Some(Quantization::PerTensor { bits: 8 | 16, encoding }) => Some(encoding),
        _ => None,
    }
}

/// Codes of 8 bits as codes of 16 over the same range.
fn widened(dtype: DType, encoding: Encoding) -> Encoding {
    let lowest = if dtype == DType::I8 { -128 } else { 0 };
    Encoding { scale: encoding.scale / 257.0, zero_point: (encoding.zero_point - lowest) * 257 }
}

/// See [`Lowering::element`].
fn element_of(value: &Value) -> Option<(u32, Coding)> {
    let coding = match &value.quantization {
        None => Coding::Plain,
        Some(_) => Coding::PerTensor(per_tensor(value)?),
    };
    let data_type = match (value.dtype, &coding) {
        (DType::U8, Coding::Plain) => sys::QNN_DATATYPE_UINT_8,
        (DType::I32, Coding::Plain) => sys::QNN_DATATYPE_INT_32,
        (DType::F32, Coding::Plain) => sys::QNN_DATATYPE_FLOAT_32,
        (DType::Bool, Coding::Plain) => sys::QNN_DATATYPE_BOOL_8,
        (DType::U8, _) => sys::QNN_DATATYPE_UFIXED_POINT_8,
        (DType::I8, Coding::PerTensor(_)) => sys::QNN_DATATYPE_SFIXED_POINT_8,
        (DType::U16, Coding::PerTensor(_)) => sys::QNN_DATATYPE_UFIXED_POINT_16,
        (DType::I16, Coding::PerTensor(_)) => sys::QNN_DATATYPE_SFIXED_POINT_16,
        _ => return None,
    };
    Some((data_type, coding))
}
