//! One node in one run: its operands, the shapes of its results, and the choice of what to do.

use super::{
    InterpretError, MAX_VALUE_ELEMENTS, Tensor, attention, elementwise, fused, linear, movement, quantized, reduce,
    symbols, tensor::Data,
};
use crate::graph::{Graph, Int, Node, Op, Value};
use crate::tensor::element_count;
use std::borrow::Cow;

/// A node about to run.
pub(super) struct Step<'a> {
    graph: &'a Graph,
    node: &'a Node,
    values: &'a [Option<Tensor>],
    symbols: &'a [i64],
    out_shapes: Vec<Vec<usize>>,
}

/// What an operation gives, or what is wrong with its operands.
pub(super) type OpResult<T = Data> = Result<T, String>;

impl<'a> Step<'a> {
    pub fn new(
        graph: &'a Graph,
        node: &'a Node,
        values: &'a [Option<Tensor>],
        symbols: &'a [i64],
    ) -> Result<Self, InterpretError> {
        let mut step = Self { graph, node, values, symbols, out_shapes: Vec::new() };
        for &id in &node.outputs {
            let value = graph.value(id);
            let shape = symbols::shape(&value.shape, symbols).map_err(|why| step.fail(why))?;
            if element_count(&shape).is_ok_and(|count| count <= MAX_VALUE_ELEMENTS) {
                step.out_shapes.push(shape);
            } else {
                return Err(InterpretError::TooLarge { value: value.name.clone(), shape });
            }
        }
        Ok(step)
    }

    /// The results, on the grids of their types.
    pub fn run(&self) -> Result<Vec<Tensor>, InterpretError> {
        let results = self.dispatch().map_err(|why| self.fail(why))?;
        let settle = |(index, data): (usize, Data)| {
            let (value, shape) = (self.result(index), self.out_shape(index));
            if data.len() != shape.iter().product::<usize>() {
                return Err(self.fail(format!("{} elements for {shape:?}", data.len())));
            }
            let data = quantized::settle(value, shape, data);
            Ok(Tensor { dtype: value.dtype, shape: shape.to_vec(), data })
        };
        results.into_iter().enumerate().map(settle).collect()
    }

    fn dispatch(&self) -> OpResult<Vec<Data>> {
        let data = match &self.node.op {
            Op::Reshape => self.operand(0)?.into_owned().data,
            Op::Permute { perm } => movement::permute(self, perm)?,
            Op::Slice { axis, start, step } => movement::slice(self, *axis, self.int(*start), *step)?,
            Op::Concat { axis } => movement::concat(self, *axis)?,
            Op::Expand => {
                let x = self.operand(0)?;
                x.data.gather(&movement::broadcast(&x.shape, self.out_shape(0))?)
            }
            Op::Embedding => movement::embedding(self)?,
            Op::SliceUpdate { axis, start } => movement::slice_update(self, *axis, self.int(*start))?,
            Op::Arange { start, step } => movement::arange(self, self.int(*start), *step),
            Op::Fill { value } => movement::fill(self, *value),
            Op::Scalar { value } => movement::scalar(self, self.int(*value)),
            Op::Unary(op) => elementwise::unary(*op, &*self.operand(0)?)?,
            Op::Binary(op) => elementwise::binary(self, *op)?,
            Op::Clamp { min, max } => elementwise::clamp(&*self.operand(0)?, *min, *max),
            Op::Where => elementwise::choose(self)?,
            Op::Convert => elementwise::convert(self)?,
            Op::Mean { axes } => reduce::mean(self, axes)?,
            Op::Any { axis } => reduce::any(self, *axis)?,
            Op::Softmax { axis } => reduce::softmax(self, *axis)?,
            Op::FullyConnected => linear::fully_connected(self, &self.reals(0)?)?,
            Op::DynamicQuantLinear => {
                let mut x = self.reals(0)?;
                quantized::round_rows(&mut x, self.operand_shape(0)?.last().copied().unwrap_or(1));
                linear::fully_connected(self, &x)?
            }
            Op::MatMul { transpose_b } => linear::matmul(self, *transpose_b)?,
            Op::RmsNorm { epsilon } => fused::rms_norm(self, *epsilon)?,
            Op::Rotary { style } => fused::rotary(self, *style)?,
            Op::SwiGlu => fused::swiglu(self)?,
            Op::CacheUpdate { layout, start } => attention::cache_update(self, *layout, self.int(*start))?,
            Op::Attention { layout, start, scale } => attention::attention(self, *layout, self.int(*start), *scale)?,
            Op::QuantizedAttention { layout, start, scale } => {
                attention::quantized_attention(self, *layout, self.int(*start), *scale)?
            }
            Op::QuantizePerToken { .. } => return quantized::quantize_per_token(self),
        };
        Ok(vec![data])
    }

    pub fn operands(&self) -> usize {
        self.node.inputs.len()
    }

    /// Operand `index`; a constant is decoded whole.
    pub fn operand(&self, index: usize) -> OpResult<Cow<'a, Tensor>> {
        let id = self.node.inputs[index];
        match self.graph.constant(id) {
            Some(data) => quantized::decode(self.graph.value(id), data).map(Cow::Owned).map_err(|e| e.to_string()),
            None => Ok(Cow::Borrowed(self.values[id.0 as usize].as_ref().expect("made before, as verified"))),
        }
    }

    /// The value of operand `index`, and its bytes when it is a constant.
    pub fn source(&self, index: usize) -> (&'a Value, Option<&'a [u8]>) {
        let id = self.node.inputs[index];
        (self.graph.value(id), self.graph.constant(id).map(|data| &data[..]))
    }

    /// The elements of operand `index`, which must be reals.
    pub fn reals(&self, index: usize) -> OpResult<Vec<f32>> {
        match self.operand(index)?.into_owned().data {
            Data::Real(data) => Ok(data),
            Data::Integer(_) => Err(format!("operand {index} is not real")),
        }
    }

    /// The elements of operand `index`, which must be integers.
    pub fn integers(&self, index: usize) -> OpResult<Vec<i64>> {
        match self.operand(index)?.into_owned().data {
            Data::Integer(data) => Ok(data),
            Data::Real(_) => Err(format!("operand {index} is not an integer")),
        }
    }

    /// The shape of operand `index` in this run.
    pub fn operand_shape(&self, index: usize) -> OpResult<Vec<usize>> {
        symbols::shape(&self.graph.value(self.node.inputs[index]).shape, self.symbols)
    }

    pub fn out_shape(&self, index: usize) -> &[usize] {
        &self.out_shapes[index]
    }

    pub fn result(&self, index: usize) -> &'a Value {
        self.graph.value(self.node.outputs[index])
    }

    pub fn int(&self, int: Int) -> i64 {
        symbols::value_of(int, self.symbols)
    }

    pub fn fail(&self, why: String) -> InterpretError {
        let op = format!("{:?}", self.node.op);
        InterpretError::Node { origin: self.node.origin.clone(), op, why }
    }
}
