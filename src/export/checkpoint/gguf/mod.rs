//! GGUF: one file with the model's description, its tokenizer and its tensors.
//!
//! Source of the layout: the GGUF specification of the ggml project, versions 2 and 3.

mod blocks;
mod byte_level;
mod config;
mod metadata;
mod pieces;
mod sentencepiece;
mod tensors;
mod tokenizer;

pub(super) use blocks::BlockType;
pub(super) use config::describe;
pub use metadata::GgufDefect;
pub(super) use metadata::Metadata;
pub(super) use tokenizer::tokenizer_files;

use super::error::CheckpointError;
use super::stored::Tensors;
use crate::base::storage::Storage;
use std::path::Path;
use std::sync::Arc;

/// What every GGUF file begins with.
pub(super) const MAGIC: &[u8] = b"GGUF";

/// The metadata and tensors of the file at `path`.
pub(super) fn read(storage: &Arc<Storage>, path: &Path) -> Result<(Metadata, Tensors), CheckpointError> {
    let (metadata, directory) =
        Metadata::read(storage).map_err(|defect| CheckpointError::Gguf { path: path.into(), defect })?;
    let tensors = tensors::read(storage, &metadata, directory)
        .map_err(|defect| CheckpointError::Gguf { path: path.into(), defect })?;
    Ok((metadata, tensors))
}
