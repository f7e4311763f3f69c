//! llama2.c's `.bin`: a header of seven numbers and the weights in a fixed order, of all layers kind by kind.

use super::error::CheckpointError;
use super::naming::Naming;
use super::stored::{Encoding, Layout, Stored, Tensors};
use crate::base::storage::{Blob, Storage};
use crate::export::{LayerWeight::*, ModelConfig, Rope, RopeScaling, WeightRole, WeightRole::*};
use crate::graph::RotaryStyle;
use crate::tensor::DType;
use std::sync::Arc;

/// "ak42", which later versions begin with.
const MAGIC: [u8; 4] = 0x616b_3432u32.to_le_bytes();
/// Bytes before the weights in later versions.
const HEADER: usize = 256;

/// How the file goes on after its header.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Version {
    /// No magic; embedding first; tables of the rotary embedding before the output head.
    Legacy,
    /// Norms first, no tables.
    One,
}

/// Whether the file begins as a llama2.c model does: seven sizes of which the first five are small and positive.
pub(super) fn sniff(bytes: &[u8]) -> bool {
    let number = |index: usize| {
        let bytes = bytes.get(4 * index..4 * index + 4)?;
        Some(i32::from_le_bytes(bytes.try_into().ok()?))
    };
    let plausible = |index| number(index).is_some_and(|value| value > 0 && value < 1 << 20);
    bytes.starts_with(&MAGIC) || (0..5).all(plausible) && number(5).is_some_and(|vocab| vocab != 0)
}

/// The model and its tensors, under Meta's names.
pub(super) fn read(storage: &Arc<Storage>) -> Result<(ModelConfig, Tensors), CheckpointError> {
    let (version, at) = version(storage)?;
    let number = |index: usize| {
        let bytes = storage.get(at + 4 * index..at + 4 * index + 4);
        let too_short = CheckpointError::Llama2cSize { expected: (at + 28) as u64, size: storage.len() as u64 };
        bytes.and_then(|bytes| bytes.try_into().ok()).map(i32::from_le_bytes).ok_or(too_short)
    };
    let field = |index: usize, field: &str| {
        let value = number(index)?;
        usize::try_from(value).ok().filter(|&size| size > 0 && size <= 1 << 20).ok_or(CheckpointError::Field {
            file: "the llama2.c header".into(),
            field: field.into(),
            value: value.to_string(),
            expected: "1 to 1048576",
        })
    };
    let (dim, heads, vocab) = (field(0, "dim")?, field(3, "n_heads")?, number(5)?);
    let own_head = match version {
        Version::Legacy => vocab < 0,
        Version::One => storage.get(at + 28) == Some(&0),
    };
    let config = ModelConfig {
        architecture: "stories".into(),
        dim,
        layers: field(2, "n_layers")?,
        heads,
        kv_heads: field(4, "n_kv_heads")?,
        head_dim: dim / heads,
        hidden: field(1, "hidden_dim")?,
        vocab: vocab.unsigned_abs() as usize,
        norm_epsilon: 1e-5,
        rope: Rope { theta: 10_000.0, style: RotaryStyle::Interleaved, scaling: RopeScaling::None },
        max_positions: Some(field(6, "seq_len")?),
        bos_id: Some(1),
        eos_ids: vec![2],
    };
    super::describe::check(&config, "the llama2.c header")?;
    let tensors = place(storage, &config, version, own_head)?;
    Ok((config, tensors))
}

/// The version, and where the seven numbers begin.
fn version(bytes: &[u8]) -> Result<(Version, usize), CheckpointError> {
    if !bytes.starts_with(&MAGIC) {
        return Ok((Version::Legacy, 0));
    }
    match bytes.get(4..8) {
        Some([1, 0, 0, 0]) => Ok((Version::One, 8)),
        version => Err(CheckpointError::Unsupported {
            feature: "llama2.c version",
            value: format!("{version:02x?}"),
            supported: "the legacy version and version 1, both in F32",
        }),
    }
}

fn place(
    storage: &Arc<Storage>,
    config: &ModelConfig,
    version: Version,
    own_head: bool,
) -> Result<Tensors, CheckpointError> {
    let all = |weight| (0..config.layers).map(move |layer| Layer(layer, weight));
    let kinds = |kinds: &'static [crate::export::LayerWeight]| kinds.iter().flat_map(move |&weight| all(weight));
    let mut roles: Vec<WeightRole> = Vec::new();
    let start = match version {
        Version::Legacy => {
            roles.push(TokenEmbedding);
            roles.extend(kinds(&[AttentionNorm, Query, Key, Value, Output, FeedForwardNorm, Gate, Down, Up]));
            roles.push(FinalNorm);
            28
        }
        Version::One => {
            roles.extend(kinds(&[AttentionNorm, FeedForwardNorm]));
            roles.extend([FinalNorm, TokenEmbedding]);
            roles.extend(kinds(&[Query, Key, Value, Output, Gate, Down, Up]));
            HEADER
        }
    };
    let tables = match version {
        Version::Legacy => config.max_positions.unwrap_or(0) * (config.head_dim / 2) * 2,
        Version::One => 0,
    };
    let elements = |role| super::naming::shape(role, config).iter().product::<usize>();
    // Widths of at most 2^20, 1024 layers: no sum overflows.
    let sizes = roles.iter().map(|&role| elements(role)).chain([tables]);
    let head = if own_head { elements(OutputHead) } else { 0 };
    let expected = start + 4 * (sizes.sum::<usize>() + head);
    if expected != storage.len() {
        return Err(CheckpointError::Llama2cSize { expected: expected as u64, size: storage.len() as u64 });
    }
    let mut at = start;
    let mut tensors = Tensors::new();
    let mut put = |role, at: &mut usize| {
        let shape = super::naming::shape(role, config);
        let end = *at + 4 * elements(role);
        let name = Naming::Meta.name(role);
        let size = storage.len() as u64;
        let outside = CheckpointError::OutOfRange { name: name.clone(), start: *at as u64, end: end as u64, size };
        let layout = Layout::Dense(Blob::new(storage, *at..end).ok_or(outside)?);
        tensors.insert(name, Stored { encoding: Encoding::Plain(DType::F32), shape, layout });
        *at = end;
        Ok::<_, CheckpointError>(())
    };
    for role in roles {
        put(role, &mut at)?;
    }
    if own_head {
        at += 4 * tables;
        put(OutputHead, &mut at)?;
    }
    Ok(tensors)
}
