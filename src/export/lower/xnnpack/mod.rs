//! Cuts a graph so that XNNPACK delegates do its linear layers, and operators the rest.
//!
//! Layers that share an operand share a delegate, which then takes in what follows them as long as it needs nothing from
//! elsewhere: of a feed-forward block, gate and up, SiLU, their product, and down.

mod linear;
mod model;

use super::error::LowerError;
use super::{Assets, Part, lower as lower_parts};
use crate::base::storage::Blob;
use crate::graph::{Graph, NodeId, Op, ValueId, ValueKind};
use crate::pte::{BackendDelegate, ExecutionPlan};
use crate::tensor::DType;
use linear::Linear;
use model::Delegate;
use std::collections::HashSet;

type Result<T, E = LowerError> = std::result::Result<T, E>;

/// The method of `graph` with its linear layers in XNNPACK delegates.
///
/// # Errors
/// A node that neither XNNPACK nor an operator does.
pub fn lower(graph: &Graph, assets: &mut Assets) -> Result<ExecutionPlan> {
    let parts = partition(graph, assets)?;
    lower_parts(graph, parts, assets)
}

/// The parts of `graph`; weights of delegates become named data of `assets`.
///
/// # Errors
/// Weights that XNNPACK has no form for.
pub fn partition(graph: &Graph, assets: &mut Assets) -> Result<Vec<Part>> {
    let groups = groups(graph);
    let mut of_node = vec![None; graph.nodes.len()];
    for (index, group) in groups.iter().enumerate() {
        group.nodes.iter().for_each(|&node| of_node[node] = Some(index));
    }
    let results = graph.outputs.iter().chain(graph.state_updates.iter().map(|(_, value)| value));
    let kept: HashSet<ValueId> = results.copied().collect();
    let used_outside = |value: ValueId, index: usize| {
        let users = graph.nodes.iter().zip(&of_node).filter(|(node, _)| node.inputs.contains(&value));
        kept.contains(&value) || users.into_iter().any(|(_, group)| *group != Some(index))
    };
    let mut parts = Vec::new();
    let mut done = vec![false; groups.len()];
    for (node, group) in of_node.iter().enumerate() {
        let Some(index) = *group else {
            parts.push(Part::Node(node));
            continue;
        };
        if std::mem::replace(&mut done[index], true) {
            continue;
        }
        let Group { source, nodes } = &groups[index];
        let made = nodes.iter().map(|&node| graph.nodes[node].outputs[0]);
        let outputs: Vec<ValueId> = made.filter(|&value| used_outside(value, index)).collect();
        let model = Delegate { graph, source: *source, nodes, outputs: &outputs }.model(assets)?;
        let bytes = model.to_bytes();
        let bytes = bytes.map_err(|source| LowerError::Xnnpack { node: graph.nodes[node].origin.clone(), source })?;
        let (id, processed) = ("XnnpackBackend".to_owned(), Blob::from_vec(bytes));
        let delegate = BackendDelegate { id, processed, compile_specs: Vec::new() };
        parts.push(Part::Delegate { delegate, inputs: vec![*source], outputs });
    }
    Ok(parts)
}

/// Nodes of one delegate, in the graph's order, and the one value that they need.
struct Group {
    source: ValueId,
    nodes: Vec<NodeId>,
}

fn groups(graph: &Graph) -> Vec<Group> {
    let producers = graph.producers();
    let linears: Vec<Option<Linear>> = (0..graph.nodes.len()).map(|node| Linear::of(graph, &producers, node)).collect();
    let mut taken = vec![false; graph.nodes.len()];
    let mut groups = Vec::new();
    for seed in 0..graph.nodes.len() {
        let Some(Linear { source, .. }) = linears[seed] else { continue };
        if taken[seed] {
            continue;
        }
        let mut made: HashSet<ValueId> = HashSet::new();
        let mut nodes = Vec::new();
        for (node, linear) in linears.iter().enumerate() {
            let joins = !taken[node]
                && match linear {
                    Some(linear) => linear.source == source || made.contains(&linear.source),
                    None => is_elementwise(graph, node) && needs_only(graph, node, &made),
                };
            if joins {
                let members = linear.iter().flat_map(|linear| linear.convert).chain([node]);
                for member in members.filter(|&member| !std::mem::replace(&mut taken[member], true)) {
                    made.extend(&graph.nodes[member].outputs);
                    nodes.push(member);
                }
            }
        }
        nodes.sort_unstable();
        groups.push(Group { source, nodes });
    }
    groups
}

/// Element-wise on f32, and known to XNNPACK.
fn is_elementwise(graph: &Graph, node: NodeId) -> bool {
    let node = &graph.nodes[node];
    let real = |id: &ValueId| graph.value(*id).dtype == DType::F32 && graph.value(*id).quantization.is_none();
    let known = match node.op {
        Op::Unary(op) => model::unary(op).is_some(),
        Op::Binary(op) => model::binary(op).is_some(),
        _ => false,
    };
    known && node.inputs.iter().chain(&node.outputs).all(real)
}

/// True where all operands of `node` are in `made` or constant, and not all constant.
fn needs_only(graph: &Graph, node: NodeId, made: &HashSet<ValueId>) -> bool {
    let is_constant = |id: &&ValueId| matches!(graph.value(**id).kind, ValueKind::Constant(_));
    let mut others = graph.nodes[node].inputs.iter().filter(|id| !is_constant(id)).peekable();
    others.peek().is_some() && others.all(|id| made.contains(id))
}
