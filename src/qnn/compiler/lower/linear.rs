//! Linear layers and products of matrices.

use super::{Lowering, plain};
use crate::error::Result;
use crate::graph::interpret::ConstantLines;
use crate::graph::{Node, ValueId};
use crate::qnn::compiler::operation::{Operation, Param, TensorId};
use crate::qnn::compiler::tensor::{Coding, Role, TensorSpec};
use crate::qnn::compiler::weights::ConvWeights;
use crate::qnn::sys;

/// A linear layer is a convolution with a kernel of one, `[1, 1, rows, in]` → `[1, 1, rows, out]`: the form that the
/// HTP's matrix unit is fed in, and the one whose weights may have 4 bits per output or block.
pub(super) fn fully_connected(lowering: &mut Lowering<'_>, node: &Node) -> Result<()> {
    let (x, w) = (node.inputs[0], node.inputs[1]);
    let weights = ConvWeights::new(lowering.graph, w).map_err(|why| lowering.refuse(node, why))?;
    let Some(encoding) = lowering.encoding(x) else {
        return Err(lowering.refuse(node, "its operand is not quantized"));
    };
    let [outputs, inputs] = lowering.dims(w)?[..] else {
        return Err(lowering.refuse(node, "its weights are no matrix"));
    };
    let rows = lowering.dims(x)?.iter().product::<usize>() / inputs.max(1);
    let input = lowering.reshaped(node, x, &[1, 1, rows, inputs])?;
    let bias_scales: Vec<f32> = weights.scales.iter().map(|scale| scale * encoding.scale).collect();
    let spec = TensorSpec {
        name: lowering.name(&lowering.graph.value(w).name),
        role: Role::Constant,
        data_type: sys::QNN_DATATYPE_SFIXED_POINT_8,
        dims: vec![1, 1, inputs, outputs],
        coding: weights.coding,
    };
    let mut operands = vec![input, lowering.composer.matrix(&spec, &weights.codes)?];
    drop(weights.codes);
    if let Some(&bias) = node.inputs.get(2) {
        operands.push(bias_tensor(lowering, bias, bias_scales)?);
    }
    let bits = lowering.bits(x);
    let delivery = lowering.delivery(node, &[1, 1, rows, outputs], bits)?;
    let operation = Operation::new(c"Conv2d", &operands, delivery.into)
        .with_list(c"stride", &[1, 1])
        .with(c"pad_amount", Param::Numbers { dims: vec![2, 2], data: vec![0; 4] })
        .with_list(c"dilation", &[1, 1])
        .with(c"group", Param::U32(1));
    lowering.deliver(node, delivery, operation)
}

/// A bias is counted in what one code of the operand times one code of the weights is worth.
fn bias_tensor(lowering: &mut Lowering<'_>, id: ValueId, scales: Vec<f32>) -> Result<TensorId> {
    let Some(lines) = ConstantLines::of(lowering.graph, id) else {
        return Err(lowering.bad_value(id, "a bias must be a real constant"));
    };
    let reals: Vec<f32> = lines.iter().flatten().collect();
    let code = |(&real, &scale): (&f32, &f32)| (f64::from(real) / f64::from(scale)).round_ties_even() as i32;
    let data: Vec<u8> = reals.iter().zip(&scales).flat_map(|pair| code(pair).to_le_bytes()).collect();
    let spec = TensorSpec {
        name: lowering.name(&plain(&lowering.graph.value(id).name)),
        role: Role::Constant,
        data_type: sys::QNN_DATATYPE_SFIXED_POINT_32,
        dims: vec![scales.len()],
        coding: Coding::PerAxis { axis: 0, bits: 32, scales },
    };
    lowering.composer.constant(&spec, data)
}

pub(super) fn matmul(lowering: &mut Lowering<'_>, node: &Node, transpose_b: bool) -> Result<()> {
    let (a, b, y) = (node.inputs[0], node.inputs[1], node.outputs[0]);
    let operands = [a, b].map(|id| lowering.operand(id, lowering.bits(y)));
    let [left, right] = operands;
    let (left, right) = (left?, right?);
    let bits = lowering.bits(a).max(lowering.bits(b));
    let dims = lowering.dims(y)?;
    let delivery = lowering.delivery(node, &dims, bits)?;
    let operation = Operation::new(c"MatMul", &[left, right], delivery.into)
        .with(c"transpose_in0", Param::Bool(false))
        .with(c"transpose_in1", Param::Bool(transpose_b));
    lowering.deliver(node, delivery, operation)
}
