//! Element-wise operations.

use super::Lowering;
use crate::error::Result;
use crate::graph::{BinaryOp, Node, UnaryOp};
use crate::qnn::compiler::operation::{Operation, Param};

pub(super) fn unary(lowering: &mut Lowering<'_>, node: &Node, op: UnaryOp) -> Result<()> {
    let kind = match op {
        UnaryOp::Sigmoid => c"Sigmoid",
        UnaryOp::Tanh => c"Tanh",
        UnaryOp::Gelu => c"Gelu",
        UnaryOp::Negate => c"ElementWiseNeg",
        UnaryOp::Sqrt => c"ElementWiseSquareRoot",
        UnaryOp::Rsqrt => c"ElementWiseRsqrt",
        UnaryOp::Silu => return Err(lowering.refuse(node, "it must be decomposed before")),
        UnaryOp::Square => {
            let x = node.inputs[0];
            return apply(lowering, node, c"ElementWiseMultiply", &[x, x]);
        }
        _ => return Err(lowering.refuse(node, "the HTP has no such operation on codes")),
    };
    apply(lowering, node, kind, &node.inputs)
}

pub(super) fn binary(lowering: &mut Lowering<'_>, node: &Node, op: BinaryOp) -> Result<()> {
    let kind = match op {
        BinaryOp::Add => c"ElementWiseAdd",
        BinaryOp::Subtract => c"ElementWiseSubtract",
        BinaryOp::Multiply => c"ElementWiseMultiply",
        BinaryOp::Divide => c"ElementWiseDivide",
        BinaryOp::Minimum => c"ElementWiseMinimum",
        BinaryOp::Maximum => c"ElementWiseMaximum",
        _ => return Err(lowering.refuse(node, "the HTP has no such operation on codes")),
    };
    apply(lowering, node, kind, &node.inputs)
}

pub(super) fn clamp(lowering: &mut Lowering<'_>, node: &Node, [min, max]: [f32; 2]) -> Result<()> {
    let bits = lowering.bits(node.outputs[0]);
    let (input, output) = (lowering.operand(node.inputs[0], bits)?, lowering.result(node)?);
    let operation = Operation::new(c"ReluMinMax", &[input], output)
        .with(c"min_value", Param::F32(min))
        .with(c"max_value", Param::F32(max));
    lowering.add(node, &operation)
}

fn apply(
    lowering: &mut Lowering<'_>,
    node: &Node,
    kind: &'static std::ffi::CStr,
    operands: &[crate::graph::ValueId],
) -> Result<()> {
    let bits = lowering.bits(node.outputs[0]);
    let inputs = operands.iter().map(|&id| lowering.operand(id, bits)).collect::<Result<Vec<_>>>()?;
    let output = lowering.result(node)?;
    lowering.add(node, &Operation::new(kind, &inputs, output))
}
