//! Constants of a file: read line by line where they are large and quantized, whole where a step reads them.

use super::reals::{Grid, is_real};
use crate::base::storage::Blob;
use crate::error::Result;
use crate::graph::{CodeOrder, Int, Quantization, Value};
use crate::tensor::DType;
use half::bf16;
use std::sync::Arc;

/// The lines of a real constant along its last axis.
#[derive(Debug, Clone)]
pub(super) struct Lines {
    value: Value,
    data: Blob,
    shape: Vec<usize>,
}

impl Lines {
    /// `None` for values that are no real constants.
    pub fn of(value: &Value, data: &Blob) -> Option<Self> {
        let known = |dim: &Int| match dim {
            Int::Const(size) => usize::try_from(*size).ok(),
            Int::Symbol(_) => None,
        };
        let shape = value.shape.iter().map(known).collect::<Option<Vec<_>>>()?;
        is_real(value).then(|| Self { value: value.clone(), data: data.clone(), shape })
    }

    /// Elements of a line.
    pub fn columns(&self) -> usize {
        self.shape.last().copied().unwrap_or(1)
    }

    /// Size of the first axis.
    pub fn rows(&self) -> usize {
        self.shape.first().copied().unwrap_or(1)
    }

    /// Number of lines.
    fn count(&self) -> usize {
        self.shape.iter().rev().skip(1).product()
    }

    /// Writes line `line`, counted over all leading axes.
    pub fn read(&self, line: usize, out: &mut [f32]) {
        let columns = self.columns();
        let Some(quantization) = &self.value.quantization else {
            let bytes = columns * self.value.dtype.size();
            return Grid::of(&self.value).decode(&self.data[line * bytes..][..bytes], out);
        };
        self.codes(line, quantization, out);
        let center = center(quantization.bits());
        match quantization {
            Quantization::PerTensor { encoding, .. } => scale(out, encoding.zero_point as f32, encoding.scale),
            Quantization::PerChannel { axis, scales, .. } => {
                let last = self.shape.len() - 1;
                if *axis == last {
                    out.iter_mut().enumerate().for_each(|(i, x)| *x = (*x - center) * f32_at(&scales.data, i));
                } else {
                    let lines: usize = self.shape[axis + 1..last].iter().product();
                    scale(out, center, f32_at(&scales.data, line / lines.max(1) % self.shape[*axis]));
                }
            }
            Quantization::Blockwise { block, scales, scale_dtype, zero_points, .. } => {
                let first = line * (columns / block);
                for (index, out) in out.chunks_exact_mut(*block).enumerate() {
                    let at = first + index;
                    let zero = zero_points.as_ref().map_or(center, |points| f32::from(points.data[at] as i8));
                    let factor =
                        if *scale_dtype == DType::BF16 { bf16_at(&scales.data, at) } else { f32_at(&scales.data, at) };
                    scale(out, zero, factor);
                }
            }
            // Refused by the verifier: no constant has it.
            Quantization::DynamicPerRow { .. } => {}
        }
    }

    /// The codes of a line as numbers.
    fn codes(&self, line: usize, quantization: &Quantization, out: &mut [f32]) {
        let (columns, bits) = (self.columns(), quantization.bits());
        let high_first = quantization.order() == CodeOrder::HighFirst;
        let bytes = |bits: usize| (columns * bits).div_ceil(8);
        match bits {
            4 => {
                let line = &self.data[line * bytes(4)..][..bytes(4)];
                for (pair, &byte) in out.chunks_mut(2).zip(line) {
                    let byte = if high_first { byte.rotate_left(4) } else { byte };
                    pair[0] = f32::from(byte & 15);
                    if let Some(second) = pair.get_mut(1) {
                        *second = f32::from(byte >> 4);
                    }
                }
            }
            2 => {
                let line = &self.data[line * bytes(2)..][..bytes(2)];
                let place = |i: usize| if high_first { 3 - i % 4 } else { i % 4 };
                out.iter_mut().enumerate().for_each(|(i, x)| *x = f32::from(line[i / 4] >> (2 * place(i)) & 3));
            }
            _ => {
                let size = self.value.dtype.size();
                let line = &self.data[line * columns * size..][..columns * size];
                match self.value.dtype {
                    DType::I8 | DType::QI8 => {
                        out.iter_mut().zip(line).for_each(|(x, &code)| *x = f32::from(code as i8))
                    }
                    DType::U8 | DType::QU8 => out.iter_mut().zip(line).for_each(|(x, &code)| *x = f32::from(code)),
                    dtype => out.iter_mut().enumerate().for_each(|(i, x)| {
                        *x = super::integers::get(dtype, line, i).unwrap_or_default() as f32;
                    }),
                }
            }
        }
    }

