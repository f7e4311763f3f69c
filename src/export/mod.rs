//! From a checkpoint to a `.pte`: the way of `llr export`.
//!
//! checkpoint ([`ModelConfig`], [`WeightSource`]) → graph in float, one for each [`MethodSpec`] →
//! quantization → lowering (QNN context binaries, XNNPACK delegates, or operators) → [`Program`](crate::pte::Program).
//! Rooms meet in the graph only; encodings found by calibration go from one graph to another by the names of values.

pub mod checkpoint;
mod clock;
mod config;
mod continuation;
pub mod emit;
mod folder;
pub mod lower;
mod method;
pub mod model;
pub mod options;
mod pipeline;
pub mod progress;
pub mod quantize;
pub mod report;
pub mod resources;
mod schedule;
pub mod scratch;
pub mod shard;
#[cfg(test)]
pub(crate) mod testing;
mod tokens;
mod weights;

pub use config::{Llama3Scaling, ModelConfig, Rope, RopeScaling};
pub use method::{KvLayout, MethodSpec};
pub use pipeline::{passes, run};
pub use weights::{LayerWeight, Weight, WeightRole, WeightSource};
