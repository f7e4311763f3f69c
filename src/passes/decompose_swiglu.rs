//! SwiGLU and SiLU in plain operations: `silu(x) = x * sigmoid(x)`.

use super::Pass;
use super::parts::Parts;
use crate::error::Result;
use crate::graph::{BinaryOp, Graph, Node, Op, UnaryOp};

/// See the module.
pub struct DecomposeSwiGlu;

impl Pass for DecomposeSwiGlu {
    fn name(&self) -> &'static str {
        "decompose-swiglu"
    }

    fn after(&self) -> &'static [&'static str] {
        &["fuse-swiglu"]
    }

    fn run(&self, graph: &mut Graph) -> Result<usize> {
        Ok(graph.rewrite(|graph, before, id| decompose(graph, &before.nodes()[id])))
    }
}

fn decompose(graph: &mut Graph, root: &Node) -> Option<Vec<Node>> {
    let multiply = Op::Binary(BinaryOp::Multiply);
    let sigmoid = Op::Unary(UnaryOp::Sigmoid);
    let mut parts = match root.op {
        Op::SwiGlu | Op::Unary(UnaryOp::Silu) => Parts::of(graph, root)?,
        _ => return None,
    };
    let gate = parts.inputs()[0];
    let shape = parts.shape(gate);
    let opened = parts.emit("sigmoid", sigmoid, &[gate], shape.clone());
    match parts.inputs().get(1) {
        Some(&up) => {
            let silu = parts.emit("silu", multiply.clone(), &[gate, opened], shape);
            Some(parts.finish(multiply, &[silu, up]))
        }
        None => Some(parts.finish(multiply, &[gate, opened])),
    }
}
