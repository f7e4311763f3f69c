//! Runs graphs fast: a verified, optimised [`Graph`](crate::graph::Graph) becomes a flat list of steps on the kernels, with
//! its weights packed, its memory planned, and operands resolved before the first step runs.
//!
//! * [`Compiled::new`] makes the steps; [`WeightCache`] holds packed weights, which graphs share.
//! * [`Instance`] holds what changes: states (key-value caches, unless they are the caller's) and one arena for
//!   intermediate values. The arena is laid
//!   out anew for each class of input sizes (one token, up to two, four …), and grows with the largest that was run.
//! * Results do not depend on the number of threads, nor on how a prompt is cut into runs.

mod buffers;
mod compiled;
mod constant;
mod error;
mod instance;
mod integers;
mod layout;
mod lower;
mod memory;
mod plan;
mod profile;
mod reals;
mod resolve;
mod resources;
mod steps;
mod symbols;
mod weights;

pub use compiled::{CompileOptions, Compiled};
pub use error::EngineError;
pub use instance::{Instance, OutputView, Scratch};
pub use profile::{StepProfile, StepRun};
pub use resources::Resources;
pub use symbols::InputView;
pub use weights::WeightCache;
