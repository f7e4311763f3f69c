//! From a [`Model`] to nodes of a graph. Shapes follow from the inputs that the caller gives: those of the file are
//! upper bounds only. Operations on static 8-bit values are written as dequantize, compute, quantize.

use super::error::{NodePlace, XnnpackError};
use super::lower_values::{constant, dtype, quantization};
use super::model::{Binary, Model, Node, NodeOp, Unary};
use super::shapes::{self, Misfit};
use crate::graph::{BinaryOp, Graph, Int, Op, Quantization, UnaryOp, ValueId};
use crate::tensor::{DType, element_count};

type Result<T, E = XnnpackError> = std::result::Result<T, E>;

/// Appends the nodes of `model` to `graph` and returns the values of [`Model::outputs`]. `inputs` are the values of
/// [`Model::inputs`], with shapes no larger than those of the file. `origin` names the delegate in the nodes' origins:
/// `XNNPACK delegate 3`.
///
/// Exporters write scalars as shape `[1]`: an input of rank 0 is taken for one, an output comes out so.
///
/// # Errors
/// What does not fit; the graph is then of no use.
pub fn lower_into(graph: &mut Graph, model: &Model, origin: &str, inputs: &[ValueId]) -> Result<Vec<ValueId>> {
    model.verify_structure()?;
    let wanted = model.inputs();
    if inputs.len() != wanted.len() {
        return Err(XnnpackError::InputCount { have: inputs.len(), need: wanted.len() });
    }
    let made = vec![None; model.values.len()];
    let place = NodePlace { index: 0, kind: "" };
    let mut lowering = Lowering { graph, model, origin, made, place, label: String::new() };
    for (&value, &input) in wanted.iter().zip(inputs) {
        lowering.input(value, input)?;
    }
    for (index, node) in model.nodes.iter().enumerate() {
        lowering.place = node.place(index);
        lowering.label = format!("{origin}: {} #{index}", lowering.place.kind.trim_start_matches("XNN"));
        lowering.node(node)?;
    }
    let output = |value: usize| lowering.made[value].ok_or(XnnpackError::NeverMade { value });
    model.outputs().into_iter().map(output).collect()
}

struct Lowering<'a> {
    graph: &'a mut Graph,
    model: &'a Model,
    origin: &'a str,
    /// The graph's value of each of the model's values.
    made: Vec<Option<ValueId>>,
    /// The current node.
    place: NodePlace,
    /// Its origin.
    label: String,
}

