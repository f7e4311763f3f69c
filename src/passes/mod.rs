//! Rewrites of a graph, in an order that follows from what each says it must come after.
//!
//! A pass declares its dependencies by name; the manager sorts the passes topologically (stable: passes that may go in
//! any order keep the order in which they were listed), so the order is a fact that can be printed and pinned by a
//! test. The verifier runs after each pass and its error names the pass that broke the graph.

mod manager;

pub use manager::{PassError, PassManager};

use crate::error::Result;
use crate::graph::Graph;

/// A rewrite.
pub trait Pass: Send + Sync {
    /// Its name on the command line and in messages: `fuse-rms-norm`.
    fn name(&self) -> &'static str;

    /// Names of the passes that must have run before it, if they run at all.
    fn after(&self) -> &'static [&'static str] {
        &[]
    }

    /// Names of the passes that it cannot do without.
    fn requires(&self) -> &'static [&'static str] {
        &[]
    }

    /// Rewrites the graph; returns how many places it changed.
    fn run(&self, graph: &mut Graph) -> Result<usize>;
}
