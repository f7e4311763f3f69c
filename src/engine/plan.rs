//! What lowering makes of a graph: steps, and values that are parts of others.

use super::constant::ConstantBytes;
use super::steps::Step;
use crate::graph::{Graph, Int, ValueId};
use std::collections::HashMap;

/// A graph as steps.
#[derive(Debug)]
pub(super) struct Plan {
    /// The graph, with the values that lowering added.
    pub graph: Graph,
    /// In order.
    pub steps: Vec<PlanStep>,
    /// The first step that does nothing but copy results to where they are wanted.
    pub tail: usize,
    /// Of each value.
    pub homes: Vec<Home>,
    /// Of each value: bytes of an element.
    pub sizes: Vec<usize>,
    pub constants: Vec<ConstantBytes>,
    /// Where values that no step makes come from, for errors.
    pub origins: HashMap<ValueId, String>,
    /// What each state becomes.
    pub updates: Vec<(usize, ValueId)>,
    /// What callers get for each graph output.
    pub outputs: Vec<ValueId>,
}

/// A step, and what it touches.
#[derive(Debug)]
pub(super) struct PlanStep {
    pub step: Box<dyn Step>,
    /// Operation or kernel, for profiles.
    pub name: String,
    /// The node's.
    pub origin: String,
    pub reads: Vec<ValueId>,
    pub writes: Vec<ValueId>,
    /// Operands whose memory the result may take over; they are as large.
    pub in_place: Vec<ValueId>,
}

/// Where a value lives.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Home {
    /// In no run.
    Nowhere,
    /// A buffer of the arena.
    Buffer(usize),
    /// In another value.
    View(View),
    /// Graph input.
    Input(usize),
    /// State.
    State(usize),
    /// Of [`Plan::constants`].
    Constant(usize),
}

/// A value that is all of another, or a range of its outermost axis of more than one element.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct View {
    pub of: ValueId,
    /// The axis, and where on it.
    pub start: Option<(usize, Int)>,
}

impl Plan {
    /// The value whose memory `value` lies in.
    pub fn root(&self, mut value: ValueId) -> ValueId {
        while let Home::View(view) = self.homes[value.0 as usize] {
            value = view.of;
        }
        value
    }

    pub fn home(&self, value: ValueId) -> Home {
        self.homes[value.0 as usize]
    }
}