impl Lowering<'_> {
    fn input(&mut self, index: usize, mut input: ValueId) -> Result<()> {
        let stated = &self.model.values[index];
        let arg = stated.external.map_or(0, |external| external.arg);
        let fail = |why| Err(XnnpackError::Input { arg, why });
        self.label = format!("{}: argument {arg}", self.origin);
        if self.graph.value(input).shape.is_empty() && stated.dims == [1] {
            let dtype = self.graph.value(input).dtype;
            input = self.emit(Op::Reshape, &[input], dtype, vec![Int::Const(1)]);
        }
        let value = self.graph.value(input);
        if value.dtype != dtype(stated.datatype) || value.quantization != quantization(self.model, stated) {
            return fail(format!("{} given, {:?} expected", value.dtype, stated.datatype));
        }
        let fits = |(&given, &most): (&Int, &usize)| match given {
            Int::Const(size) => (1..=most as i64).contains(&size),
            symbol => self.graph.bounds(symbol).0 <= most as i64,
        };
        if value.shape.len() != stated.dims.len() || !value.shape.iter().zip(&stated.dims).all(fits) {
            return fail(format!("shape up to {:?} given, {:?} expected", self.graph.max_shape(input), stated.dims));
        }
        if stated.quantize_rows {
            input = self.convert(input, DType::I8, Some(Quantization::DynamicPerRow { nonbatch_dims: 1 }));
        }
        self.made[index] = Some(input);
        Ok(())
    }

    fn node(&mut self, node: &Node) -> Result<()> {
        let x = node.inputs[0];
        let made = match &node.op {
            NodeOp::Unary(op) => self.same_shape(Op::Unary(unary(*op)), x)?,
            NodeOp::Binary(op) => {
                let [a, b] = [self.real(x)?, self.real(node.inputs[1])?];
                self.binary(binary(*op), a, b)?
            }
            NodeOp::Clamp | NodeOp::Convert => self.real(x)?,
            NodeOp::Copy => self.movable(x)?,
            NodeOp::Softmax => {
                let axis = self.shape(x)?.len().checked_sub(1);
                let axis = axis.ok_or_else(|| self.shapes("softmax of a scalar"))?;
                self.same_shape(Op::Softmax { axis }, x)?
            }
            NodeOp::GlobalAveragePooling2d { keep_dims } => self.pooling(x, *keep_dims)?,
            NodeOp::FullyConnected { transpose_weights } => self.fully_connected(node, *transpose_weights)?,
            NodeOp::BatchMatrixMultiply { transpose_b } => {
                let [a, b] = [self.real(x)?, self.real(node.inputs[1])?];
                self.matmul(a, b, *transpose_b)?
            }
            NodeOp::StaticTranspose { perm } => {
                let x = self.movable(x)?;
                let shape = &self.graph.value(x).shape;
                let shape = perm.iter().map(|&axis| shape[axis]).collect();
                self.moved(Op::Permute { perm: perm.clone() }, &[x], shape)
            }
            NodeOp::StaticReshape { new_shape } => {
                let x = self.movable(x)?;
                let from = self.graph.value(x).shape.clone();
                let shape = shapes::reshape(self.graph, &from, new_shape).map_err(|misfit| self.misfit(misfit))?;
                self.moved(Op::Reshape, &[x], shape)
            }
            NodeOp::StaticSlice { offsets, sizes } => self.slice(x, offsets, sizes)?,
            NodeOp::Concatenate { axis } => self.concatenate(node, *axis)?,
            NodeOp::ScaledDotProductAttention => self.attention(node)?,
        };
        self.finish(node, made)
    }

    /// Limits, converts and records the result of `node`.
    fn finish(&mut self, node: &Node, mut made: ValueId) -> Result<()> {
        let stated = &self.model.values[node.output];
        if let Some((min, max)) = node.bounds {
            let value = self.graph.value(made);
            if value.quantization.is_some() {
                return Err(self.types("codes cannot be limited"));
            }
            let (dtype, shape) = (value.dtype, value.shape.clone());
            made = self.emit(Op::Clamp { min, max }, &[made], dtype, shape);
        }
        let (to_dtype, to_quantization) = (dtype(stated.datatype), quantization(self.model, stated));
        let value = self.graph.value(made);
        if value.dtype != to_dtype || value.quantization != to_quantization {
            let possible = value.quantization.is_none()
                && match &to_quantization {
                    Some(Quantization::PerTensor { .. }) => true,
                    Some(Quantization::DynamicPerRow { .. }) => node.op == NodeOp::Convert,
                    None => node.op == NodeOp::Convert && stated.datatype.is_real(),
                    _ => false,
                };
            if !possible {
                let have = value.quantization.as_ref().map_or("", |_| " codes");
                return Err(self.types(&format!("{}{have} cannot become {:?}", value.dtype, stated.datatype)));
            }
            made = self.convert(made, to_dtype, to_quantization);
        }
        let shape = &self.graph.value(made).shape;
        let fits = |(&size, &most): (&Int, &usize)| self.graph.bounds(size).0 <= most as i64;
        let max = self.graph.max_shape(made);
        if shape.len() != stated.dims.len() || !shape.iter().zip(&stated.dims).all(fits) || element_count(&max).is_err()
        {
            return Err(self.shapes(&format!("shape {:?} is stated, up to {max:?} comes out", stated.dims)));
        }
        self.made[node.output] = Some(made);
        Ok(())
    }

    fn types(&self, why: &str) -> XnnpackError {
        XnnpackError::Types { place: self.place, why: why.into() }
    }

    fn shapes(&self, why: &str) -> XnnpackError {
        XnnpackError::Shapes { place: self.place, why: why.into() }
    }

    fn misfit(&self, misfit: Misfit) -> XnnpackError {
        match misfit {
            Misfit::Unequal(left, right) => XnnpackError::UnequalSizes { place: self.place, left, right },
            Misfit::Why(why) => XnnpackError::Shapes { place: self.place, why },
        }
    }

    fn emit(&mut self, op: Op, inputs: &[ValueId], dtype: DType, shape: Vec<Int>) -> ValueId {
        self.graph.emit(self.label.clone(), op, inputs, dtype, shape)
    }

    fn convert(&mut self, x: ValueId, dtype: DType, quantization: Option<Quantization>) -> ValueId {
        let shape = self.graph.value(x).shape.clone();
        let made = self.emit(Op::Convert, &[x], dtype, shape);
        self.graph.value_mut(made).quantization = quantization;
        made
    }

    /// The graph's value of the model's `index`.
    fn operand(&mut self, index: usize) -> Result<ValueId> {
        if let Some(made) = self.made[index] {
            return Ok(made);
        }
        let name = format!("{}: value {index}", self.origin);
        let made = constant(self.graph, self.model, index, name);
        let made = made.ok_or(XnnpackError::UsedBeforeMade { place: self.place, value: index })?;
        self.made[index] = Some(made);
        Ok(made)
    }

    fn shape(&mut self, index: usize) -> Result<Vec<Int>> {
        let value = self.operand(index)?;
        Ok(self.graph.value(value).shape.clone())
    }

    /// An operand as reals.
    fn real(&mut self, index: usize) -> Result<ValueId> {
        let id = self.operand(index)?;
        let value = self.graph.value(id);
        match &value.quantization {
            None if matches!(value.dtype, DType::F32 | DType::F16 | DType::BF16) => Ok(id),
            None => Err(self.types(&format!("operands of type {}", value.dtype))),
            Some(Quantization::DynamicPerRow { .. }) => Err(self.types("dynamically quantized operands")),
            Some(_) => Ok(self.convert(id, DType::F32, None)),
        }
    }

    /// An operand whose elements may change their places.
    fn movable(&mut self, index: usize) -> Result<ValueId> {
        let id = self.operand(index)?;
        match self.graph.value(id).quantization {
            None | Some(Quantization::PerTensor { .. }) => Ok(id),
            _ => Err(self.types("elements with scales of their own cannot be moved")),
        }
    }

    /// As `emit`, with the element type of the first operand.
    fn moved(&mut self, op: Op, inputs: &[ValueId], shape: Vec<Int>) -> ValueId {
        let from = self.graph.value(inputs[0]);
        let (dtype, quantization) = (from.dtype, from.quantization.clone());
        let made = self.emit(op, inputs, dtype, shape);
        self.graph.value_mut(made).quantization = quantization;
        made
    }

    fn same_shape(&mut self, op: Op, x: usize) -> Result<ValueId> {
        let x = self.real(x)?;
        let shape = self.graph.value(x).shape.clone();
        Ok(self.moved(op, &[x], shape))
    }

    fn same_dtype(&self, values: &[ValueId]) -> Result<DType> {
        let mut dtypes = values.iter().map(|&value| self.graph.value(value).dtype);
        let first = dtypes.next().unwrap_or(DType::F32);
        match dtypes.find(|&dtype| dtype != first) {
            None => Ok(first),
            Some(other) => Err(self.types(&format!("operands of types {first} and {other}"))),
        }
    }

    fn binary(&mut self, op: BinaryOp, a: ValueId, b: ValueId) -> Result<ValueId> {
        let dtype = self.same_dtype(&[a, b])?;
        let shape = shapes::broadcast(&self.graph.value(a).shape, &self.graph.value(b).shape);
        let shape = shape.map_err(|misfit| self.misfit(misfit))?;
        Ok(self.emit(Op::Binary(op), &[a, b], dtype, shape))
    }

    fn matmul(&mut self, a: ValueId, b: ValueId, transpose_b: bool) -> Result<ValueId> {
        let dtype = self.same_dtype(&[a, b])?;
        let shape = shapes::matmul(&self.graph.value(a).shape, &self.graph.value(b).shape, transpose_b);
        let shape = shape.map_err(|misfit| self.misfit(misfit))?;
        Ok(self.emit(Op::MatMul { transpose_b }, &[a, b], dtype, shape))
    }

    fn pooling(&mut self, x: usize, keep_dims: bool) -> Result<ValueId> {
        let x = self.real(x)?;
        let (dtype, shape) = (self.graph.value(x).dtype, self.graph.value(x).shape.clone());
        let &[batch, _, _, channels] = &shape[..] else {
            return Err(self.shapes("images have four axes"));
        };
        let one = Int::Const(1);
        let mean = self.emit(Op::Mean { axes: vec![1, 2] }, &[x], dtype, vec![batch, one, one, channels]);
        if keep_dims {
            return Ok(mean);
        }
        Ok(self.emit(Op::Reshape, &[mean], dtype, vec![batch, channels]))
    }

    fn fully_connected(&mut self, node: &Node, transpose_weights: bool) -> Result<ValueId> {
        let weights = self.operand(node.inputs[1])?;
        let x = self.operand(node.inputs[0])?;
        let is_dynamic = |value| matches!(value, &Some(Quantization::DynamicPerRow { .. }));
        if is_dynamic(&self.graph.value(weights).quantization) {
            return Err(self.types("dynamically quantized weights"));
        }
        let x = if is_dynamic(&self.graph.value(x).quantization) { x } else { self.real(node.inputs[0])? };
        let bias = node.inputs.get(2).map(|&bias| self.real(bias)).transpose()?;
        if transpose_weights {
            if [x, weights].iter().any(|&value| self.graph.value(value).quantization.is_some()) {
                let what = "a transposed weight of quantized operands";
                return Err(XnnpackError::UnsupportedUse { place: self.place, what });
            }
            let made = self.matmul(x, weights, false)?;
            return bias.map_or(Ok(made), |bias| self.binary(BinaryOp::Add, made, bias));
        }
        let &[out, inner] = &self.graph.value(weights).shape[..] else {
            return Err(self.shapes("weights have two axes"));
        };
        let mut shape = self.graph.value(x).shape.clone();
        let Some(last) = shape.last_mut() else { return Err(self.shapes("a scalar input")) };
        let inner = shapes::equal(std::mem::replace(last, out), inner);
        let bias_fits = bias.map_or(Ok(()), |bias| match self.graph.value(bias).shape[..] {
            [size] => shapes::equal(size, out),
            _ => Err(Misfit::Why("the bias has one axis".into())),
        });
        inner.and(bias_fits).map_err(|misfit| self.misfit(misfit))?;
        let stated = self.model.values[node.output].datatype;
        let dtype = if stated.is_real() { dtype(stated) } else { DType::F32 };
        let operands: Vec<_> = [x, weights].into_iter().chain(bias).collect();
        Ok(self.emit(Op::FullyConnected, &operands, dtype, shape))
    }

    fn slice(&mut self, index: usize, offsets: &[usize], sizes: &[usize]) -> Result<ValueId> {
        let mut x = self.movable(index)?;
        let stated = &self.model.values[index].dims;
        for (axis, (&offset, &size)) in offsets.iter().zip(sizes).enumerate() {
            // An exporter writes the upper bound where it means the whole axis.
            if offset == 0 && (size == 0 || size == stated[axis]) {
                continue;
            }
            let mut shape = self.graph.value(x).shape.clone();
            let (from, end) = (shape[axis], (offset + size) as i64);
            let (min, max) = self.graph.bounds(from);
            if end > max {
                return Err(self.shapes(&format!("{size} elements from {offset} on of {max}")));
            }
            if end > min {
                return Err(self.misfit(Misfit::Unequal(from, Int::Const(max))));
            }
            shape[axis] = size.into();
            x = self.moved(Op::Slice { axis, start: offset.into(), step: 1 }, &[x], shape);
        }
        Ok(x)
    }

    fn concatenate(&mut self, node: &Node, axis: usize) -> Result<ValueId> {
        let parts = node.inputs.iter().map(|&part| self.movable(part)).collect::<Result<Vec<_>>>()?;
        self.same_dtype(&parts)?;
        let mut shape = self.graph.value(parts[0]).shape.clone();
        for &part in &parts[1..] {
            let [first, value] = [self.graph.value(parts[0]), self.graph.value(part)];
            if value.quantization != first.quantization {
                return Err(self.types("parts with different scales"));
            }
            let other = value.shape.clone();
            if other.len() != shape.len() {
                return Err(self.shapes("parts of different ranks"));
            }
            let unequal = (0..shape.len()).filter(|&i| i != axis).find(|&i| shape[i] != other[i]);
            if let Some(i) = unequal {
                return Err(self.misfit(Misfit::Unequal(shape[i], other[i])));
            }
            let joined = shapes::sum(self.graph, shape[axis], other[axis]);
            shape[axis] = joined.ok_or_else(|| self.shapes("the parts are too large"))?;
        }
        Ok(self.moved(Op::Concat { axis }, &parts, shape))
    }

    fn attention(&mut self, node: &Node) -> Result<ValueId> {
        let operands = node.inputs.iter().map(|&operand| self.real(operand)).collect::<Result<Vec<_>>>()?;
        let [query, key, value, scale, mask] = operands[..] else {
            return Err(XnnpackError::Operands { place: self.place, have: operands.len() });
        };
        self.same_dtype(&operands)?;
        let shape = |id: ValueId| &self.graph.value(id).shape;
        let rank = shape(query).len();
        let ranks = [query, key, value, scale, mask].map(|id| shape(id).len());
        if rank < 3 || ranks != [rank, rank, rank, 1, 2] {
            return Err(self.shapes(&format!("query, key, value, scale and mask have {ranks:?} axes")));
        }
        shapes::equal(shape(scale)[0], shape(query)[rank - 1]).map_err(|misfit| self.misfit(misfit))?;
        let query = self.binary(BinaryOp::Multiply, query, scale)?;
        let scores = self.matmul(query, key, true)?;
        for (axis, of_mask) in [(rank - 2, 0), (rank - 1, 1)] {
            let [scores, mask] = [scores, mask].map(|id| &self.graph.value(id).shape);
            shapes::equal(scores[axis], mask[of_mask]).map_err(|misfit| self.misfit(misfit))?;
        }
        let scores = self.binary(BinaryOp::Add, scores, mask)?;
        let shape = self.graph.value(scores).shape.clone();
        let weights = self.moved(Op::Softmax { axis: rank - 1 }, &[scores], shape);
        self.matmul(weights, value, false)
    }
}

