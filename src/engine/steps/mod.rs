//! What nodes become: steps whose operands are resolved, one family a file.

pub(super) mod attention;
pub(super) mod elementwise;
pub(super) mod fused;
pub(super) mod linear;
pub(super) mod movement;
pub(super) mod nest;
pub(super) mod quantize;
pub(super) mod reduce;
pub(super) mod rows;

use super::memory::{Frame, StepResult};
use crate::kernels::ThreadPool;

/// One step of a plan.
pub(super) trait Step: Send + Sync + std::fmt::Debug {
    /// Does it.
    fn run(&self, frame: Frame<'_, '_>) -> StepResult;
}

/// Elements of simple work that are worth a thread's attention.
const GRAIN: usize = 16 * 1024;

/// Calls `task` with the number of the first element and the elements of each part of `out`, whole rows of `row`
/// elements each, on all threads when there is enough to do: `cost` counts simple operations for an element.
fn in_parts<T: Send>(pool: &ThreadPool, out: &mut [T], row: usize, cost: usize, task: impl Fn(usize, &mut [T]) + Sync) {
    let row = row.max(1);
    let part = (GRAIN / cost.max(1) / row).max(1) * row;
    if out.len() <= part {
        return task(0, out);
    }
    pool.parallel_chunks(out, part, |index, out| task(index * part, out));
}
