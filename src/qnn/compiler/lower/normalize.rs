//! RMS norm, softmax and means.

use super::Lowering;
use crate::error::Result;
use crate::graph::Node;
use crate::qnn::compiler::operation::{Operation, Param, TensorId};
use crate::qnn::compiler::tensor::{Role, TensorSpec};

/// SDKs before 2.49 need the offset that RMS norm may have, so it is there, and zero.
pub(super) fn rms_norm(lowering: &mut Lowering<'_>, node: &Node, epsilon: f32) -> Result<()> {
    let (x, gamma, y) = (node.inputs[0], node.inputs[1], node.outputs[0]);
    let bits = lowering.bits(y);
    let axis = lowering.dims(x)?.len().saturating_sub(1);
    let (input, scale) = (lowering.operand(x, bits)?, lowering.operand(gamma, bits)?);
    let zero = zeros(lowering, node)?;
    let output = lowering.result(node)?;
    let operation = Operation::new(c"RmsNorm", &[input, scale, zero], output)
        .with(c"epsilon", Param::F32(epsilon))
        .with_list(c"axes", &[axis]);
    lowering.add(node, &operation)
}

/// As many zeros as the result has columns, in its encoding.
fn zeros(lowering: &mut Lowering<'_>, node: &Node) -> Result<TensorId> {
    let y = node.outputs[0];
    let Some(encoding) = lowering.encoding(y) else {
        return Err(lowering.refuse(node, "its result is not quantized"));
    };
    let (data_type, coding) = lowering.element(y)?;
    let columns = lowering.dims(y)?.last().copied().unwrap_or(1);
    let size = lowering.graph.value(y).dtype.size();
    let data: Vec<u8> = (0..columns).flat_map(|_| encoding.zero_point.to_le_bytes().into_iter().take(size)).collect();
    let name = lowering.name("beta");
    let spec = TensorSpec { name, role: Role::Constant, data_type, dims: vec![columns], coding };
    lowering.composer.constant(&spec, data)
}

pub(super) fn softmax(lowering: &mut Lowering<'_>, node: &Node, axis: usize) -> Result<()> {
    let bits = lowering.bits(node.outputs[0]);
    let (input, output) = (lowering.operand(node.inputs[0], bits)?, lowering.result(node)?);
    let operation = Operation::new(c"Softmax", &[input], output)
        .with(c"axis", Param::U32(axis as u32))
        .with(c"beta", Param::F32(1.0));
    lowering.add(node, &operation)
}

pub(super) fn mean(lowering: &mut Lowering<'_>, node: &Node, axes: &[usize]) -> Result<()> {
    let bits = lowering.bits(node.outputs[0]);
    let (input, output) = (lowering.operand(node.inputs[0], bits)?, lowering.result(node)?);
    let operation =
        Operation::new(c"ReduceMean", &[input], output).with_list(c"axes", axes).with(c"keep_dims", Param::Bool(true));
    lowering.add(node, &operation)
}