fn unary(op: Unary) -> UnaryOp {
    match op {
        Unary::Abs => UnaryOp::Abs,
        Unary::Ceiling => UnaryOp::Ceil,
        Unary::Cos => UnaryOp::Cos,
        Unary::Exp => UnaryOp::Exp,
        Unary::Floor => UnaryOp::Floor,
        Unary::Gelu => UnaryOp::Gelu,
        Unary::HardSwish => UnaryOp::HardSwish,
        Unary::Log => UnaryOp::Log,
        Unary::Negate => UnaryOp::Negate,
        Unary::ReciprocalSquareRoot => UnaryOp::Rsqrt,
        Unary::Sigmoid => UnaryOp::Sigmoid,
        Unary::Sin => UnaryOp::Sin,
        Unary::Square => UnaryOp::Square,
        Unary::SquareRoot => UnaryOp::Sqrt,
        Unary::Tanh => UnaryOp::Tanh,
    }
}

fn binary(op: Binary) -> BinaryOp {
    match op {
        Binary::Add => BinaryOp::Add,
        Binary::Divide => BinaryOp::Divide,
        Binary::Maximum => BinaryOp::Maximum,
        Binary::Minimum => BinaryOp::Minimum,
        Binary::Multiply => BinaryOp::Multiply,
        Binary::Subtract => BinaryOp::Subtract,
    }
}
