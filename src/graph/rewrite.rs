//! Changing a graph: what passes share.
//!
//! A pass replaces a node by others that make the same values, so the order of nodes and every other use stay right;
//! what the replaced node alone had used falls to dead-code elimination.

use super::{Graph, Int, Node, NodeId, Op, Value, ValueId};
use crate::tensor::DType;

/// The nodes of a graph as they were when a rewrite began.
#[derive(Debug)]
pub struct Before {
    nodes: Vec<Node>,
    producers: Vec<Option<NodeId>>,
    quantized: Vec<bool>,
}

impl Before {
    /// The nodes of `graph` now.
    pub fn of(graph: &Graph) -> Self {
        let quantized = graph.values.iter().map(|value| value.quantization.is_some()).collect();
        Self { nodes: graph.nodes.clone(), producers: graph.producers(), quantized }
    }

    /// Every node.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The number of the node that makes `value`.
    pub fn producer_id(&self, value: ValueId) -> Option<NodeId> {
        self.producers.get(value.0 as usize).copied().flatten()
    }

    /// The node that makes `value`; `None` for a quantized value, whose rounding no fusion may skip.
    pub fn producer(&self, value: ValueId) -> Option<&Node> {
        let id = self.producer_id(value).filter(|_| !self.quantized[value.0 as usize])?;
        Some(&self.nodes[id])
    }

    /// The operands of the node that makes `value`, if it does `op`; otherwise as [`Self::producer`].
    pub fn made_by(&self, value: ValueId, op: &Op) -> Option<&[ValueId]> {
        self.producer(value).filter(|node| node.op == *op).map(|node| &node.inputs[..])
    }
}

/// Nodes to put where another stands.
#[derive(Debug, Default)]
pub struct Replacement {
    nodes: Vec<Node>,
}

impl Replacement {
    /// Without nodes as yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a node with one new result; its origin is that of the node it helps to replace.
    pub fn emit(&mut self, graph: &mut Graph, old: &Node, op: Op, inputs: &[ValueId], shape: Vec<Int>) -> ValueId {
        let dtype = inputs.first().map_or(DType::F32, |&input| graph.value(input).dtype);
        let output = graph.add_computed(old.origin.clone(), dtype, shape);
        self.nodes.push(Node { origin: old.origin.clone(), op, inputs: inputs.to_vec(), outputs: vec![output] });
        output
    }

    /// Adds the node that makes what `old` made.
    pub fn finish(mut self, old: &Node, op: Op, inputs: &[ValueId]) -> Vec<Node> {
        let (origin, outputs) = (old.origin.clone(), old.outputs.clone());
        self.nodes.push(Node { origin, op, inputs: inputs.to_vec(), outputs });
        self.nodes
    }
}

impl Graph {
    /// Offers every node, in order, to `replace`, which may give nodes that make the same values in its place, and may
    /// add values. Returns how many were replaced.
    pub fn rewrite(&mut self, mut replace: impl FnMut(&mut Graph, &Before, NodeId) -> Option<Vec<Node>>) -> usize {
        let before = Before::of(self);
        let mut nodes = Vec::with_capacity(before.nodes.len());
        let mut count = 0;
        for (id, node) in before.nodes.iter().enumerate() {
            match replace(self, &before, id) {
                Some(replacement) => {
                    nodes.extend(replacement);
                    count += 1;
                }
                None => nodes.push(node.clone()),
            }
        }
        self.nodes = nodes;
        count
    }

    /// Removes nodes that nothing needs. Returns how many.
    pub fn remove_dead_nodes(&mut self) -> usize {
        let mut live = vec![false; self.values.len()];
        for result in self.outputs.iter().chain(self.state_updates.iter().map(|(_, value)| value)) {
            live[result.0 as usize] = true;
        }
        let count = self.nodes.len();
        let mut kept: Vec<Node> = Vec::with_capacity(count);
        for node in std::mem::take(&mut self.nodes).into_iter().rev() {
            if node.outputs.iter().any(|output| live[output.0 as usize]) {
                node.inputs.iter().for_each(|input| live[input.0 as usize] = true);
                kept.push(node);
            }
        }
        kept.reverse();
        self.nodes = kept;
        count - self.nodes.len()
    }

    /// Drops values that nothing uses; inputs stay, and so do states and symbols, whose bounds every run is held to.
    /// Values get new numbers: the result holds that of each old value.
    pub fn compact(&mut self) -> Vec<Option<ValueId>> {
        let mut used: Vec<bool> = self.use_counts().iter().map(|&count| count > 0).collect();
        let made = self.nodes.iter().flat_map(|node| &node.outputs);
        made.chain(&self.inputs).for_each(|value| used[value.0 as usize] = true);
        let mut renumbered = vec![None; used.len()];
        let mut values: Vec<Value> = Vec::new();
        for (index, value) in std::mem::take(&mut self.values).into_iter().enumerate() {
            if used[index] {
                renumbered[index] = Some(ValueId(values.len() as u32));
                values.push(value);
            }
        }
        self.values = values;
        let in_nodes = self.nodes.iter_mut().flat_map(|node| node.inputs.iter_mut().chain(&mut node.outputs));
        let results = self.outputs.iter_mut().chain(self.state_updates.iter_mut().map(|(_, value)| value));
        for value in in_nodes.chain(results).chain(&mut self.inputs) {
            *value = renumbered[value.0 as usize].unwrap_or(*value);
        }
        renumbered
    }
}
