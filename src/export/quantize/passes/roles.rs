//! What values of a static method are for, seen from their names and from the operations around them.

use crate::graph::{Graph, Node, NodeId, Op, ValueId, ValueKind};
use crate::tensor::DType;

/// The attention mask.
pub(super) const MASK: &str = "atten_mask";

/// Prefixes of the names of keys and values at the border.
pub(super) const CACHES: [&str; 4] = ["k_cache.", "v_cache.", "k_new.", "v_new."];

/// What the passes ask about a graph.
pub(super) struct Roles {
    producers: Vec<Option<NodeId>>,
    /// The linear layer that makes the logits.
    pub head: Option<NodeId>,
}

impl Roles {
    pub fn of(graph: &Graph) -> Self {
        let producers = graph.producers();
        let logits = graph.outputs.first().and_then(|logits| producers[logits.0 as usize]);
        let head = logits.filter(|&node| graph.nodes[node].op == Op::FullyConnected);
        Self { producers, head }
    }

    /// The values behind which keys and values begin, with the nodes that take them there: what the second operand of
    /// a product of two activations is moved from.
    pub fn cache_borders(&self, graph: &Graph) -> Vec<(ValueId, Vec<NodeId>)> {
        let mut borders = Vec::new();
        for (id, node) in graph.nodes.iter().enumerate() {
            if matches!(node.op, Op::MatMul { .. }) {
                self.walk(graph, [node.inputs[1]], id, &mut borders);
            }
        }
        borders
    }

    fn walk(
        &self,
        graph: &Graph,
        operands: impl IntoIterator<Item = ValueId>,
        user: NodeId,
        borders: &mut Vec<(ValueId, Vec<NodeId>)>,
    ) {
        for value in operands {
            let Some(producer) = self.producers[value.0 as usize] else { continue };
            let node = &graph.nodes[producer];
            if moves_cache(graph, node) {
                self.walk(graph, node.inputs.iter().copied(), producer, borders);
            } else {
                borders.push((value, vec![user]));
            }
        }
    }
}

/// True for movements, and for the joining of a cache with what is new; not for the joining of two halves.
fn moves_cache(graph: &Graph, node: &Node) -> bool {
    let from_caller = |id: &ValueId| matches!(graph.value(*id).kind, ValueKind::Input(_));
    match node.op {
        Op::Concat { .. } => node.inputs.iter().any(from_caller),
        _ => moves(&node.op),
    }
}

/// True where results hold elements of operands and nothing else.
pub(super) fn moves(op: &Op) -> bool {
    use Op::*;
    matches!(op, Reshape | Permute { .. } | Slice { .. } | Concat { .. } | Expand | SliceUpdate { .. })
}

/// True for the look-up of tokens in their table.
pub(super) fn is_token_embedding(graph: &Graph, node: &Node) -> bool {
    node.op == Op::Embedding && graph.inputs.first() == Some(&node.inputs[1])
}

/// True for values whose elements are reals that have no codes yet.
pub(super) fn is_real(graph: &Graph, id: ValueId) -> bool {
    let value = graph.value(id);
    value.quantization.is_none() && matches!(value.dtype, DType::F32 | DType::F16 | DType::BF16)
}
