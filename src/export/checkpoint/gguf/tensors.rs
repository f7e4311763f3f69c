//! The directory of a GGUF file's tensors, and their places.

use super::blocks::BlockType;
use super::metadata::{Cursor, Directory, GgufDefect, Metadata};
use crate::base::storage::{Blob, Storage};
use crate::export::checkpoint::stored::{Encoding, Layout, Stored, Tensors};
use crate::tensor::{DType, element_count};
use std::sync::Arc;

const DEFAULT_ALIGNMENT: u64 = 32;

/// A line of the directory.
struct Entry {
    name: String,
    shape: Vec<usize>,
    encoding: Encoding,
    blocks: Option<BlockType>,
    offset: u64,
    bytes: u64,
}

pub(super) fn read(storage: &Arc<Storage>, metadata: &Metadata, directory: Directory) -> Result<Tensors, GgufDefect> {
    let alignment = metadata.count("general.alignment").unwrap_or(DEFAULT_ALIGNMENT);
    if !alignment.is_power_of_two() || !(8..=1 << 20).contains(&alignment) {
        return Err(GgufDefect::Alignment { alignment });
    }
    let mut cursor = Cursor { bytes: storage, at: directory.at };
    let mut entries = (0..directory.count).map(|_| entry(&mut cursor)).collect::<Result<Vec<_>, _>>()?;
    let start = cursor.at.next_multiple_of(alignment as usize);
    let size = storage.len().saturating_sub(start) as u64;
    entries.sort_by_key(|entry| entry.offset);
    if let Some([first, second]) = entries.array_windows().find(|[a, b]| b.offset < a.offset.saturating_add(a.bytes)) {
        return Err(GgufDefect::Overlap { first: first.name.clone(), second: second.name.clone() });
    }
    let mut tensors = Tensors::new();
    for Entry { name, shape, encoding, blocks, offset, bytes } in entries {
        if !offset.is_multiple_of(alignment) {
            return Err(GgufDefect::Misaligned { name, offset, alignment });
        }
        let end = offset.checked_add(bytes).filter(|&end| end <= size);
        let range = end.map(|end| start + offset as usize..start + end as usize);
        let Some(blob) = range.and_then(|range| Blob::new(storage, range)) else {
            return Err(GgufDefect::OutOfRange { name, offset, bytes, size });
        };
        let layout = match blocks {
            Some(kind) => Layout::Blocks(kind, blob),
            None => Layout::Dense(blob),
        };
        let stored = Stored { encoding, shape, layout };
        if tensors.insert(name.clone(), stored).is_some() {
            return Err(GgufDefect::DuplicateTensor { name });
        }
    }
    Ok(tensors)
}

fn entry(cursor: &mut Cursor<'_>) -> Result<Entry, GgufDefect> {
    let name = cursor.name("a tensor's name")?;
    let rank = cursor.u32("a tensor's number of dimensions")?;
    if !(1..=4).contains(&rank) {
        return Err(GgufDefect::Dimensions { name, dims: vec![0; rank.min(8) as usize] });
    }
    let dims = (0..rank).map(|_| cursor.u64("a tensor's dimension")).collect::<Result<Vec<_>, _>>()?;
    let sizes: Option<Vec<usize>> = dims.iter().rev().map(|&dim| usize::try_from(dim).ok()).collect();
    let counted = sizes.and_then(|shape| Some((element_count(&shape).ok().filter(|&count| count > 0)?, shape)));
    let Some((count, shape)) = counted else { return Err(GgufDefect::Dimensions { name, dims }) };
    let kind = cursor.u32("a tensor's type")?;
    let offset = cursor.u64("a tensor's offset")?;
    let blocks = BlockType::of(kind);
    let (encoding, bytes) = match (plain(kind), blocks) {
        (Some(dtype), _) => (Encoding::Plain(dtype), count * dtype.size()),
        (_, Some(blocks)) => {
            let row = shape.last().copied().unwrap_or(1);
            if !row.is_multiple_of(blocks.elements()) {
                return Err(GgufDefect::PartBlock { name, row, block: blocks.elements() });
            }
            (Encoding::Plain(DType::F32), count / blocks.elements() * blocks.bytes())
        }
        // Of unknown size; whoever asks for it is told its type.
        _ => (Encoding::Other(type_name(kind)), 0),
    };
    Ok(Entry { name, shape, encoding, blocks, offset, bytes: bytes as u64 })
}

fn plain(kind: u32) -> Option<DType> {
    match kind {
        0 => Some(DType::F32),
        1 => Some(DType::F16),
        30 => Some(DType::BF16),
        _ => None,
    }
}

/// ggml's name of a type that cannot be read.
fn type_name(kind: u32) -> String {
    let name = match kind {
        9 => "Q8_1",
        10 => "Q2_K",
        11 => "Q3_K",
        15 => "Q8_K",
        16 => "IQ2_XXS",
        17 => "IQ2_XS",
        18 => "IQ3_XXS",
        19 => "IQ1_S",
        20 => "IQ4_NL",
        21 => "IQ3_S",
        22 => "IQ2_S",
        23 => "IQ4_XS",
        24 => "I8",
        25 => "I16",
        26 => "I32",
        27 => "I64",
        28 => "F64",
        29 => "IQ1_M",
        34 => "TQ1_0",
        35 => "TQ2_0",
        39 => "MXFP4",
        kind => return format!("number {kind}"),
    };
    name.into()
}
