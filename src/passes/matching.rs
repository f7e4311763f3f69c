//! What the fusions ask about values and the nodes behind them.

use crate::graph::{Before, BinaryOp, Graph, Int, Node, Op, SymbolId, UnaryOp, ValueId};
use crate::tensor::DType;

/// Both orders of two operands.
pub(super) fn orders(inputs: &[ValueId]) -> [(ValueId, ValueId); 2] {
    [(inputs[0], inputs[1]), (inputs[1], inputs[0])]
}

/// The two operands of the product that makes `value`, in both orders; nothing if no product does.
pub(super) fn products(before: &Before, value: ValueId) -> impl Iterator<Item = (ValueId, ValueId)> + use<> {
    let inputs = before.made_by(value, &Op::Binary(BinaryOp::Multiply));
    inputs.map(orders).into_iter().flatten()
}

/// The operand of the unary operation that makes `value`.
pub(super) fn unary(before: &Before, value: ValueId, op: UnaryOp) -> Option<ValueId> {
    before.made_by(value, &Op::Unary(op)).map(|inputs| inputs[0])
}

/// `x` and `factor` if `node` is `x * factor`, or `x / (1 / factor)`, with a constant of one element.
pub(super) fn scaled(graph: &Graph, node: &Node) -> Option<(ValueId, f32)> {
    let same_shape = |x: ValueId| graph.value(x).shape == graph.value(node.outputs[0]).shape;
    match node.op {
        Op::Binary(BinaryOp::Multiply) => orders(&node.inputs)
            .into_iter()
            .find_map(|(x, factor)| graph.scalar_f32(factor).filter(|_| same_shape(x)).map(|factor| (x, factor))),
        Op::Binary(BinaryOp::Divide) => {
            let divisor = graph.scalar_f32(node.inputs[1]).filter(|_| same_shape(node.inputs[0]))?;
            Some((node.inputs[0], 1.0 / divisor))
        }
        _ => None,
    }
}

/// Number of elements, as a known factor and unknown ones.
pub(super) fn volume(dims: &[Int]) -> (i64, Vec<SymbolId>) {
    let mut known = 1i64;
    let mut unknown = Vec::new();
    for dim in dims {
        match dim {
            Int::Const(size) => known = known.saturating_mul(*size),
            Int::Symbol(id) => unknown.push(*id),
        }
    }
    unknown.sort();
    (known, unknown)
}

/// True for f32 values that are not quantized: those whose arithmetic fusions may reorder.
pub(super) fn is_plain_f32(graph: &Graph, value: ValueId) -> bool {
    let value = graph.value(value);
    value.dtype == DType::F32 && value.quantization.is_none()
}
