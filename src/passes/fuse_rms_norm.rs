//! `x * rsqrt(mean(x²) + ε) * gamma` as one node.

use super::Pass;
use super::matching::{is_plain_f32, orders, products, unary};
use crate::error::Result;
use crate::graph::{Before, BinaryOp, Graph, Int, Node, Op, Replacement, UnaryOp, ValueId};

/// See the module.
pub struct FuseRmsNorm;

impl Pass for FuseRmsNorm {
    fn name(&self) -> &'static str {
        "fuse-rms-norm"
    }

    fn after(&self) -> &'static [&'static str] {
        &["simplify"]
    }

    fn run(&self, graph: &mut Graph) -> Result<usize> {
        let count = graph.rewrite(|graph, before, id| fuse(graph, before, &before.nodes()[id]));
        graph.remove_dead_nodes();
        Ok(count)
    }
}

fn fuse(graph: &mut Graph, before: &Before, root: &Node) -> Option<Vec<Node>> {
    if root.op != Op::Binary(BinaryOp::Multiply) {
        return None;
    }
    let (x, epsilon, mut gamma) = orders(&root.inputs).into_iter().find_map(|(normed, gamma)| {
        let (x, epsilon) = normalized(graph, before, normed)?;
        let (shape, weights) = (&graph.value(x).shape, &graph.value(gamma).shape);
        let (last, leading) = weights.split_last()?;
        let fits = shape.last() == Some(last) && leading.iter().all(|&dim| dim == Int::Const(1));
        let fits = fits && graph.value(root.outputs[0]).shape == *shape && is_plain_f32(graph, gamma);
        fits.then_some((x, epsilon, gamma))
    })?;
    let mut replacement = Replacement::new();
    if graph.value(gamma).shape.len() > 1 {
        let last = *graph.value(gamma).shape.last()?;
        gamma = replacement.emit(graph, root, Op::Reshape, &[gamma], vec![last]);
    }
    Some(replacement.finish(root, Op::RmsNorm { epsilon }, &[x, gamma]))
}

/// `x` and ε if `value` is `x / sqrt(mean(x²) + ε)` along the last axis.
fn normalized(graph: &Graph, before: &Before, value: ValueId) -> Option<(ValueId, f32)> {
    let quotient = before.made_by(value, &Op::Binary(BinaryOp::Divide)).map(|inputs| (inputs[0], inputs[1]));
    let from_quotient = quotient.and_then(|(x, root)| {
        let epsilon = mean_square(graph, before, x, unary(before, root, UnaryOp::Sqrt)?)?;
        Some((x, epsilon))
    });
    let from_product = || {
        products(before, value).find_map(|(x, factor)| {
            let root = || unary(before, unary(before, factor, UnaryOp::Reciprocal)?, UnaryOp::Sqrt);
            let sum = unary(before, factor, UnaryOp::Rsqrt).or_else(root)?;
            Some((x, mean_square(graph, before, x, sum)?))
        })
    };
    from_quotient.or_else(from_product)
}

/// ε if `sum` is `mean(x²) + ε`.
fn mean_square(graph: &Graph, before: &Before, x: ValueId, sum: ValueId) -> Option<f32> {
    let last = graph.value(x).shape.len().checked_sub(1).filter(|_| is_plain_f32(graph, x))?;
    let terms = before.made_by(sum, &Op::Binary(BinaryOp::Add))?;
    orders(terms).into_iter().find_map(|(mean, epsilon)| {
        let epsilon = graph.scalar_f32(epsilon)?;
        let squares = before.made_by(mean, &Op::Mean { axes: vec![last] })?[0];
        let is_square = unary(before, squares, UnaryOp::Square) == Some(x)
            || before.made_by(squares, &Op::Binary(BinaryOp::Multiply)) == Some(&[x, x]);
        is_square.then_some(epsilon)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::interpret::{Interpreter, Tensor};
    use crate::graph::testing::{Rng, assert_close, dims, f32_blob};
    use crate::tensor::DType;

    /// The norm with each part spelled as asked.
    fn graph(square: bool, divide: u8, gamma_first: bool, gamma_shape: &[usize], axis: usize) -> Graph {
        let mut graph = Graph::new("g");
        let (full, one) = (dims(&[2, 3, 4]), dims(&[if axis == 0 { 1 } else { 2 }, 3, if axis == 2 { 1 } else { 4 }]));
        let x = graph.add_input("x", DType::F32, full.clone());
        let gamma = graph.add_constant("gamma", DType::F32, gamma_shape, None, f32_blob(&[0.5, 2.0, -1.0, 3.0]));
        let epsilon = graph.add_scalar_f32("epsilon", 0.25);
        let mut emit =
            |op, inputs: &[ValueId], shape: &Vec<Int>| graph.emit("n", op, inputs, DType::F32, shape.clone());
        let squares = if square {
            emit(Op::Unary(UnaryOp::Square), &[x], &full)
        } else {
            emit(Op::Binary(BinaryOp::Multiply), &[x, x], &full)
        };
        let mean = emit(Op::Mean { axes: vec![axis] }, &[squares], &one);
        let sum = emit(Op::Binary(BinaryOp::Add), &[epsilon, mean], &one);
        let normed = match divide {
            0 => {
                let factor = emit(Op::Unary(UnaryOp::Rsqrt), &[sum], &one);
                emit(Op::Binary(BinaryOp::Multiply), &[factor, x], &full)
            }
            _ => {
                let root = emit(Op::Unary(UnaryOp::Sqrt), &[sum], &one);
                if divide == 1 {
                    emit(Op::Binary(BinaryOp::Divide), &[x, root], &full)
                } else {
                    let factor = emit(Op::Unary(UnaryOp::Reciprocal), &[root], &one);
                    emit(Op::Binary(BinaryOp::Multiply), &[x, factor], &full)
                }
            }
        };
        let inputs = if gamma_first { [gamma, normed] } else { [normed, gamma] };
        let output = emit(Op::Binary(BinaryOp::Multiply), &inputs, &full);
        graph.outputs.push(output);
        graph
    }

    fn run(graph: &Graph) -> Vec<Vec<f32>> {
        let x = Tensor::f32(&[2, 3, 4], Rng(5).reals(24));
        vec![Interpreter::new(graph).unwrap().run(&[x]).unwrap()[0].reals().unwrap().to_vec()]
    }

    #[test]
    fn every_spelling_becomes_one_node() {
        for (square, divide, gamma_first, gamma_shape) in
            [(false, 0, false, &[4][..]), (true, 1, true, &[4]), (true, 2, false, &[1, 1, 4])]
        {
            let mut graph = graph(square, divide, gamma_first, gamma_shape, 2);
            let before = run(&graph);
            assert_eq!(FuseRmsNorm.run(&mut graph).unwrap(), 1);
            graph.verify().unwrap();
            assert_eq!(graph.nodes.last().unwrap().op, Op::RmsNorm { epsilon: 0.25 });
            assert_eq!(graph.nodes.len(), gamma_shape.len().min(2));
            assert_eq!(graph.nodes[0].origin, "n");
            assert_close(&run(&graph), &before, "norm");
        }
    }

    #[test]
    fn a_mean_along_another_axis_is_no_norm() {
        let mut graph = graph(false, 0, false, &[4], 0);
        let before = graph.nodes.clone();
        assert_eq!(FuseRmsNorm.run(&mut graph).unwrap(), 0);
        assert_eq!(graph.nodes, before);
    }
}
