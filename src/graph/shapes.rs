//! What each operation demands of its operands and results.

use super::{CacheLayout, Graph, Int, Node, Op, UnaryOp, Value, ValueId};
use crate::tensor::DType;

/// Checks one node; the error says what does not fit.
pub(super) fn check(graph: &Graph, node: &Node) -> Result<(), String> {
    let check = Checker { graph, node };
    match &node.op {
        Op::Reshape => check.arity(1, 1)?.same_dtype()?.same_elements(),
        Op::Permute { perm } => check.arity(1, 1)?.same_dtype()?.permuted(perm),
        Op::Slice { axis, start, step } => {
            check.arity(1, 1)?.same_dtype()?.same_shape_but(*axis)?;
            check.slice(*axis, *start, *step)
        }
        Op::Concat { axis } => check.concat(*axis),
        Op::Expand => {
            check.arity(1, 1)?.same_dtype()?;
            check.broadcasts(check.shape(0), check.out())
        }
        Op::Embedding => check.arity(2, 1)?.embedding(),
        Op::SliceUpdate { axis, .. } => check.arity(2, 1)?.same_dtype()?.one_type(&[0, 1])?.same_shape()?.update(*axis),
        Op::Arange { .. } | Op::Fill { .. } => check.arity(0, 1).map(|_| ()),
        Op::Scalar { .. } => {
            check.arity(0, 1)?;
            check.out().iter().all(|&dim| dim == Int::Const(1)).then_some(()).ok_or_else(|| check.shapes("scalar"))
        }
        Op::Unary(op) => {
            check.arity(1, 1)?.same_shape()?;
            match op {
                UnaryOp::LogicalNot => check.result_is(DType::Bool),
                UnaryOp::Abs | UnaryOp::Negate | UnaryOp::Square | UnaryOp::Ceil | UnaryOp::Floor => {
                    check.same_dtype().map(|_| ())
                }
                _ => check.same_dtype()?.real(&[0]),
            }
        }
        Op::Binary(op) => {
            check.arity(2, 1)?.one_type(&[0, 1])?;
            check.broadcasts(check.shape(0), check.out())?;
            check.broadcasts(check.shape(1), check.out())?;
            if op.gives_bool() { check.result_is(DType::Bool) } else { check.same_dtype().map(|_| ()) }
        }
        Op::Clamp { .. } => check.arity(1, 1)?.same_dtype()?.same_shape().map(|_| ()),
        Op::Where => {
            check.arity(3, 1)?.one_type(&[1, 2])?;
            if check.value(0).dtype != DType::Bool {
                return Err("the condition is not bool".into());
            }
            if check.value(1).dtype != check.result().dtype {
                return Err(format!("a choice of {} gives {}", check.value(1).dtype, check.result().dtype));
            }
            (0..3).try_for_each(|index| check.broadcasts(check.shape(index), check.out()))
        }
        Op::Convert => check.arity(1, 1)?.same_shape().map(|_| ()),
        Op::Mean { axes } => {
            check.arity(1, 1)?.same_dtype()?.real(&[0])?;
            check.reduced(axes)
        }
        Op::Any { axis } => {
            check.arity(1, 1)?.reduced(&[*axis])?;
            check.result_is(DType::Bool)
        }
        Op::Softmax { axis } => {
            check.arity(1, 1)?.same_shape()?.real(&[0])?;
            check.axis(*axis, check.out().len())
        }
        Op::FullyConnected | Op::DynamicQuantLinear => check.linear(),
        Op::MatMul { transpose_b } => check.arity(2, 1)?.matmul(*transpose_b),
        Op::RmsNorm { .. } => {
            check.arity(2, 1)?.same_shape()?.real(&[0, 1])?;
            let rank = check.shape(0).len();
            let fits = rank > 0 && check.shape(1) == last(check.shape(0), 1);
            fits.then_some(()).ok_or_else(|| check.shapes("gamma"))
        }
        Op::Rotary { .. } => check.arity(3, 1)?.same_shape()?.rotary(),
        Op::SwiGlu => {
            check.arity(2, 1)?.same_shape()?.real(&[0, 1])?;
            (check.shape(0) == check.shape(1)).then_some(()).ok_or_else(|| check.shapes("gate and up"))
        }
        Op::CacheUpdate { layout, .. } => {
            check.arity(2, 1)?.same_dtype()?.one_type(&[0, 1])?.same_shape()?.cache_update(*layout)
        }
        Op::Attention { layout, .. } => check.attention(*layout),
        Op::QuantizedAttention { layout, .. } => check.quantized_attention(*layout),
        Op::QuantizePerToken { zero_point_dtype } => check.arity(1, 3)?.per_token(*zero_point_dtype),
    }
}

