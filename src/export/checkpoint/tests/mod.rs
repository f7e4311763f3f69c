//! What checkpoints must be, one test a defect, and real files of each format.

mod files;
mod folders;
mod gguf_blocks;
mod gguf_files;
mod gguf_tokenizers;
mod mutations;
mod real;
mod reference;
mod torch_files;

use super::*;
use crate::error::Error;
use std::path::PathBuf;

/// A file of `../shared/models`.
fn shared(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/models").join(name)
}

fn open_at(path: impl Into<PathBuf>) -> Result<Checkpoint> {
    Checkpoint::open(&Source { checkpoint: path.into(), ..Source::default() })
}

/// The typed error of a failure.
fn defect(error: &Error) -> &CheckpointError {
    error.find().unwrap_or_else(|| panic!("not a checkpoint's error: {error:?}"))
}

/// All of a weight's elements as f32.
fn reals(checkpoint: &Checkpoint, role: WeightRole) -> Vec<f32> {
    let weight = checkpoint.weight(role).unwrap().unwrap();
    let tensor = crate::graph::interpret::Tensor::from_bytes(weight.dtype, &weight.shape, &weight.data).unwrap();
    tensor.reals().unwrap().to_vec()
}