    /// All lines.
    pub fn decode(&self) -> Result<Vec<f32>> {
        let (columns, count) = (self.columns(), self.count());
        let mut all = Vec::new();
        let out_of_memory = |_| {
            let message = format!("cannot allocate {} bytes for {}", 4 * columns * count, self.value.name);
            crate::Error::new(crate::Status::MemoryAllocationFailed, message)
        };
        all.try_reserve_exact(columns * count).map_err(out_of_memory)?;
        all.resize(columns * count, 0.0);
        if columns > 0 {
            all.chunks_exact_mut(columns).enumerate().for_each(|(line, out)| self.read(line, out));
        }
        Ok(all)
    }
}

/// The code of zero in unsigned codes of fewer than 8 bits.
pub(super) fn center(bits: u8) -> f32 {
    if bits < 8 { (1u32 << (bits - 1)) as f32 } else { 0.0 }
}

fn scale(codes: &mut [f32], zero_point: f32, factor: f32) {
    codes.iter_mut().for_each(|x| *x = (*x - zero_point) * factor);
}

pub(super) fn f32_at(bytes: &[u8], index: usize) -> f32 {
    f32::from_le_bytes(bytes[4 * index..][..4].try_into().expect("four bytes"))
}

pub(super) fn bf16_at(bytes: &[u8], index: usize) -> f32 {
    bf16::from_le_bytes(bytes[2 * index..][..2].try_into().expect("two bytes")).to_f32()
}

/// The bytes of a constant as steps read them: aligned, reals as f32.
#[derive(Debug, Clone)]
pub(super) enum ConstantBytes {
    /// In the file.
    File(Blob),
    /// A decoded or aligned copy.
    Own(Arc<AlignedBytes>),
}

impl ConstantBytes {
    /// The file's bytes where steps can read them as they are.
    pub fn in_place(value: &Value, data: &Blob) -> Option<Self> {
        let plain = if is_real(value) { Grid::of(value).is_plain() } else { true };
        let aligned = data.as_ptr().addr().is_multiple_of(value.dtype.size());
        (plain && aligned && cfg!(target_endian = "little")).then(|| Self::File(data.clone()))
    }

    /// A copy that steps can read.
    pub fn copy(value: &Value, data: &Blob) -> Result<Self> {
        let copy = match Lines::of(value, data) {
            Some(lines) => AlignedBytes::of(bytemuck::cast_slice(&lines.decode()?))?,
            None => AlignedBytes::of(data)?,
        };
        Ok(Self::Own(Arc::new(copy)))
    }
}

/// Bytes at a multiple of 8.
#[derive(Debug)]
pub(super) struct AlignedBytes {
    words: Vec<u64>,
    len: usize,
}

impl AlignedBytes {
    pub fn of(bytes: &[u8]) -> Result<Self> {
        let mut words = Vec::new();
        let out_of_memory = |_| {
            let message = format!("cannot allocate {} bytes", bytes.len());
            crate::Error::new(crate::Status::MemoryAllocationFailed, message)
        };
        words.try_reserve_exact(bytes.len().div_ceil(8)).map_err(out_of_memory)?;
        words.resize(bytes.len().div_ceil(8), 0);
        bytemuck::cast_slice_mut(&mut words)[..bytes.len()].copy_from_slice(bytes);
        Ok(Self { words, len: bytes.len() })
    }
}

impl std::ops::Deref for AlignedBytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.words)[..self.len]
    }
}

impl std::ops::Deref for ConstantBytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Self::File(blob) => blob,
            Self::Own(bytes) => bytes,
        }
    }
}
