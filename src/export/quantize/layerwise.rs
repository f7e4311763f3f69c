//! Weights quantized one layer after the other, each against the operands that it will really meet: those that the
//! layers before it make with their codes.

use super::passes::{QuantizeEmbedding, QuantizeLinear};
use super::segment::{Segment, bytes};
use super::window::Windows;
use super::{Activations, CodeStore, EmbeddingFormat, Moments, Recipe, WeightFormat};
use crate::error::Result;
use crate::graph::{Graph, NodeId, Op, ValueId};
use crate::passes::Pass;
use std::sync::Arc;

/// Fills `store` with the codes of every linear layer that `recipe` quantizes. `graph` is the float graph of a static
/// whole-context method; `text` is cut into windows of its size. `progress` hears how many of how many layers are
/// done; its error ends the work. Memory: moments of one operand, weights of one layer, one activation a token.
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
    if let EmbeddingFormat::Blockwise { bits, block } = recipe.embedding {
        let format = WeightFormat::embedding(bits, block);
        QuantizeEmbedding { format, scales: recipe.scales, store: Arc::clone(store) }.run(&mut graph)?;
    }
    let groups = groups_of(&graph);
    let windows: Vec<Vec<u64>> = Windows::new(&graph)?.cut(text)?.into_iter().map(<[u64]>::to_vec).collect();
    let mut run = LayerWise { graph, windows, at: None, recipe, store };
    for (done, group) in groups.iter().enumerate() {
        progress(done, groups.len())?;
        run.quantize(group)?;
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

struct LayerWise<'a> {
    graph: Graph,
    windows: Vec<Vec<u64>>,
    /// The residual stream that everything before is summed up in, and its elements for each window.
    at: Option<(ValueId, Vec<Vec<u8>>)>,
    recipe: &'a Recipe,
    store: &'a Arc<CodeStore>,
}

impl LayerWise<'_> {
    fn quantize(&mut self, group: &Group) -> Result<()> {
        self.advance(group.operand)?;
        let mut moments: Option<Moments> = None;
        let columns = self.graph.max_shape(group.operand).last().copied().unwrap_or(1);
        self.run(self.segment(group.operand).moments(), &mut |_, products| {
            moments.get_or_insert_with(|| Moments::new(columns)).add(products);
        })?;
        for &layer in &group.layers {
            let pass = QuantizeLinear { recipe: self.recipe.clone(), store: Arc::clone(self.store) };
            pass.quantize(&mut self.graph, layer, moments.as_ref())?;
        }
        Ok(())
    }

    /// Moves on to the last residual before `operand`, if it is another than that of last time.
    fn advance(&mut self, operand: ValueId) -> Result<()> {
        let Some(next) = self.residual_before(operand) else { return Ok(()) };
        if self.at.as_ref().is_some_and(|(at, _)| *at == next) {
            return Ok(());
        }
        let mut elements = Vec::with_capacity(self.windows.len());
        self.run(self.segment(next), &mut |_, x| elements.push(bytes(x)))?;
        self.at = Some((next, elements));
        Ok(())
    }

    /// The last sum that a whole layer ends with (or the first embedding) before `operand` is made.
    fn residual_before(&self, operand: ValueId) -> Option<ValueId> {
        let ends = |id: &ValueId| {
            let name = &self.graph.value(*id).name;
            name == "embedding" || (name.starts_with("layers.") && name.ends_with(".residual"))
        };
        let until = self.graph.nodes.iter().position(|node| node.outputs.contains(&operand))?;
        self.graph.nodes[..until].iter().rev().flat_map(|node| &node.outputs).copied().find(ends)
    }

    /// What leads from where the work is to `output`; linear layers with codes round their operands as they will.
    fn segment(&self, output: ValueId) -> Segment {
        let mut graph = self.graph.clone();
        if self.recipe.activations == Activations::DynamicRows {
            super::passes::round_operands(&mut graph);
        }
        let from: Vec<ValueId> = self.at.iter().map(|(at, _)| *at).collect();
        Segment::new(&graph, &from, &[output])
    }

    fn run(&self, segment: Segment, take: &mut dyn FnMut(usize, &[f32])) -> Result<()> {
        let windows = Windows::new(&self.graph)?;
        let at = self.at.as_ref().map(|(at, elements)| (self.graph.value(*at).name.as_str(), elements));
        let give = |name: &str, run: usize| match at {
            Some((known, elements)) if known == name => elements.get(run).cloned(),
            _ => windows.input_bytes(name, self.windows.get(run)?),
        };
        segment.run(self.windows.len(), &give, take)
    }
}
