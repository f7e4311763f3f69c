//! Tensors as they lie in files, and the way from there to plain reals.

use super::error::CheckpointError;
use super::gguf::BlockType;
use crate::base::storage::Blob;
use crate::error::Result;
use crate::export::scratch::{Scratch, ScratchWriter};
use crate::tensor::DType;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::OnceLock;

/// Bytes that are converted at a time.
const CHUNK: usize = 1 << 18;

/// The tensors of a checkpoint by name; several of one name are the shards of a tensor-parallel checkpoint.
pub(super) type Tensors = BTreeMap<String, Stored>;

/// A tensor in a file.
#[derive(Debug, Clone)]
pub(super) struct Stored {
    pub encoding: Encoding,
    /// Outermost first.
    pub shape: Vec<usize>,
    pub layout: Layout,
}

/// Where elements go that cannot stay where they are: a scratch file that is made when it is first needed.
#[derive(Debug)]
pub(super) struct Room {
    folder: PathBuf,
    scratch: OnceLock<Scratch>,
}

impl Room {
    /// The scratch file will be in `folder`.
    pub fn new(folder: PathBuf) -> Self {
        Self { folder, scratch: OnceLock::new() }
    }

    fn scratch(&self) -> Result<&Scratch> {
        if let Some(scratch) = self.scratch.get() {
            return Ok(scratch);
        }
        let scratch = Scratch::new(&self.folder)?;
        Ok(self.scratch.get_or_init(|| scratch))
    }
}

/// What elements are, once they can be read.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Encoding {
    /// Little-endian.
    Plain(DType),
    /// Something that no weight of a supported model has; its name.
    Other(String),
}

/// Where elements lie.
#[derive(Debug, Clone)]
pub(super) enum Layout {
    /// Row-major, dense.
    Dense(Blob),
    /// GGUF's quantized blocks along the last axis, which stand for f32.
    Blocks(BlockType, Blob),
    /// Plain elements, one axis after the other this many elements apart.
    Strided(Blob, Vec<usize>),
    /// Parts side by side along an axis.
    Joined(usize, Vec<Stored>),
}

impl Stored {
    /// Bytes in the file.
    pub fn bytes(&self) -> u64 {
        match &self.layout {
            Layout::Dense(blob) | Layout::Blocks(_, blob) | Layout::Strided(blob, _) => blob.len() as u64,
            Layout::Joined(_, parts) => parts.iter().map(Self::bytes).sum(),
        }
    }

    /// Number of elements.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// Shards of one tensor as the tensor of shape `expected`: equal copies of it, or parts along the one axis that
    /// makes up for the difference.
    pub fn join(name: &str, parts: Vec<Self>, expected: &[usize]) -> Result<Self, CheckpointError> {
        let shape = parts.first().map(|part| part.shape.clone()).unwrap_or_default();
        let wrong = || CheckpointError::Shape { name: name.into(), shape: shape.clone(), expected: expected.into() };
        let encoding = parts.first().ok_or_else(wrong)?.encoding.clone();
        if parts.iter().any(|part| part.shape != shape || part.encoding != encoding) {
            return Err(wrong());
        }
        if shape == expected {
            return parts.into_iter().next().ok_or_else(wrong);
        }
        let count = parts.len();
        let fits = |axis: usize| {
            let mut whole = shape.clone();
            whole[axis] = whole[axis].saturating_mul(count);
            whole == expected
        };
        let axis = (0..shape.len()).find(|&axis| fits(axis)).ok_or_else(wrong)?;
        Ok(Self { encoding, shape: expected.into(), layout: Layout::Joined(axis, parts) })
    }

    /// The elements as plain little-endian reals: in place where they are that and aligned, else in `room`.
    pub fn reals(&self, name: &str, room: &Room) -> Result<(DType, Blob)> {
        let dtype = match &self.encoding {
            Encoding::Plain(dtype @ (DType::F32 | DType::F16 | DType::BF16)) => *dtype,
            Encoding::Plain(dtype) => return Err(CheckpointError::element(name, *dtype).into()),
            Encoding::Other(kind) => {
                return Err(CheckpointError::ElementType { name: name.into(), kind: kind.clone() }.into());
            }
        };
        let blob = match &self.layout {
            Layout::Dense(blob) if blob.as_ptr().addr().is_multiple_of(dtype.size()) => blob.clone(),
            Layout::Dense(blob) => copy(blob.chunks(CHUNK), blob.len(), room.scratch()?)?,
            Layout::Blocks(kind, blob) => dequantized(*kind, blob, room.scratch()?)?,
            Layout::Strided(blob, strides) => {
                let size = dtype.size();
                let element = |index| &blob[size * place(index, &self.shape, strides)..][..size];
                copy((0..self.elements()).map(element), self.elements() * size, room.scratch()?)?
            }
            Layout::Joined(axis, parts) => {
                let parts = parts.iter().map(|part| Ok(part.reals(name, room)?.1)).collect::<Result<Vec<_>>>()?;
                let runs: usize = self.shape[..*axis].iter().product();
                let run = |row: usize, blob: &Blob| row * (blob.len() / runs)..(row + 1) * (blob.len() / runs);
                let rows = (0..runs).flat_map(|row| parts.iter().map(move |blob| &blob[run(row, blob)]));
                copy(rows, parts.iter().map(|blob| blob.len()).sum(), room.scratch()?)?
            }
        };
        if !matches!(&self.layout, Layout::Dense(source) if source.same_place(&blob)) {
            self.release();
        }
        Ok((dtype, blob))
    }

    /// Lets go of the pages of the file.
    fn release(&self) {
        match &self.layout {
            Layout::Dense(blob) | Layout::Blocks(_, blob) | Layout::Strided(blob, _) => blob.release(),
            Layout::Joined(_, parts) => parts.iter().for_each(Self::release),
        }
    }
}

fn dequantized(kind: BlockType, blob: &Blob, scratch: &Scratch) -> Result<Blob> {
    let mut out = Vec::new();
    let mut writer = scratch.writer(blob.len() / kind.bytes() * kind.elements() * size_of::<f32>());
    for blocks in blob.chunks(CHUNK / kind.bytes() * kind.bytes()) {
        out.clear();
        for block in blocks.chunks_exact(kind.bytes()) {
            kind.dequantize(block, |value| out.extend_from_slice(&value.to_le_bytes()));
        }
        writer.write(&out)?;
    }
    writer.finish()
}

/// Where element `index`, counted row by row, lies among elements with `strides`.
fn place(index: usize, shape: &[usize], strides: &[usize]) -> usize {
    let axes = shape.iter().zip(strides).rev();
    let (place, _) = axes.fold((0, index), |(place, rest), (size, stride)| (place + rest % size * stride, rest / size));
    place
}

/// Writes pieces of `bytes` bytes in all.
fn copy<'a>(pieces: impl Iterator<Item = &'a [u8]>, bytes: usize, scratch: &Scratch) -> Result<Blob> {
    let mut writer = scratch.writer(bytes);
    let mut chunk = Vec::new();
    let flush = |chunk: &mut Vec<u8>, writer: &mut ScratchWriter<'_>| {
        writer.write(chunk)?;
        chunk.clear();
        Ok::<_, crate::Error>(())
    };
    for piece in pieces {
        chunk.extend_from_slice(piece);
        if chunk.len() >= CHUNK {
            flush(&mut chunk, &mut writer)?;
        }
    }
    flush(&mut chunk, &mut writer)?;
    writer.finish()
}
