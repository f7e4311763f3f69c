//! Computes what is known before any run: small results of constants only, so that no weight is ever copied.

use super::Pass;
use crate::base::storage::Blob;
use crate::error::Result;
use crate::graph::{Constant, Graph, Int, Node, ValueId, ValueKind, interpret};
use crate::tensor::DType;

/// Most bytes of one folded result.
const MAX_RESULT: usize = 1 << 20;
/// Most bytes of a result that comes from no operand: such nodes cost next to nothing to run.
const MAX_GENERATED: usize = 1 << 12;
/// Most bytes of the operands, which bounds the time.
const MAX_OPERANDS: usize = 16 << 20;
/// Most bytes that one run of the pass adds.
const MAX_TOTAL: usize = 64 << 20;

/// See the module.
pub struct ConstantFold;

impl Pass for ConstantFold {
    fn name(&self) -> &'static str {
        "constant-fold"
    }

    fn run(&self, graph: &mut Graph) -> Result<usize> {
        let mut left = MAX_TOTAL;
        let results: Vec<ValueId> =
            graph.outputs.iter().copied().chain(graph.state_updates.iter().map(|(_, value)| *value)).collect();
        let (mut kept, mut count) = (Vec::new(), 0);
        for node in std::mem::take(&mut graph.nodes) {
            let size: usize = node.outputs.iter().map(|&id| bytes(graph, id)).sum();
            let is_result = node.outputs.iter().any(|output| results.contains(output));
            let folded = (size <= left && !is_result && worthwhile(graph, &node, size))
                .then(|| interpret::fold(graph, &node))
                .flatten();
            let Some(tensors) = folded else {
                kept.push(node);
                continue;
            };
            for (&output, tensor) in node.outputs.iter().zip(tensors) {
                graph.value_mut(output).kind =
                    ValueKind::Constant(Constant { data: Blob::from_vec(tensor.to_bytes()) });
            }
            left -= size;
            count += 1;
        }
        graph.nodes = kept;
        Ok(count)
    }
}

fn bytes(graph: &Graph, id: ValueId) -> usize {
    graph.max_shape(id).iter().product::<usize>() * graph.value(id).dtype.size()
}

fn worthwhile(graph: &Graph, node: &Node, size: usize) -> bool {
    let known = |&id: &ValueId| {
        let value = graph.value(id);
        value.shape.iter().all(|dim| matches!(dim, Int::Const(_))) && value.dtype != DType::F64
    };
    let sizes = node.inputs.iter().map(|&id| graph.constant(id).map(|data| data.len()));
    let operands: Option<usize> = sizes.sum();
    let cap = if node.inputs.is_empty() { MAX_GENERATED } else { MAX_RESULT };
    size <= cap
        && operands.is_some_and(|operands| operands <= MAX_OPERANDS)
        && node.inputs.iter().chain(&node.outputs).all(known)
        && node.outputs.iter().all(|&id| graph.value(id).quantization.is_none())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::testing::{dims, f32_blob};
    use crate::graph::{BinaryOp, Op, UnaryOp};

    #[test]
    fn a_chain_of_constants_becomes_one() {
        let mut graph = Graph::new("g");
        let x = graph.add_input("x", DType::F32, dims(&[2]));
        let c = graph.add_constant("c", DType::F32, &[2], None, f32_blob(&[4.0, 9.0]));
        let root = graph.emit("root", Op::Unary(UnaryOp::Sqrt), &[c], DType::F32, dims(&[2]));
        let negative = graph.emit("negative", Op::Unary(UnaryOp::Negate), &[root], DType::F32, dims(&[2]));
        let sum = graph.emit("sum", Op::Binary(BinaryOp::Add), &[x, negative], DType::F32, dims(&[2]));
        graph.outputs.push(sum);
        assert_eq!(ConstantFold.run(&mut graph).unwrap(), 2);
        assert_eq!(graph.nodes.len(), 1);
        assert_eq!(graph.constant(negative), Some(&f32_blob(&[-2.0, -3.0])));
        graph.verify().unwrap();
    }

    #[test]
    fn what_is_large_unknown_or_a_result_stays() {
        let mut graph = Graph::new("g");
        let x = graph.add_input("x", DType::F32, dims(&[1]));
        let rows = MAX_RESULT / 4 + 1;
        let weight = graph.add_constant("w", DType::F32, &[rows, 1], None, f32_blob(&vec![1.0; rows]));
        let transposed = graph.emit("t", Op::Permute { perm: vec![1, 0] }, &[weight], DType::F32, dims(&[1, rows]));
        let zeros = graph.emit("zeros", Op::Fill { value: 0.0 }, &[], DType::F32, dims(&[MAX_GENERATED]));
        let negative = graph.emit("n", Op::Unary(UnaryOp::Negate), &[x], DType::F32, dims(&[1]));
        let result = graph.emit("r", Op::Fill { value: 1.0 }, &[], DType::F32, dims(&[1]));
        graph.outputs.extend([transposed, zeros, negative, result]);
        graph.outputs.swap_remove(0);
        assert_eq!(ConstantFold.run(&mut graph).unwrap(), 0);
        assert_eq!(graph.nodes.len(), 4);
    }
}
