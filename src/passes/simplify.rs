//! Takes out what changes nothing, joins chains of movements, and computes equal things once: after it the fusions
//! need to know one spelling each.

use super::Pass;
use super::common_subexpressions::share_common;
use crate::error::Result;
use crate::graph::{BinaryOp, Graph, Int, Node, NodeId, Op, ValueId, ValueKind};

/// See the module.
pub struct Simplify {
    name: &'static str,
    after: &'static [&'static str],
}

impl Simplify {
    /// Before the fusions.
    pub const FIRST: Self = Self { name: "simplify", after: &["constant-fold"] };
    /// After the fusions, for the movements that they leave.
    pub const FUSED: Self = Self {
        name: "simplify-fused",
        after: &["fuse-rms-norm", "fuse-rotary", "fuse-swiglu", "fuse-attention", "fuse-dynamic-quant-linear"],
    };
}

impl Pass for Simplify {
    fn name(&self) -> &'static str {
        self.name
    }

    fn after(&self) -> &'static [&'static str] {
        self.after
    }

    fn run(&self, graph: &mut Graph) -> Result<usize> {
        let mut total = 0;
        // Each round removes a node or a step of a chain, so the bound is never met; it keeps the time linear.
        for _ in 0..16 {
            let count = simplify_once(graph) + share_common(graph);
            graph.remove_dead_nodes();
            total += count;
            if count == 0 {
                break;
            }
        }
        Ok(total)
    }
}

/// What a node turns out to be.
enum Simpler {
    /// Another value.
    Same(ValueId),
    /// Another operation.
    Node(Op, Vec<ValueId>),
}

fn simplify_once(graph: &mut Graph) -> usize {
    let mut same: Vec<ValueId> = (0..graph.values.len() as u32).map(ValueId).collect();
    let mut made_at: Vec<Option<NodeId>> = vec![None; graph.values.len()];
    let (mut kept, mut count) = (Vec::<Node>::new(), 0);
    'nodes: for mut node in std::mem::take(&mut graph.nodes) {
        node.inputs.iter_mut().for_each(|input| *input = same[input.0 as usize]);
        while let Some(simpler) = simplify_node(graph, &node, |value| made_at[value.0 as usize].map(|id| &kept[id])) {
            count += 1;
            match simpler {
                Simpler::Same(value) => {
                    same[node.outputs[0].0 as usize] = value;
                    continue 'nodes;
                }
                Simpler::Node(op, inputs) => (node.op, node.inputs) = (op, inputs),
            }
        }
        node.outputs.iter().for_each(|output| made_at[output.0 as usize] = Some(kept.len()));
        kept.push(node);
    }
    graph.nodes = kept;
    let results = graph.outputs.iter_mut().chain(graph.state_updates.iter_mut().map(|(_, value)| value));
    results.for_each(|value| *value = same[value.0 as usize]);
    count
}

fn simplify_node<'a>(graph: &Graph, node: &Node, made_by: impl Fn(ValueId) -> Option<&'a Node>) -> Option<Simpler> {
    let output = *node.outputs.first()?;
    if let Some(&value) = node.inputs.iter().find(|&&value| changes_nothing(graph, node, value))
        && may_stand_for(graph, value, output)
    {
        return Some(Simpler::Same(value));
    }
    let &x = node.inputs.first()?;
    let unrounded = |id: ValueId| graph.value(id).quantization.is_none();
    let maker = |id: ValueId| made_by(id).filter(|_| unrounded(id));
    match &node.op {
        Op::Reshape | Op::Expand => {
            let first = maker(x).filter(|first| first.op == node.op)?;
            Some(Simpler::Node(node.op.clone(), first.inputs.clone()))
        }
        Op::Permute { perm } => {
            if let Some(Node { op: Op::Permute { perm: first }, inputs, .. }) = maker(x) {
                let perm = perm.iter().map(|&axis| first[axis]).collect();
                return Some(Simpler::Node(Op::Permute { perm }, inputs.clone()));
            }
            let long = perm.iter().filter(|&&axis| graph.value(x).shape[axis] != Int::Const(1));
            long.is_sorted().then(|| Simpler::Node(Op::Reshape, vec![x]))
        }
        Op::MatMul { transpose_b } => {
            let b = node.inputs[1];
            if let Some(Node { op: Op::Permute { perm }, inputs, .. }) = maker(b)
                && swaps_last_two(perm)
            {
                let op = Op::MatMul { transpose_b: !transpose_b };
                return Some(Simpler::Node(op, vec![x, inputs[0]]));
            }
            let same_rank = graph.value(x).shape.len() == graph.value(output).shape.len();
            let is_matrix = graph.constant(b).is_some() && graph.value(b).shape.len() == 2;
            let is_linear = *transpose_b && same_rank && is_matrix;
            is_linear.then(|| Simpler::Node(Op::FullyConnected, node.inputs.clone()))
        }
        _ => None,
    }
}

