//! Weights quantized one layer after the other, each against the operands that it will really meet: those that the
//! layers before it make with their codes.

use super::passes::{QuantizeEmbedding, QuantizeLinear};
use super::segment::{Segment, bytes};
use super::window::Windows;
use super::{
    Activations, CodeStore, EmbeddingFormat, Feedback, Knowledge, Moments, QuantizeError, Recipe, WeightFormat,
};
use crate::error::Result;
use crate::graph::{Graph, NodeId, Op, ValueId};
use crate::passes::Pass;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Fills `store` with the codes of every linear layer that `recipe` quantizes. `graph` is the float graph of a static
/// whole-context method; `text` is cut into windows of its size. `progress` hears how many of how many layers are
/// done; its error ends the work. Memory: moments of one operand, weights of one layer, some activations a token.
///
/// # Errors
/// As [`Windows::new`] and [`Windows::cut`]; when a weight cannot be quantized; those of `progress`.
pub fn quantize_layerwise(
    mut graph: Graph,
    text: &[u64],
    recipe: &Recipe,
    store: &Arc<CodeStore>,
    progress: &mut dyn FnMut(usize, usize) -> Result<()>,
) -> Result<()> {
    graph.outputs.truncate(1);
    graph.remove_dead_nodes();
    if let EmbeddingFormat::Blockwise { bits, block } = recipe.embedding {
        let format = WeightFormat::embedding(bits, block);
        QuantizeEmbedding { format, scales: recipe.scales, store: Arc::clone(store) }.run(&mut graph)?;
    }
    let groups = groups_of(&graph);
    let windows: Vec<Vec<u64>> = Windows::new(&graph)?.cut(text)?.into_iter().map(<[u64]>::to_vec).collect();
    let rounds = recipe.activations == Activations::DynamicRows;
    let mut flow = Flow { graph, rounds, values: BTreeMap::new() };
    let pass = QuantizeLinear { recipe: recipe.clone(), store: Arc::clone(store) };
    for (done, group) in groups.iter().enumerate() {
        progress(done, groups.len())?;
        flow.advance(group, &windows)?;
        let name = flow.graph.value(group.operand).name.clone();
        let moments = flow.moments(group.operand);
        let feedback = Feedback::new(moments.ok_or_else(|| QuantizeError::NotPositive { what: name.clone() })?, &name)?;
        for &layer in &group.layers {
            pass.quantize(&mut flow.graph, layer, Knowledge::Feedback(&feedback))?;
        }
    }
    progress(groups.len(), groups.len())
}

/// Linear layers of one operand.
struct Group {
    operand: ValueId,
    layers: Vec<NodeId>,
}

fn groups_of(graph: &Graph) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for (id, node) in graph.nodes.iter().enumerate().filter(|(_, node)| node.op == Op::FullyConnected) {
        match groups.iter_mut().find(|group| group.operand == node.inputs[0]) {
            Some(group) => group.layers.push(id),
            None => groups.push(Group { operand: node.inputs[0], layers: vec![id] }),
        }
    }
    groups
}

/// A graph on its way through the text.
struct Flow {
    graph: Graph,
    /// Operands of linear layers with codes are rounded row by row.
    rounds: bool,
    /// What the nodes that have run have made for those that have not, for each window.
    values: BTreeMap<ValueId, Vec<Vec<f32>>>,
}

impl Flow {
    /// Of a value that is known; `None` for one without elements.
    fn moments(&self, operand: ValueId) -> Option<Moments> {
        let (columns, windows) = (self.graph.max_shape(operand).pop()?, self.values.get(&operand)?);
        let tokens: usize = windows.iter().map(|window| window.len() / columns.max(1)).sum();
        let mut turned = vec![0.0; columns * tokens]; // (columns, tokens)
        let all: Vec<&[f32]> = windows.iter().flat_map(|window| window.chunks_exact(columns)).collect();
        for (column, out) in turned.chunks_exact_mut(tokens.max(1)).enumerate() {
            out.iter_mut().zip(&all).for_each(|(out, x)| *out = x[column]);
        }
        Moments::of(&turned, columns).ok()
    }

    /// Runs everything before the first layer of `group`.
    fn advance(&mut self, group: &Group, windows: &[Vec<u64>]) -> Result<()> {
        let (before, after) = self.graph.nodes.split_at(group.layers[0]);
        let made: Vec<ValueId> = before.iter().flat_map(|node| &node.outputs).copied().collect();
        let used = after.iter().flat_map(|node| &node.inputs).copied().filter(|id| made.contains(id));
        let mut wanted: Vec<ValueId> = used.filter(|id| !self.values.contains_key(id)).collect();
        wanted.sort_unstable();
        wanted.dedup();
        let mut graph = self.graph.clone();
        if self.rounds {
            super::passes::round_operands(&mut graph);
        }
        let known: Vec<ValueId> = self.values.keys().copied().collect();
        let segment = Segment::new(&graph, &known, &wanted);
        let inputs = Windows::new(&self.graph)?;
        let by_name: BTreeMap<&str, &Vec<Vec<f32>>> =
            self.values.iter().map(|(&id, values)| (self.graph.value(id).name.as_str(), values)).collect();
        let give = |name: &str, run: usize| match by_name.get(name) {
            Some(values) => values.get(run).map(|reals| bytes(reals)),
            None => inputs.input_bytes(name, windows.get(run)?),
        };
        let mut made: Vec<Vec<Vec<f32>>> = vec![Vec::new(); wanted.len()];
        segment.run(windows.len(), &give, &mut |output, reals| made[output].push(reals))?;
        self.values.extend(wanted.into_iter().zip(made));
        let after = &self.graph.nodes[group.layers[0]..];
        self.values.retain(|id, _| after.iter().any(|node| node.inputs.contains(id)));
        Ok(())
    }
}
