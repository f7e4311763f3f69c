//! Hugging Face's safetensors: a JSON header and tensors that tile the rest of the file.

use super::error::CheckpointError;
use super::stored::{Encoding, Layout, Stored, Tensors};
use crate::base::storage::{Blob, Storage};
use crate::tensor::DType;
use ::safetensors::tensor::{Dtype, Metadata};
use std::path::Path;
use std::sync::Arc;

/// Longest header; a hundred thousand tensors take 10 MB.
const MAX_HEADER: u64 = 100 << 20;

/// Where the header is and where it ends; `None` when the file cannot be safetensors.
fn header(bytes: &[u8]) -> Option<(&[u8], usize)> {
    let (length, rest) = bytes.split_first_chunk::<8>()?;
    let length = u64::from_le_bytes(*length);
    let length = usize::try_from(length).ok().filter(|_| length <= MAX_HEADER)?;
    Some((rest.get(..length)?, 8 + length))
}

/// Whether the file begins with a length and a JSON object.
pub(super) fn sniff(bytes: &[u8]) -> bool {
    bytes.get(8) == Some(&b'{') && header(bytes).is_some()
}

/// The tensors of the file at `path`.
pub(super) fn read(storage: &Arc<Storage>, path: &Path) -> Result<Tensors, CheckpointError> {
    let damaged = |reason: String| CheckpointError::Safetensors { path: path.into(), reason };
    let (header, start) = header(storage).ok_or_else(|| damaged("the header is longer than the file".into()))?;
    // The crate's own reader adds up what the header says without a check, so only its judgement of the header is used.
    let metadata: Metadata = serde_json::from_slice(header).map_err(|error| damaged(error.to_string()))?;
    let (have, said) = (storage.len() - start, metadata.data_len());
    if have != said {
        return Err(damaged(format!("the header describes {said} bytes, the file has {have}")));
    }
    let mut tensors = Tensors::new();
    for (name, info) in metadata.tensors() {
        let (from, to) = info.data_offsets;
        let outside = || CheckpointError::OutOfRange {
            name: name.clone(),
            start: from as u64,
            end: to as u64,
            size: have as u64,
        };
        let range = start.checked_add(from).zip(start.checked_add(to)).ok_or_else(outside)?;
        let blob = Blob::new(storage, range.0..range.1).ok_or_else(outside)?;
        let encoding = match info.dtype {
            Dtype::F32 => Encoding::Plain(DType::F32),
            Dtype::F16 => Encoding::Plain(DType::F16),
            Dtype::BF16 => Encoding::Plain(DType::BF16),
            other => Encoding::Other(format!("{other:?}")),
        };
        let stored = Stored { encoding, shape: info.shape.clone(), layout: Layout::Dense(blob) };
        tensors.insert(name, stored);
    }
    Ok(tensors)
}