/// True if `node` gives its operand `value` back, apart from its shape.
fn changes_nothing(graph: &Graph, node: &Node, value: ValueId) -> bool {
    let is_one = |index: usize| graph.scalar_f32(node.inputs[index]) == Some(1.0);
    match &node.op {
        Op::Reshape | Op::Expand | Op::Convert => true,
        Op::Permute { perm } => perm.is_sorted(),
        Op::Slice { start, step, .. } => (*start, *step) == (Int::Const(0), 1),
        Op::Concat { .. } => node.inputs.len() == 1,
        Op::Clamp { min, max } => (*min, *max) == (f32::NEG_INFINITY, f32::INFINITY),
        Op::Binary(BinaryOp::Multiply) => {
            (value == node.inputs[0] && is_one(1)) || (value == node.inputs[1] && is_one(0))
        }
        Op::Binary(BinaryOp::Divide) => value == node.inputs[0] && is_one(1),
        _ => false,
    }
}

/// Results of the graph stay values that nodes make, so that no caller is handed a weight or a cache.
fn may_stand_for(graph: &Graph, value: ValueId, output: ValueId) -> bool {
    let (from, to) = (graph.value(value), graph.value(output));
    let alike = from.dtype == to.dtype && from.shape == to.shape && from.quantization == to.quantization;
    let is_result = graph.outputs.contains(&output) || graph.state_updates.iter().any(|(_, result)| *result == output);
    alike && (from.kind == ValueKind::Computed || !is_result)
}

