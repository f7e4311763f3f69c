//! Operations that move elements and compute nothing.

use super::Lowering;
use crate::error::Result;
use crate::graph::{Int, Node};
use crate::qnn::compiler::operation::{Operation, Param};

pub(super) fn reshape(lowering: &mut Lowering<'_>, node: &Node) -> Result<()> {
    apply(lowering, node, |operation| operation, c"Reshape")
}

pub(super) fn permute(lowering: &mut Lowering<'_>, node: &Node, perm: &[usize]) -> Result<()> {
    apply(lowering, node, |operation| operation.with_list(c"perm", perm), c"Transpose")
}

pub(super) fn concat(lowering: &mut Lowering<'_>, node: &Node, axis: usize) -> Result<()> {
    apply(lowering, node, |operation| operation.with(c"axis", Param::U32(axis as u32)), c"Concat")
}

/// A slice along one axis.
pub(super) struct Cut {
    axis: usize,
    start: Int,
    step: usize,
}

impl Cut {
    pub(super) fn new(axis: usize, start: Int, step: usize) -> Self {
        Self { axis, start, step }
    }
}

pub(super) fn slice(lowering: &mut Lowering<'_>, node: &Node, cut: Cut) -> Result<()> {
    let Int::Const(start) = cut.start else {
        return Err(lowering.refuse(node, "its start is known only when the graph runs"));
    };
    let (from, to) = (lowering.dims(node.inputs[0])?, lowering.dims(node.outputs[0])?);
    let ranges = from.iter().zip(&to).enumerate().flat_map(|(axis, (&size, &count))| {
        if axis != cut.axis {
            return [0, size as i32, 1];
        }
        // One past the last element taken, which is in range.
        let end = start as i32 + (count.saturating_sub(1) * cut.step) as i32 + 1;
        [start as i32, end, cut.step as i32]
    });
    let ranges = Param::Integers { dims: vec![from.len(), 3], data: ranges.collect() };
    apply(lowering, node, |operation| operation.with(c"ranges", ranges), c"StridedSlice")
}

/// Axes that the operand lacks come first, with size 1.
pub(super) fn expand(lowering: &mut Lowering<'_>, node: &Node) -> Result<()> {
    let (from, to) = (lowering.dims(node.inputs[0])?, lowering.dims(node.outputs[0])?);
    let ones = to.len() - from.len().min(to.len());
    let from: Vec<usize> = std::iter::repeat_n(1, ones).chain(from).collect();
    let multiples: Vec<usize> = to.iter().zip(&from).map(|(&to, &from)| if from == to { 1 } else { to }).collect();
    let input = lowering.reshaped(node, node.inputs[0], &from)?;
    let output = lowering.result(node)?;
    lowering.add(node, &Operation::new(c"Tile", &[input], output).with_list(c"multiples", &multiples))
}

/// The library's operations move codes, so operands whose encoding is another one are converted first.
fn apply(
    lowering: &mut Lowering<'_>,
    node: &Node,
    finish: impl FnOnce(Operation) -> Operation,
    kind: &'static std::ffi::CStr,
) -> Result<()> {
    let y = node.outputs[0];
    let bits = lowering.bits(y);
    let mut inputs = Vec::with_capacity(node.inputs.len());
    for &x in &node.inputs {
        let tensor = lowering.operand(x, bits)?;
        let (have, need) = (lowering.encoding(x), lowering.encoding(y));
        if have.is_none() || have == need && lowering.bits(x) == bits {
            inputs.push(tensor);
            continue;
        }
        let (element, dims) = (lowering.element(y)?, lowering.dims(x)?);
        let converted = lowering.inner("converted", element, &dims)?;
        lowering.add(node, &Operation::new(c"Convert", &[tensor], converted))?;
        inputs.push(converted);
    }
    let output = lowering.result(node)?;
    lowering.add(node, &finish(Operation::new(kind, &inputs, output)))
}
