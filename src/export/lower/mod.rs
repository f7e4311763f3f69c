//! From a graph to a method of a program: cut into parts, each for the CPU's operators or for a delegate, and the parts
//! into a plan.
//!
//! Whoever cuts a graph makes a list of [`Part`]s, in an order in which each finds its operands made; [`lower`] does the
//! rest. The graph is one of plain operations: fused ones are decomposed before.

mod assets;
mod error;
mod memory;
mod plan;
pub mod portable;
pub mod qnn;
mod symbols;
#[cfg(test)]
mod tests;
pub mod xnnpack;

pub use assets::Assets;
pub use error::LowerError;
pub use plan::PlanBuilder;

use crate::graph::{Graph, NodeId, ValueId};
use crate::pte::{BackendDelegate, ExecutionPlan};

/// A part of a graph.
#[derive(Debug, Clone)]
pub enum Part {
    /// One node, as calls of operators.
    Node(NodeId),
    /// What a backend does.
    Delegate {
        /// Its blob and options. Data that it asks for by name is in the [`Assets`] already.
        delegate: BackendDelegate,
        /// Its first arguments.
        inputs: Vec<ValueId>,
        /// Its last arguments: values that it makes.
        outputs: Vec<ValueId>,
    },
}

/// The method of `graph` from its parts. Its constants go to `assets`.
///
/// # Errors
/// A node that no operator does, parts in an order that cannot run, values that no tensor can be.
pub fn lower(graph: &Graph, parts: Vec<Part>, assets: &mut Assets) -> Result<ExecutionPlan, LowerError> {
    let mut plan = PlanBuilder::new(graph, assets)?;
    for part in parts {
        match part {
            Part::Node(node) => portable::node(&mut plan, node)?,
            Part::Delegate { delegate, inputs, outputs } => plan.delegate(delegate, &inputs, &outputs)?,
        }
    }
    plan.finish()
}
