//! Which values share memory: steps work in place where no later step could tell, and each other result gets a buffer
//! with the range of steps in which it is needed.

use super::plan::{Home, Plan, View};
use crate::graph::ValueId;

/// Memory of one value and of those that lie in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Buffer {
    /// As large as this value.
    pub value: ValueId,
    /// The step that writes it.
    pub first: usize,
    /// The last step that needs it; [`FOREVER`] for outputs.
    pub last: usize,
}

/// Later than every step.
pub(super) const FOREVER: usize = usize::MAX;

/// Gives every computed value a home.
pub(super) fn assign(plan: &mut Plan) -> Vec<Buffer> {
    let mut last = last_uses(plan);
    let mut buffers: Vec<Buffer> = Vec::new();
    for index in 0..plan.steps.len() {
        for write in 0..plan.steps[index].writes.len() {
            let value = plan.steps[index].writes[write];
            if plan.home(value) != Home::Nowhere {
                continue;
            }
            let needed = last[value.0 as usize].unwrap_or(index);
            let home = match taken_over(plan, &buffers, &last, index, value) {
                Some(operand) => {
                    let root = plan.root(operand);
                    last[root.0 as usize] = Some(needed);
                    if let Home::Buffer(buffer) = plan.home(root) {
                        buffers[buffer].last = needed;
                    }
                    Home::View(View { of: operand, start: None })
                }
                None => {
                    buffers.push(Buffer { value, first: index, last: needed });
                    Home::Buffer(buffers.len() - 1)
                }
            };
            plan.homes[value.0 as usize] = home;
        }
    }
    buffers
}

/// The last step that reads each value or anything that lies in it.
fn last_uses(plan: &Plan) -> Vec<Option<usize>> {
    let mut last = vec![None; plan.homes.len()];
    for (index, step) in plan.steps.iter().enumerate() {
        for &read in &step.reads {
            last[plan.root(read).0 as usize] = Some(index);
        }
    }
    for &output in &plan.outputs {
        last[plan.root(output).0 as usize] = Some(FOREVER);
    }
    // Two values may be one state.
    for state in 0..plan.graph.states.len() {
        let of_state = |home: &Home| *home == Home::State(state);
        let latest =
            plan.homes.iter().zip(&last).filter(|(home, _)| of_state(home)).filter_map(|(_, last)| *last).max();
        plan.homes.iter().zip(&mut last).filter(|(home, _)| of_state(home)).for_each(|(_, last)| *last = latest);
    }
    last
}

/// The operand of step `index` whose memory its result `value` takes over, if there is one: nothing that lies in that
/// memory is read later, nor by this step in another way.
fn taken_over(
    plan: &Plan,
    buffers: &[Buffer],
    last: &[Option<usize>],
    index: usize,
    value: ValueId,
) -> Option<ValueId> {
    let step = &plan.steps[index];
    let fits = |operand: &ValueId| {
        let root = plan.root(*operand);
        let writable = match plan.home(root) {
            Home::Buffer(buffer) => buffers[buffer].last == index,
            Home::State(state) => last[root.0 as usize] == Some(index) && may_change(plan, last, state, value),
            _ => false,
        };
        let same_memory =
            |other: &&ValueId| plan.root(**other) == root || plan.home(plan.root(**other)) == plan.home(root);
        writable && step.reads.iter().filter(same_memory).count() == 1
    };
    step.in_place.iter().find(|operand| fits(operand)).copied()
}

/// A state may change before the end of the run when it has new contents then anyway, and `value`, which takes its
/// place, is not itself wanted at the end, except as these new contents.
fn may_change(plan: &Plan, last: &[Option<usize>], state: usize, value: ValueId) -> bool {
    let becomes = plan.updates.iter().find(|update| update.0 == state).map(|update| plan.root(update.1));
    becomes.is_some_and(|next| next == value || last[value.0 as usize].is_none_or(|last| last < plan.tail))
}
