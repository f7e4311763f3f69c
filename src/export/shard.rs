//! Cuts a graph between layers, so that each part is small enough for one context.
//!
//! Layers are seen from names: a node belongs to the layer that its result is named after, and never to an earlier part
//! than its operands. What comes before the first layer is in the first part, what follows the last in the last.

use crate::graph::{Graph, Node, NodeId, Value, ValueId, ValueKind};
use std::collections::{HashMap, HashSet};

/// Some nodes of a graph, and what they exchange with the rest of it and with the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// In the graph's order.
    pub nodes: Vec<NodeId>,
    /// What they need: inputs of the graph in its order, then what others make.
    pub inputs: Vec<ValueId>,
    /// What others need: outputs of the graph in its order, then the rest.
    pub outputs: Vec<ValueId>,
}

/// The nodes that `wanted` takes, in at most `count` pieces of equally many layers; pieces without nodes are left out.
/// A piece needs earlier pieces only.
pub fn cut(graph: &Graph, count: usize, wanted: impl Fn(&Node) -> bool) -> Vec<Piece> {
    let names = graph.nodes.iter().flat_map(|node| &node.outputs).map(|&id| layer_of(&graph.value(id).name));
    let layers = names.flatten().max().map_or(1, |last| last + 1);
    let layers_each = layers.div_ceil(count.max(1));
    let mut made_in: HashMap<ValueId, usize> = HashMap::new();
    let mut pieces: Vec<Vec<NodeId>> = vec![Vec::new(); layers.div_ceil(layers_each)];
    for (id, node) in graph.nodes.iter().enumerate().filter(|(_, node)| wanted(node)) {
        let own = node.outputs.iter().filter_map(|&id| layer_of(&graph.value(id).name)).max();
        let operands = node.inputs.iter().filter_map(|id| made_in.get(id)).max().copied();
        let piece = own.map_or(0, |layer| layer / layers_each).max(operands.unwrap_or(0));
        made_in.extend(node.outputs.iter().map(|&id| (id, piece)));
        pieces[piece].push(id);
    }
    pieces.into_iter().filter(|nodes| !nodes.is_empty()).map(|nodes| Piece::new(graph, nodes)).collect()
}

/// `layers.3.attention.query` → 3, `k_new.3.1` → 3
fn layer_of(name: &str) -> Option<usize> {
    let rest = ["layers.", "k_new.", "v_new."].into_iter().find_map(|prefix| name.strip_prefix(prefix))?;
    rest.split('.').next()?.parse().ok()
}

impl Piece {
    /// The piece of these nodes, in the graph's order.
    pub fn new(graph: &Graph, nodes: Vec<NodeId>) -> Self {
        let own: HashSet<NodeId> = nodes.iter().copied().collect();
        let made: Vec<ValueId> = nodes.iter().flat_map(|&id| graph.nodes[id].outputs.iter().copied()).collect();
        let is_made: HashSet<ValueId> = made.iter().copied().collect();
        let others = graph.nodes.iter().enumerate().filter(|(id, _)| !own.contains(id));
        let needed_elsewhere: HashSet<ValueId> = others.flat_map(|(_, node)| node.inputs.iter().copied()).collect();
        let operands = nodes.iter().flat_map(|&id| graph.nodes[id].inputs.iter().copied());
        let mut seen = HashSet::new();
        let from_outside = |&id: &ValueId| !is_made.contains(&id) && graph.constant(id).is_none();
        let mut inputs: Vec<ValueId> = operands.filter(from_outside).filter(|&id| seen.insert(id)).collect();
        inputs.sort_by_key(|&id| match graph.value(id).kind {
            ValueKind::Input(position) => position,
            _ => usize::MAX,
        });
        let given: HashSet<ValueId> = graph.outputs.iter().copied().collect();
        let crossing = made.iter().copied().filter(|id| needed_elsewhere.contains(id) && !given.contains(id));
        let outputs = graph.outputs.iter().copied().filter(|id| is_made.contains(id)).chain(crossing).collect();
        Self { nodes, inputs, outputs }
    }