pub(super) fn has_integer_type(dtype: DType) -> bool {
    !matches!(dtype, DType::F16 | DType::BF16 | DType::F32 | DType::F64 | DType::Bool)
}

/// True for values whose elements are integers, not codes of reals.
pub(super) fn is_integer(value: &Value) -> bool {
    has_integer_type(value.dtype) && value.quantization.is_none()
}

fn last(shape: &[Int], count: usize) -> &[Int] {
    &shape[shape.len().saturating_sub(count)..]
}

struct Checker<'a> {
    graph: &'a Graph,
    node: &'a Node,
}

impl<'a> Checker<'a> {
    fn value(&self, index: usize) -> &'a Value {
        self.graph.value(self.node.inputs[index])
    }

    fn shape(&self, index: usize) -> &'a [Int] {
        &self.value(index).shape
    }

    fn result(&self) -> &'a Value {
        self.graph.value(self.node.outputs[0])
    }

    fn out(&self) -> &'a [Int] {
        &self.result().shape
    }

    fn shapes(&self, what: &str) -> String {
        let text = |ids: &[ValueId]| {
            ids.iter().map(|&id| format!("{:?}", self.graph.max_shape(id))).collect::<Vec<_>>().join(", ")
        };
        format!("{what}: shapes {} give {}", text(&self.node.inputs), text(&self.node.outputs))
    }

    fn arity(&self, inputs: usize, outputs: usize) -> Result<&Self, String> {
        let (have_in, have_out) = (self.node.inputs.len(), self.node.outputs.len());
        if (have_in, have_out) == (inputs, outputs) {
            return Ok(self);
        }
        Err(format!("{have_in} operands and {have_out} results where {inputs} and {outputs} are needed"))
    }

    fn same_dtype(&self) -> Result<&Self, String> {
        let (from, to) = (self.value(0).dtype, self.result().dtype);
        if from == to { Ok(self) } else { Err(format!("{from} operand, {to} result")) }
    }

    /// The operands at `indices` have one element type, and are all reals or all integers.
    fn one_type(&self, indices: &[usize]) -> Result<&Self, String> {
        let kind = |index: &usize| (self.value(*index).dtype, self.value(*index).quantization.is_some());
        if indices.windows(2).all(|pair| kind(&pair[0]) == kind(&pair[1])) {
            return Ok(self);
        }
        let names: Vec<_> = indices.iter().map(|index| self.value(*index).dtype.name()).collect();
        Err(format!("operands of different types: {}", names.join(", ")))
    }

    fn real(&self, indices: &[usize]) -> Result<(), String> {
        let integers = |value: &Value| is_integer(value) || value.dtype == DType::Bool;
        match indices.iter().find(|index| integers(self.value(**index))) {
            Some(index) => Err(format!("operand {index} is {}, not real", self.value(*index).dtype)),
            None => Ok(()),
        }
    }

    fn result_is(&self, dtype: DType) -> Result<(), String> {
        let have = self.result().dtype;
        if have == dtype { Ok(()) } else { Err(format!("the result is {have}, not {dtype}")) }
    }

    fn same_shape(&self) -> Result<&Self, String> {
        if self.shape(0) == self.out() { Ok(self) } else { Err(self.shapes("shape must stay")) }
    }

    fn axis(&self, axis: usize, rank: usize) -> Result<(), String> {
        if axis < rank { Ok(()) } else { Err(format!("axis {axis} of {rank}")) }
    }

    fn same_elements(&self) -> Result<(), String> {
        let product = |id| self.graph.max_shape(id).iter().product::<usize>();
        let same = product(self.node.inputs[0]) == product(self.node.outputs[0]);
        same.then_some(()).ok_or_else(|| self.shapes("elements must stay"))
    }

    fn permuted(&self, perm: &[usize]) -> Result<(), String> {
        let shape = self.shape(0);
        let mut seen = vec![false; shape.len()];
        let valid = perm.len() == shape.len()
            && perm.iter().all(|&axis| axis < shape.len() && !std::mem::replace(&mut seen[axis], true))
            && perm.iter().map(|&axis| shape[axis]).eq(self.out().iter().copied());
        valid.then_some(()).ok_or_else(|| self.shapes("permute"))
    }

    fn same_shape_but(&self, axis: usize) -> Result<(), String> {
        let (from, to) = (self.shape(0), self.out());
        self.axis(axis, from.len())?;
        let same = from.len() == to.len() && (0..from.len()).all(|i| i == axis || from[i] == to[i]);
        same.then_some(()).ok_or_else(|| self.shapes("only one axis may change"))
    }

    fn slice(&self, axis: usize, start: Int, step: usize) -> Result<(), String> {
        if step == 0 {
            return Err("a step of 0".into());
        }
        let (Int::Const(start), Int::Const(count), Int::Const(size)) = (start, self.out()[axis], self.shape(0)[axis])
        else {
            return Ok(());
        };
        let length = i64::try_from(step).ok().and_then(|step| step.checked_mul((count - 1).max(0)));
        let last = length.and_then(|length| length.checked_add(start));
        let fits = start >= 0 && (count == 0 || last.is_some_and(|last| last < size));
        fits.then_some(()).ok_or_else(|| format!("{count} elements from {start}, {step} apart, of an axis of {size}"))
    }

    fn concat(&self, axis: usize) -> Result<(), String> {
        if self.node.inputs.is_empty() || self.node.outputs.len() != 1 {
            return Err("nothing to join".into());
        }
        self.axis(axis, self.out().len())?;
        let to = self.out();
        self.same_dtype()?.one_type(&Vec::from_iter(0..self.node.inputs.len()))?;
        for index in 0..self.node.inputs.len() {
            let from = self.shape(index);
            if from.len() != to.len() || (0..to.len()).any(|i| i != axis && from[i] != to[i]) {
                return Err(self.shapes("concat"));
            }
        }
        let sum: i64 = (0..self.node.inputs.len()).map(|index| self.graph.bounds(self.shape(index)[axis]).1).sum();
        (sum == self.graph.bounds(to[axis]).1).then_some(()).ok_or_else(|| self.shapes("concat"))
    }

    fn broadcasts(&self, from: &[Int], to: &[Int]) -> Result<(), String> {
        let fits = from.len() <= to.len()
            && from.iter().rev().zip(to.iter().rev()).all(|(from, to)| *from == Int::Const(1) || from == to);
        fits.then_some(()).ok_or_else(|| self.shapes("broadcast"))
    }

    fn embedding(&self) -> Result<(), String> {
        let (table, indices, out) = (self.shape(0), self.shape(1), self.out());
        self.real(&[0])?;
        if !is_integer(self.value(1)) {
            return Err(format!("indices of type {}", self.value(1).dtype));
        }
        let fits = table.len() >= 2
            && out.len() == indices.len() + table.len() - 1
            && out[..indices.len()] == *indices
            && out[indices.len()..] == table[1..];
        fits.then_some(()).ok_or_else(|| self.shapes("embedding"))
    }

    fn update(&self, axis: usize) -> Result<(), String> {
        let (target, values) = (self.shape(0), self.shape(1));
        self.axis(axis, target.len())?;
        let fits = target.len() == values.len()
            && (0..target.len()).all(|i| i == axis || target[i] == values[i])
            && self.graph.bounds(values[axis]).1 <= self.graph.bounds(target[axis]).1;
        fits.then_some(()).ok_or_else(|| self.shapes("slice update"))
    }

    fn reduced(&self, axes: &[usize]) -> Result<(), String> {
        let (from, to) = (self.shape(0), self.out());
        let fits = axes.iter().all(|&axis| axis < from.len())
            && from.len() == to.len()
            && (0..from.len()).all(|i| to[i] == if axes.contains(&i) { Int::Const(1) } else { from[i] });
        fits.then_some(()).ok_or_else(|| self.shapes("reduction"))
    }

    fn linear(&self) -> Result<(), String> {
        let inputs = self.node.inputs.len();
        self.arity(if inputs == 3 { 3 } else { 2 }, 1)?;
        self.real(&Vec::from_iter(0..inputs))?;
        let (x, w, out) = (self.shape(0), self.shape(1), self.out());
        let fits = w.len() == 2
            && !x.is_empty()
            && x.len() == out.len()
            && x[..x.len() - 1] == out[..out.len() - 1]
            && x[x.len() - 1] == w[1]
            && out[out.len() - 1] == w[0]
            && (inputs == 2 || self.shape(2) == [w[0]]);
        fits.then_some(()).ok_or_else(|| self.shapes("linear"))
    }

    fn matmul(&self, transpose_b: bool) -> Result<(), String> {
        self.real(&[0, 1])?;
        let (a, b, out) = (self.shape(0), self.shape(1), self.out());
        if a.len() < 2 || b.len() < 2 || out.len() < 2 {
            return Err(self.shapes("matmul"));
        }
        let (b_k, b_n) = if transpose_b { (b[b.len() - 1], b[b.len() - 2]) } else { (b[b.len() - 2], b[b.len() - 1]) };
        let fits = a[a.len() - 1] == b_k && last(out, 2) == [a[a.len() - 2], b_n];
        if !fits {
            return Err(self.shapes("matmul"));
        }
        self.broadcasts(&a[..a.len() - 2], &out[..out.len() - 2])?;
        self.broadcasts(&b[..b.len() - 2], &out[..out.len() - 2])
    }

    fn rotary(&self) -> Result<(), String> {
        self.real(&[0, 1, 2])?;
        let (x, cos, sin) = (self.shape(0), self.shape(1), self.shape(2));
        let fits = x.len() == 4
            && cos == sin
            && cos.len() == 2
            && cos[0] == x[1]
            && matches!((x[3], cos[1]), (Int::Const(d), Int::Const(half)) if d == 2 * half);
        fits.then_some(()).ok_or_else(|| self.shapes("rotary"))
    }

    fn cache_update(&self, layout: CacheLayout) -> Result<(), String> {
        let (cache, new) = (self.shape(0), self.shape(1));
        if cache.len() != 4 || new.len() != 4 {
            return Err(self.shapes("cache update"));
        }
        let (positions, heads) = positions_heads(layout, cache);
        let fits = cache[0] == new[0]
            && heads == new[2]
            && cache[3] == new[3]
            && self.graph.bounds(new[1]).1 <= self.graph.bounds(positions).1;
        fits.then_some(()).ok_or_else(|| self.shapes("cache update"))
    }

    fn attention(&self, layout: CacheLayout) -> Result<(), String> {
        let inputs = self.node.inputs.len();
        if !(3..=4).contains(&inputs) || self.node.outputs.len() != 1 {
            return Err("attention needs q, k, v and perhaps a mask".into());
        }
        self.real(&Vec::from_iter(0..inputs))?;
        self.attention_shapes(layout)?;
        if inputs == 4 {
            let mask = self.shape(3);
            let (q, positions) = (self.shape(0), positions_heads(layout, self.shape(1)).0);
            let leading = &mask[..mask.len().saturating_sub(2)];
            let fits = last(mask, 2) == [q[1], positions] && leading.iter().all(|&dim| dim == Int::Const(1));
            fits.then_some(()).ok_or_else(|| self.shapes("mask"))?;
        }
        Ok(())
    }

    fn attention_shapes(&self, layout: CacheLayout) -> Result<(), String> {
        let (q, k, v) = (self.shape(0), self.shape(1), self.shape(2));
        if q.len() != 4 || k.len() != 4 || self.out() != q || k != v || q[0] != k[0] || q[3] != k[3] {
            return Err(self.shapes("attention"));
        }
        let kv_heads = positions_heads(layout, k).1;
        let grouped = matches!((q[2], kv_heads), (Int::Const(q), Int::Const(kv)) if kv > 0 && q % kv == 0);
        grouped.then_some(()).ok_or_else(|| self.shapes("attention"))
    }

    fn quantized_attention(&self, layout: CacheLayout) -> Result<(), String> {
        let inputs = self.node.inputs.len();
        if !matches!(inputs, 7 | 9) || self.node.outputs.len() != 1 {
            return Err(format!("{inputs} operands where q, k, v and their scales and zero points are 7 or 9"));
        }
        self.attention_shapes(layout)?;
        let rows = [(1, 3), (2, 5), (0, 7)];
        for &(codes, scales) in &rows[..if inputs == 9 { 3 } else { 2 }] {
            if !is_integer(self.value(codes)) || !is_integer(self.value(scales + 1)) {
                return Err(format!("operand {codes} or its zero points are not integers"));
            }
            self.real(&[scales])?;
            for index in [scales, scales + 1] {
                let (of, shape) = (self.shape(codes), self.shape(index));
                let fits = shape.len() == 4 && shape[..3] == of[..3] && shape[3] == Int::Const(1);
                fits.then_some(()).ok_or_else(|| self.shapes("scales and zero points"))?;
            }
        }
        if inputs == 7 { self.real(&[0]) } else { Ok(()) }
    }

    fn per_token(&self, zero_point_dtype: DType) -> Result<(), String> {
        self.real(&[0])?;
        let result = |index: usize| self.graph.value(self.node.outputs[index]);
        let types = [result(0).dtype, result(1).dtype, result(2).dtype];
        if types != [DType::I8, DType::F32, zero_point_dtype] || !has_integer_type(zero_point_dtype) {
            return Err(format!("results of {}, {} and {}", types[0], types[1], types[2]));
        }
        let rank = self.shape(0).len();
        let one_a_row = |shape: &[Int]| {
            shape.len() == rank && shape[..rank - 1] == self.shape(0)[..rank - 1] && shape[rank - 1] == Int::Const(1)
        };
        let fits =
            rank > 0 && self.out() == self.shape(0) && one_a_row(&result(1).shape) && one_a_row(&result(2).shape);
        fits.then_some(()).ok_or_else(|| self.shapes("quantize per token"))
    }
}

/// Sizes of the position and head axes of a cache.
fn positions_heads(layout: CacheLayout, cache: &[Int]) -> (Int, Int) {
    match layout {
        CacheLayout::PositionMajor => (cache[1], cache[2]),
        CacheLayout::HeadMajor => (cache[2], cache[1]),
    }
}