/// True if `perm` swaps the last two axes and nothing else.
pub(super) fn swaps_last_two(perm: &[usize]) -> bool {
    let rank = perm.len();
    rank >= 2 && perm[rank - 2..] == [rank - 1, rank - 2] && perm[..rank - 2].is_sorted()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::interpret::{Interpreter, Tensor};
    use crate::graph::testing::{assert_close, dims, f32_blob, random_graph, random_outputs};
    use crate::tensor::DType;

    fn one_input(shape: &[usize]) -> (Graph, ValueId) {
        let mut graph = Graph::new("g");
        let x = graph.add_input("x", DType::F32, dims(shape));
        (graph, x)
    }

    fn simplified(mut graph: Graph, output: ValueId) -> Vec<Op> {
        graph.outputs.push(output);
        let shape = graph.max_shape(graph.inputs[0]);
        let data: Vec<f32> = (0..shape.iter().product::<usize>()).map(|x| x as f32).collect();
        let run = |graph: &Graph| {
            let outputs = Interpreter::new(graph).unwrap().run(&[Tensor::f32(&shape, data.clone())]).unwrap();
            outputs.into_iter().map(|tensor| tensor.reals().unwrap().to_vec()).collect::<Vec<_>>()
        };
        let before = run(&graph);
        Simplify::FIRST.run(&mut graph).unwrap();
        assert_eq!(run(&graph), before);
        graph.nodes.into_iter().map(|node| node.op).collect()
    }

    #[test]
    fn what_changes_nothing_goes() {
        let (mut graph, x) = one_input(&[2, 3]);
        let one = graph.add_scalar_f32("one", 1.0);
        let shape = dims(&[2, 3]);
        let mut value = graph.emit("n", Op::Unary(crate::graph::UnaryOp::Negate), &[x], DType::F32, shape.clone());
        for (op, extra) in [
            (Op::Reshape, None),
            (Op::Expand, None),
            (Op::Convert, None),
            (Op::Permute { perm: vec![0, 1] }, None),
            (Op::Slice { axis: 0, start: 0.into(), step: 1 }, None),
            (Op::Concat { axis: 0 }, None),
            (Op::Clamp { min: f32::NEG_INFINITY, max: f32::INFINITY }, None),
            (Op::Binary(BinaryOp::Multiply), Some(one)),
            (Op::Binary(BinaryOp::Divide), Some(one)),
        ] {
            let inputs: Vec<ValueId> = [value].into_iter().chain(extra).collect();
            value = graph.emit("same", op, &inputs, DType::F32, shape.clone());
        }
        assert_eq!(simplified(graph, value), [Op::Unary(crate::graph::UnaryOp::Negate)]);
    }

    #[test]
    fn an_input_is_not_handed_out_as_an_output() {
        let (mut graph, x) = one_input(&[2]);
        let same = graph.emit("same", Op::Reshape, &[x], DType::F32, dims(&[2]));
        assert_eq!(simplified(graph, same), [Op::Reshape]);
    }

    #[test]
    fn chains_of_reshapes_and_permutes_join_or_cancel() {
        let (mut graph, x) = one_input(&[2, 3, 4]);
        let a = graph.emit("a", Op::Permute { perm: vec![2, 0, 1] }, &[x], DType::F32, dims(&[4, 2, 3]));
        let b = graph.emit("b", Op::Permute { perm: vec![1, 2, 0] }, &[a], DType::F32, dims(&[2, 3, 4]));
        let c = graph.emit("c", Op::Permute { perm: vec![1, 0, 2] }, &[b], DType::F32, dims(&[3, 2, 4]));
        let d = graph.emit("d", Op::Reshape, &[c], DType::F32, dims(&[6, 4]));
        let e = graph.emit("e", Op::Reshape, &[d], DType::F32, dims(&[24]));
        assert_eq!(simplified(graph, e), [Op::Permute { perm: vec![1, 0, 2] }, Op::Reshape]);
    }

    #[test]
    fn a_permute_of_axes_of_one_is_a_reshape() {
        let (mut graph, x) = one_input(&[1, 3, 1, 4]);
        let y = graph.emit("y", Op::Permute { perm: vec![2, 1, 0, 3] }, &[x], DType::F32, dims(&[1, 3, 1, 4]));
        let z = graph.emit("z", Op::Permute { perm: vec![1, 3, 2, 0] }, &[y], DType::F32, dims(&[3, 4, 1, 1]));
        assert_eq!(simplified(graph, z), [Op::Reshape]);
    }

    #[test]
    fn a_transposed_weight_makes_a_linear_layer() {
        let (mut graph, x) = one_input(&[2, 3]);
        let w = graph.add_constant("w", DType::F32, &[2, 3], None, f32_blob(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]));
        let t = graph.emit("t", Op::Permute { perm: vec![1, 0] }, &[w], DType::F32, dims(&[3, 2]));
        let y = graph.emit("y", Op::MatMul { transpose_b: false }, &[x, t], DType::F32, dims(&[2, 2]));
        assert_eq!(simplified(graph, y), [Op::FullyConnected]);
    }

    #[test]
    fn random_graphs_keep_their_results_and_shrink() {
        let mut changes = 0;
        for seed in 1..150 {
            let mut graph = random_graph(seed, 25);
            let before = random_outputs(&graph, seed);
            let nodes = graph.nodes.len();
            changes += Simplify::FIRST.run(&mut graph).unwrap();
            graph.verify().unwrap();
            assert!(graph.nodes.len() <= nodes);
            assert_close(&random_outputs(&graph, seed), &before, &format!("seed {seed}"));
            assert_eq!(Simplify::FIRST.run(&mut graph).unwrap(), 0, "seed {seed}");
        }
        assert!(changes > 300, "{changes}");
    }
}
