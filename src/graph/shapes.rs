//! What each operation demands of its operands and results.

use super::{BinaryOp, CacheLayout, Graph, Int, Node, Op, UnaryOp, Value, ValueId};
use crate::tensor::DType;

/// Checks one node; the error says what does not fit.
pub(super) fn check(graph: &Graph, node: &Node) -> Result<(), String> {
    let check = Checker { graph, node };
    match &node.op {
        Op::Reshape => check.arity(1, 1)?.same_dtype()?.same_elements(),
        Op::Permute { perm } => check.arity(1, 1)?.same_dtype()?.permuted(perm),
        Op::Slice { axis, step, .. } => {
            check.arity(1, 1)?.same_dtype()?.same_shape_but(*axis)?;
            (*step > 0).then_some(()).ok_or_else(|| "a step of 0".into())
        }
        Op::Concat { axis } => check.concat(*axis),
        Op::Expand => {
            check.arity(1, 1)?.same_dtype()?;
            check.broadcasts(check.shape(0), check.out())
        }
        Op::Embedding => check.arity(2, 1)?.embedding(),
        Op::SliceUpdate { axis, .. } => check.arity(2, 1)?.same_dtype()?.same_shape()?.update(*axis),
        Op::Arange { .. } | Op::Fill { .. } | Op::Scalar { .. } => check.arity(0, 1).map(|_| ()),
        Op::Unary(op) => {
            check.arity(1, 1)?.same_shape()?;
            match op {
                UnaryOp::LogicalNot => check.result_is(DType::Bool),
                _ => check.same_dtype().map(|_| ()),
            }
        }
        Op::Binary(op) => {
            check.arity(2, 1)?;
            check.broadcasts(check.shape(0), check.out())?;
            check.broadcasts(check.shape(1), check.out())?;
            if is_comparison(*op) { check.result_is(DType::Bool) } else { check.same_dtype().map(|_| ()) }
        }
        Op::Clamp { .. } => check.arity(1, 1)?.same_dtype()?.same_shape().map(|_| ()),
        Op::Where => {
            check.arity(3, 1)?;
            if check.value(0).dtype != DType::Bool {
                return Err("the condition is not bool".into());
            }
            (0..3).try_for_each(|index| check.broadcasts(check.shape(index), check.out()))
        }
        Op::Convert => check.arity(1, 1)?.same_shape().map(|_| ()),
        Op::Mean { axes } => check.arity(1, 1)?.same_dtype()?.reduced(axes),
        Op::Any { axis } => check.arity(1, 1)?.reduced(&[*axis]),
        Op::Softmax { axis } => {
            check.arity(1, 1)?.same_shape()?;
            check.axis(*axis, check.out().len())
        }
        Op::FullyConnected | Op::DynamicQuantLinear => check.linear(),
        Op::MatMul { transpose_b } => check.arity(2, 1)?.matmul(*transpose_b),
        Op::RmsNorm { .. } => {
            check.arity(2, 1)?.same_shape()?;
            (check.shape(1) == last(check.shape(0), 1)).then_some(()).ok_or_else(|| check.shapes("gamma"))
        }
        Op::Rotary { .. } => check.arity(3, 1)?.same_shape()?.rotary(),
        Op::SwiGlu => check.arity(2, 1)?.same_shape().map(|_| ()),
        Op::CacheUpdate { layout, .. } => check.arity(2, 1)?.same_dtype()?.same_shape()?.cache_update(*layout),
        Op::Attention { layout, .. } => check.attention(*layout, node.inputs.len()),
        Op::QuantizedAttention { layout, .. } => check.attention(*layout, 3),
        Op::QuantizePerToken { .. } => check.arity(1, 3)?.same_shape().map(|_| ()),
    }
}

fn is_comparison(op: BinaryOp) -> bool {
    use BinaryOp::*;
    matches!(op, Equal | NotEqual | Less | LessEqual | Greater | GreaterEqual | LogicalAnd | LogicalOr)
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

    fn concat(&self, axis: usize) -> Result<(), String> {
        if self.node.inputs.is_empty() || self.node.outputs.len() != 1 {
            return Err("nothing to join".into());
        }
        self.axis(axis, self.out().len())?;
        let to = self.out();
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
        let fits = !table.is_empty()
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

    fn attention(&self, layout: CacheLayout, inputs: usize) -> Result<(), String> {
        if !(3..=4).contains(&inputs) || self.node.inputs.len() < inputs || self.node.outputs.len() != 1 {
            return Err("attention needs q, k, v and perhaps a mask".into());
        }
        let (q, k, v) = (self.shape(0), self.shape(1), self.shape(2));
        if q.len() != 4 || k.len() != 4 || self.out() != q || k != v || q[0] != k[0] || q[3] != k[3] {
            return Err(self.shapes("attention"));
        }
        let (positions, kv_heads) = positions_heads(layout, k);
        let grouped = matches!((q[2], kv_heads), (Int::Const(q), Int::Const(kv)) if kv > 0 && q % kv == 0);
        let mask_fits = inputs == 3 || last(self.shape(3), 2) == [q[1], positions];
        (grouped && mask_fits).then_some(()).ok_or_else(|| self.shapes("attention"))
    }
}

/// Sizes of the position and head axes of a cache.
fn positions_heads(layout: CacheLayout, cache: &[Int]) -> (Int, Int) {
    match layout {
        CacheLayout::PositionMajor => (cache[1], cache[2]),
        CacheLayout::HeadMajor => (cache[2], cache[1]),
    }
}
