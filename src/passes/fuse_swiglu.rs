//! `gate * sigmoid(gate) * up` as one node; without `up`, the SiLU alone.

use super::Pass;
use super::matching::{is_plain_f32, orders, products, unary};
use crate::error::Result;
use crate::graph::{Before, BinaryOp, Graph, Node, Op, Replacement, UnaryOp, ValueId};

/// See the module.
pub struct FuseSwiGlu;

impl Pass for FuseSwiGlu {
    fn name(&self) -> &'static str {
        "fuse-swiglu"
    }

    fn after(&self) -> &'static [&'static str] {
        &["simplify"]
    }

    fn run(&self, graph: &mut Graph) -> Result<usize> {
        let mut count = 0;
        for fuse in [fuse_swiglu, fuse_silu] {
            count += graph.rewrite(|graph, before, id| fuse(graph, before, &before.nodes()[id]));
            graph.remove_dead_nodes();
        }
        Ok(count)
    }
}

fn fuse_swiglu(graph: &mut Graph, before: &Before, root: &Node) -> Option<Vec<Node>> {
    if root.op != Op::Binary(BinaryOp::Multiply) {
        return None;
    }
    let shape = &graph.value(root.outputs[0]).shape;
    let (gate, up) = orders(&root.inputs).into_iter().find_map(|(activated, up)| {
        let gate = silu(before, activated)?;
        let fits = [gate, up].iter().all(|&x| graph.value(x).shape == *shape && is_plain_f32(graph, x));
        fits.then_some((gate, up))
    })?;
    Some(Replacement::new().finish(root, Op::SwiGlu, &[gate, up]))
}

fn fuse_silu(graph: &mut Graph, before: &Before, root: &Node) -> Option<Vec<Node>> {
    let gate = silu(before, *root.outputs.first()?).filter(|&gate| is_plain_f32(graph, gate))?;
    (root.op == Op::Binary(BinaryOp::Multiply))
        .then(|| Replacement::new().finish(root, Op::Unary(UnaryOp::Silu), &[gate]))
}

/// `x` if `value` is `x * sigmoid(x)`.
fn silu(before: &Before, value: ValueId) -> Option<ValueId> {
    let product = || products(before, value).find(|&(x, gate)| unary(before, gate, UnaryOp::Sigmoid) == Some(x));
    unary(before, value, UnaryOp::Silu).or_else(|| product().map(|(x, _)| x))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::interpret::{Interpreter, Tensor};
    use crate::graph::testing::{assert_close, dims};
    use crate::tensor::DType;

    fn check(build: impl Fn(&mut Graph, ValueId, ValueId) -> ValueId, ops: &[Op]) {
        let mut graph = Graph::new("g");
        let x = graph.add_input("x", DType::F32, dims(&[3]));
        let y = graph.add_input("y", DType::F32, dims(&[3]));
        let output = build(&mut graph, x, y);
        graph.outputs.push(output);
        let run = |graph: &Graph| {
            let inputs = [[-1.5, 0.0, 20.0], [0.5, 2.0, -3.0]].map(|data| Tensor::f32(&[3], data));
            vec![Interpreter::new(graph).unwrap().run(&inputs).unwrap()[0].reals().unwrap().to_vec()]
        };
        let before = run(&graph);
        let fused = FuseSwiGlu.run(&mut graph).unwrap();
        assert_eq!(fused, usize::from(graph.nodes.iter().any(|node| ops.contains(&node.op))));
        assert_eq!(graph.nodes.iter().map(|node| node.op.clone()).collect::<Vec<_>>(), ops);
        assert_close(&run(&graph), &before, "swiglu");
    }

    fn emit(graph: &mut Graph, op: Op, inputs: &[ValueId]) -> ValueId {
        graph.emit("n", op, inputs, DType::F32, dims(&[3]))
    }

    const MULTIPLY: Op = Op::Binary(BinaryOp::Multiply);

    #[test]
    fn every_spelling_becomes_one_node() {
        let swiglu = |flip: bool, ready: bool| {
            move |graph: &mut Graph, x: ValueId, y: ValueId| {
                let silu = if ready {
                    emit(graph, Op::Unary(UnaryOp::Silu), &[x])
                } else {
                    let sigmoid = emit(graph, Op::Unary(UnaryOp::Sigmoid), &[x]);
                    emit(graph, MULTIPLY, &if flip { [sigmoid, x] } else { [x, sigmoid] })
                };
                emit(graph, MULTIPLY, &if flip { [y, silu] } else { [silu, y] })
            }
        };
        for (flip, ready) in [(false, false), (true, false), (true, true)] {
            check(swiglu(flip, ready), &[Op::SwiGlu]);
        }
    }

    #[test]
    fn without_up_it_is_silu() {
        let silu = |graph: &mut Graph, x: ValueId, _: ValueId| {
            let sigmoid = emit(graph, Op::Unary(UnaryOp::Sigmoid), &[x]);
            emit(graph, MULTIPLY, &[x, sigmoid])
        };
        check(silu, &[Op::Unary(UnaryOp::Silu)]);
    }

    #[test]
    fn the_sigmoid_of_another_value_is_a_plain_gate() {
        let mut graph = Graph::new("g");
        let [x, y] = ["x", "y"].map(|name| graph.add_input(name, DType::F32, dims(&[3])));
        let sigmoid = emit(&mut graph, Op::Unary(UnaryOp::Sigmoid), &[y]);
        let output = emit(&mut graph, MULTIPLY, &[x, sigmoid]);
        graph.outputs.push(output);
        assert_eq!(FuseSwiGlu.run(&mut graph).unwrap(), 0);
        assert_eq!(graph.nodes.len(), 2);
    }
}
