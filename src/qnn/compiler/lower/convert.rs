//! Changes of encoding and of element type.

use super::Lowering;
use crate::error::Result;
use crate::graph::Node;
use crate::qnn::compiler::operation::Operation;
use crate::tensor::DType;

pub(super) fn convert(lowering: &mut Lowering<'_>, node: &Node) -> Result<()> {
    let (x, y) = (node.inputs[0], node.outputs[0]);
    let kind = match (lowering.encoding(x), lowering.encoding(y)) {
        (Some(_), Some(_)) => c"Convert",
        (None, Some(_)) if lowering.graph.constant(x).is_some() => {
            // The compiler's own rounding of constants: no node is left.
            return constant(lowering, node);
        }
        (None, Some(_)) if lowering.graph.value(x).dtype == DType::F32 => c"Quantize",
        (Some(_), None) if lowering.graph.value(y).dtype == DType::F32 => c"Dequantize",
        _ => c"Cast",
    };
    let bits = lowering.bits(y);
    let (input, output) = (lowering.operand(x, bits)?, lowering.result(node)?);
    lowering.add(node, &Operation::new(kind, &[input], output))
}

fn constant(lowering: &mut Lowering<'_>, node: &Node) -> Result<()> {
    let (x, y) = (node.inputs[0], node.outputs[0]);
    let unsigned = matches!(lowering.graph.value(y).dtype, DType::U8 | DType::U16);
    if lowering.tensors.contains_key(&y) || !unsigned {
        return Err(lowering.refuse(node, "a constant cannot be a result"));
    }
    let (bits, encoding) = (lowering.bits(y), lowering.encoding(y).expect("the caller saw it"));
    let tensor = lowering.quantized_constant(x, bits, encoding)?;
    lowering.tensors.insert(y, tensor);
    Ok(())
}
