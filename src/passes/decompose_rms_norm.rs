//! RMS norm in plain operations: `x * rsqrt(mean(x²) + ε) * gamma`.

use super::Pass;
use super::parts::Parts;
use crate::error::Result;
use crate::graph::{BinaryOp, Graph, Int, Node, Op, UnaryOp};

/// See the module.
pub struct DecomposeRmsNorm;

impl Pass for DecomposeRmsNorm {
    fn name(&self) -> &'static str {
        "decompose-rms-norm"
    }

    fn after(&self) -> &'static [&'static str] {
        &["fuse-rms-norm"]
    }

    fn run(&self, graph: &mut Graph) -> Result<usize> {
        Ok(graph.rewrite(|graph, before, id| decompose(graph, &before.nodes()[id])))
    }
}

fn decompose(graph: &mut Graph, root: &Node) -> Option<Vec<Node>> {
    let Op::RmsNorm { epsilon } = root.op else { return None };
    let mut parts = Parts::of(graph, root)?;
    let &[x, gamma] = parts.inputs() else { return None };
    let shape = parts.shape(x);
    let last = shape.len() - 1;
    let mut row = shape.clone();
    row[last] = Int::Const(1);
    let multiply = Op::Binary(BinaryOp::Multiply);
    let square = parts.emit("square", multiply.clone(), &[x, x], shape.clone());
    let mean = parts.emit("mean", Op::Mean { axes: vec![last] }, &[square], row.clone());
    let epsilon = parts.scalar("epsilon", epsilon);
    let sum = parts.emit("sum", Op::Binary(BinaryOp::Add), &[mean, epsilon], row.clone());
    let factor = parts.emit("factor", Op::Unary(UnaryOp::Rsqrt), &[sum], row);
    let normed = parts.emit("normed", multiply.clone(), &[x, factor], shape);
    Some(parts.finish(multiply, &[normed, gamma]))
}
