//! Lookup of rows of a table.

use super::Lowering;
use crate::error::Result;
use crate::graph::Node;
use crate::qnn::compiler::operation::{Operation, Param};
use crate::qnn::compiler::tensor::Coding;
use crate::tensor::DType;

/// A table that is not quantized as a whole gets the result's encoding, so its rows are rounded once.
pub(super) fn embedding(lowering: &mut Lowering<'_>, node: &Node) -> Result<()> {
    let (table, ids, y) = (node.inputs[0], node.inputs[1], node.outputs[0]);
    if lowering.graph.value(ids).dtype != DType::I32 {
        return Err(lowering.refuse(node, format!("indices of {}", lowering.graph.value(ids).dtype)));
    }
    let bits = lowering.bits(y);
    let Some(encoding) = lowering.encoding(y) else {
        return Err(lowering.refuse(node, "its result is not quantized"));
    };
    let indices = lowering.operand(ids, bits)?;
    let gather = |table, output| Operation::new(c"Gather", &[table, indices], output).with(c"axis", Param::I32(0));
    let unsigned = matches!(lowering.graph.value(y).dtype, DType::U8 | DType::U16);
    match lowering.encoding(table) {
        None if unsigned => {
            let table = lowering.quantized_constant(table, bits, encoding)?;
            let output = lowering.result(node)?;
            lowering.add(node, &gather(table, output))
        }
        None => Err(lowering.refuse(node, "its result is signed")),
        Some(own) if own == encoding && lowering.bits(table) == bits => {
            let table = lowering.operand(table, bits)?;
            let output = lowering.result(node)?;
            lowering.add(node, &gather(table, output))
        }
        Some(own) => {
            let (data_type, _) = lowering.element(table)?;
            let dims = lowering.dims(y)?;
            let rows = lowering.inner("rows", (data_type, Coding::PerTensor(own)), &dims)?;
            let table = lowering.operand(table, bits)?;
            lowering.add(node, &gather(table, rows))?;
            let output = lowering.result(node)?;
            lowering.add(node, &Operation::new(c"Convert", &[rows], output))
        }
    }
}