    /// The piece as a graph of its own, with the name of the whole. Constants stay where they are.
    pub fn graph(&self, whole: &Graph) -> Graph {
        let mut piece = Graph::new(whole.name.clone());
        let mut numbers: HashMap<ValueId, ValueId> = HashMap::new();
        let mut number = |piece: &mut Graph, id: ValueId, kind: Option<ValueKind>| {
            *numbers.entry(id).or_insert_with(|| {
                let value = whole.value(id).clone();
                piece.values.push(Value { kind: kind.unwrap_or(value.kind.clone()), ..value });
                ValueId(piece.values.len() as u32 - 1)
            })
        };
        for (position, &id) in self.inputs.iter().enumerate() {
            let input = number(&mut piece, id, Some(ValueKind::Input(position)));
            piece.inputs.push(input);
        }
        for &id in &self.nodes {
            let node = &whole.nodes[id];
            let mut all = |ids: &[ValueId]| ids.iter().map(|&id| number(&mut piece, id, None)).collect();
            let (inputs, outputs) = (all(&node.inputs), all(&node.outputs));
            piece.nodes.push(Node { inputs, outputs, ..node.clone() });
        }
        piece.outputs = self.outputs.iter().map(|&id| number(&mut piece, id, None)).collect();
        piece
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::testing::{Extras, RandomWeights, fixed, tiny_config};
    use crate::export::{KvLayout, ModelConfig, model};
    use crate::graph::Op;
    use crate::graph::interpret::{Interpreter, Tensor};
    use crate::graph::testing::Rng;
    use crate::tensor::DType;

    fn five_layers(layout: KvLayout) -> Graph {
        let config = ModelConfig { layers: 5, ..tiny_config() };
        let weights = RandomWeights::new(&config, DType::F32, Extras::ALL);
        model::build(&config, &weights, &fixed(2, 8, layout)).unwrap()
    }

    fn run(graph: &Graph, inputs: &[Tensor]) -> Vec<Tensor> {
        Interpreter::new(graph).unwrap().run(inputs).unwrap()
    }

    fn inputs(graph: &Graph) -> Vec<Tensor> {
        let mut rng = Rng(3);
        let input = |&id: &ValueId| {
            let shape = graph.max_shape(id);
            let count = shape.iter().product();
            match graph.value(id).dtype {
                DType::F32 => Tensor::f32(&shape, rng.reals(count)),
                dtype => Tensor::integers(dtype, &shape, (0..count).map(|_| rng.below(8) as i64).collect::<Vec<_>>()),
            }
        };
        graph.inputs.iter().map(input).collect()
    }

    #[test]
    fn pieces_one_after_the_other_compute_what_the_whole_does() {
        for layout in [KvLayout::PerLayer, KvLayout::PerHead] {
            let whole = five_layers(layout);
            let given = inputs(&whole);
            for (count, pieces_made) in [(1, 1), (2, 2), (3, 3), (5, 5), (9, 5)] {
                let pieces = cut(&whole, count, |node| node.op != Op::Embedding || node.origin != "embedding");
                assert_eq!(pieces.len(), pieces_made);
                let mut known: HashMap<ValueId, Tensor> = whole.inputs.iter().copied().zip(given.clone()).collect();
                let rest = Piece::new(&whole, vec![first_embedding(&whole)]);
                for piece in std::iter::once(&rest).chain(&pieces) {
                    let graph = piece.graph(&whole);
                    graph.verify().unwrap();
                    let inputs: Vec<Tensor> = piece.inputs.iter().map(|id| known[id].clone()).collect();
                    known.extend(piece.outputs.iter().copied().zip(run(&graph, &inputs)));
                }
                let have: Vec<_> = whole.outputs.iter().map(|id| known[id].clone()).collect();
                assert_eq!(have, run(&whole, &given), "{layout:?} in {count}");
            }
        }
    }

    fn first_embedding(graph: &Graph) -> NodeId {
        graph.nodes.iter().position(|node| node.origin == "embedding").unwrap()
    }

    #[test]
    fn a_layer_is_in_one_piece_and_gives_its_keys_and_values_there() {
        let whole = five_layers(KvLayout::PerLayer);
        let pieces = cut(&whole, 2, |_| true);
        let names = |ids: &[ValueId]| ids.iter().map(|&id| whole.value(id).name.clone()).collect::<Vec<_>>();
        let new: Vec<String> =
            (0..3).map(|l| format!("k_new.{l}")).chain((0..3).map(|l| format!("v_new.{l}"))).collect();
        let outputs = names(&pieces[0].outputs);
        assert_eq!(outputs[..6], new);
        assert!(outputs[6..].contains(&"rope.cos".into()) && outputs[6..].contains(&"layers.2.residual".into()));
        assert_eq!(outputs.len(), 9);
        let inputs = names(&pieces[1].inputs);
        assert_eq!(inputs[..5], ["atten_mask", "k_cache.3", "k_cache.4", "v_cache.3", "v_cache.4"]);
        assert_eq!(names(&pieces[1].outputs), ["logits", "k_new.3", "k_new.4", "v_new.3", "v_new.4"]);
    }
}
