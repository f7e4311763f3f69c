//! Rewrites of a graph, in an order that follows from what each says it must come after.
//!
//! A pass declares its dependencies by name; the manager sorts the passes topologically (stable: passes that may go in
//! any order keep the order in which they were listed), so the order is a fact that can be printed and pinned by a
//! test. The verifier runs after each pass and its error names the pass that broke the graph.
//!
//! No pass changes a result by more than the order of float additions does.

mod causal;
mod common_subexpressions;
mod constant_fold;
mod dead_code;
mod decompose_attention;
mod decompose_rms_norm;
mod decompose_rotary;
mod decompose_swiglu;
mod fuse_attention;
mod fuse_dynamic_quant_linear;
mod fuse_rms_norm;
mod fuse_rotary;
mod fuse_swiglu;
mod manager;
mod matching;
mod parts;
mod simplify;
#[cfg(test)]
mod tests;

pub use constant_fold::ConstantFold;
pub use dead_code::DeadCode;
pub use decompose_attention::DecomposeAttention;
pub use decompose_rms_norm::DecomposeRmsNorm;
pub use decompose_rotary::DecomposeRotary;
pub use decompose_swiglu::DecomposeSwiGlu;
pub use fuse_attention::FuseAttention;
pub use fuse_dynamic_quant_linear::FuseDynamicQuantLinear;
pub use fuse_rms_norm::FuseRmsNorm;
pub use fuse_rotary::FuseRotary;
pub use fuse_swiglu::FuseSwiGlu;
pub use manager::{Observer, PassError, PassManager};
pub use simplify::Simplify;

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

/// What every graph goes through on its way to the engine.
pub fn standard() -> PassManager {
    let passes: Vec<Box<dyn Pass>> = vec![
        Box::new(ConstantFold),
        Box::new(Simplify::FIRST),
        Box::new(FuseRmsNorm),
        Box::new(FuseRotary),
        Box::new(FuseSwiGlu),
        Box::new(FuseAttention),
        Box::new(FuseDynamicQuantLinear),
        Box::new(Simplify::FUSED),
        Box::new(DeadCode),
    ];
    PassManager::new(passes).expect("the standard passes have no cycle, as a test pins")
}

/// What takes fused operations apart, for lowerings whose backend lacks them; each picks its own from these.
pub fn export_decompositions() -> Vec<Box<dyn Pass>> {
    vec![Box::new(DecomposeRmsNorm), Box::new(DecomposeRotary), Box::new(DecomposeSwiGlu), Box::new(DecomposeAttention)]
}
