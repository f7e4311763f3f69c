//! Reals as the engine holds them, and as files and callers do.
//!
//! Inside, every real is an f32: also of values that are halves or quantized codes, which then lie on the grid of their
//! type. Codes and halves appear at the borders only: inputs, outputs, constants.

use crate::graph::{Quantization, Value};
use crate::tensor::{DType, Encoding};
use half::{bf16, f16};

/// True for values whose elements stand for reals.
pub(super) fn is_real(value: &Value) -> bool {
    value.quantization.is_some() || is_real_type(value.dtype)
}

/// True for the types whose elements are reals by themselves.
pub(super) fn is_real_type(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::BF16 | DType::F32 | DType::F64)
}

/// Bytes of an element as the engine holds it.
pub(super) fn element_size(value: &Value) -> usize {
    if is_real(value) { 4 } else { value.dtype.size() }
}

/// Which numbers a real value can be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Grid {
    /// Any f32.
    F32,
    /// Any f64, of which the engine keeps an f32.
    F64,
    /// IEEE halves.
    F16,
    /// bfloat16.
    Bf16,
    /// What codes of `dtype` in `min..=max` stand for.
    Codes { encoding: Encoding, dtype: DType, min: i32, max: i32 },
    /// Eight-bit codes whose scale follows from each row of the last `nonbatch_dims` axes.
    Rows { nonbatch_dims: usize },
    /// Codes of a constant with many scales; values of this kind are moved, never computed.
    Stored,
}

impl Grid {
    pub fn of(value: &Value) -> Self {
        match &value.quantization {
            Some(Quantization::PerTensor { bits, encoding }) => {
                let (min, max) = code_range(value.dtype, *bits);
                Self::Codes { encoding: *encoding, dtype: value.dtype, min, max }
            }
            Some(Quantization::DynamicPerRow { nonbatch_dims }) => Self::Rows { nonbatch_dims: *nonbatch_dims },
            Some(_) => Self::Stored,
            None => match value.dtype {
                DType::F16 => Self::F16,
                DType::BF16 => Self::Bf16,
                DType::F64 => Self::F64,
                _ => Self::F32,
            },
        }
    }

    /// True when every f32 is on the grid.
    pub fn holds_all(&self) -> bool {
        matches!(self, Self::F32 | Self::F64 | Self::Stored)
    }

    /// True when the engine holds such values as callers do.
    pub fn is_plain(&self) -> bool {
        *self == Self::F32
    }

    /// Moves each number to the nearest of the grid; `row` is the length of a row of [`Grid::Rows`].
    pub fn round(&self, data: &mut [f32], row: usize) {
        match *self {
            Self::F32 | Self::F64 | Self::Stored => {}
            Self::F16 => data.iter_mut().for_each(|x| *x = f16::from_f32(*x).to_f32()),
            Self::Bf16 => data.iter_mut().for_each(|x| *x = bf16::from_f32(*x).to_f32()),
            Self::Codes { encoding, min, max, .. } => {
                data.iter_mut().for_each(|x| *x = encoding.dequantize(encoding.quantize(*x, min, max)));
            }
            Self::Rows { .. } => data.chunks_mut(row.max(1)).for_each(round_row),
        }
    }

    /// Writes numbers as callers hold them.
    pub fn encode(&self, data: &[f32], bytes: &mut [u8]) {
        match *self {
            Self::F16 => put(bytes, data, |x| f16::from_f32(x).to_le_bytes()),
            Self::Bf16 => put(bytes, data, |x| bf16::from_f32(x).to_le_bytes()),
            Self::F64 => put(bytes, data, |x| f64::from(x).to_le_bytes()),
            Self::Codes { encoding, dtype, min, max } => {
                let size = dtype.size();
                for (code, &x) in bytes.chunks_exact_mut(size).zip(data) {
                    let wide = i64::from(encoding.quantize(x, min, max)).to_le_bytes();
                    code.copy_from_slice(&wide[..size]);
                }
            }
            Self::F32 | Self::Rows { .. } | Self::Stored => put(bytes, data, f32::to_le_bytes),
        }
    }

    /// Reads numbers as callers hold them.
    pub fn decode(&self, bytes: &[u8], data: &mut [f32]) {
        match *self {
            Self::F16 => get(bytes, data, |b| f16::from_le_bytes(b).to_f32()),
            Self::Bf16 => get(bytes, data, |b| bf16::from_le_bytes(b).to_f32()),
            Self::F64 => get(bytes, data, |b| f64::from_le_bytes(b) as f32),
            Self::Codes { encoding, dtype, .. } => {
                let zero = i64::from(encoding.zero_point);
                for (index, x) in data.iter_mut().enumerate() {
                    let code = super::integers::get(dtype, bytes, index).unwrap_or(zero);
                    *x = (code - zero) as f32 * encoding.scale;
                }
            }
            Self::F32 | Self::Rows { .. } | Self::Stored => get(bytes, data, f32::from_le_bytes),
        }
    }
}

fn put<const N: usize>(bytes: &mut [u8], data: &[f32], encode: impl Fn(f32) -> [u8; N]) {
    bytes.as_chunks_mut().0.iter_mut().zip(data).for_each(|(bytes, &x)| *bytes = encode(x));
}

fn get<const N: usize>(bytes: &[u8], data: &mut [f32], decode: impl Fn([u8; N]) -> f32) {
    bytes.as_chunks().0.iter().zip(data).for_each(|(&bytes, x)| *x = decode(bytes));
}

/// Smallest and largest code of `bits` in `dtype`.
fn code_range(dtype: DType, bits: u8) -> (i32, i32) {
    let signed = matches!(dtype, DType::I8 | DType::QI8 | DType::I16 | DType::I32 | DType::QI32 | DType::I64);
    let bits = u32::from(bits.clamp(1, 32));
    if signed {
        (i32::MIN >> (32 - bits), i32::MAX >> (32 - bits))
    } else {
        (0, (u32::MAX >> (32 - bits)).min(i32::MAX as u32) as i32)
    }
}

/// Quantizes a row to 8 bits and back, as the kernels of dynamically quantized layers do.
fn round_row(row: &mut [f32]) {
    let (low, high) = row.iter().fold((0.0f32, 0.0f32), |(low, high), &x| (low.min(x), high.max(x)));
    let (quant, multiplier) = crate::kernels::RowQuant::of_range(low, high);
    let zero_point = f32::from(quant.zero_point);
    for x in row {
        let code = (*x * multiplier).max(-128.0 - zero_point).min(127.0 - zero_point).round_ties_even();
        *x = code * quant.scale;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn codes(dtype: DType, scale: f32, zero_point: i32) -> Grid {
        let (min, max) = code_range(dtype, 8 * dtype.size() as u8);
        Grid::Codes { encoding: Encoding { scale, zero_point }, dtype, min, max }
    }

    #[test]
    fn what_is_encoded_decodes_to_what_rounding_gives() {
        let data = [0.0f32, 1.0, -0.7, 3.149, 100.25, -1e4, 1e-3];
        for (grid, size) in [
            (Grid::F32, 4),
            (Grid::F64, 8),
            (Grid::F16, 2),
            (Grid::Bf16, 2),
            (codes(DType::U8, 0.5, 100), 1),
            (codes(DType::I8, 0.25, -3), 1),
            (codes(DType::U16, 0.01, 30_000), 2),
            (codes(DType::I32, 0.001, 0), 4),
        ] {
            let mut bytes = vec![0; data.len() * size];
            grid.encode(&data, &mut bytes);
            let (mut decoded, mut rounded) = ([9.0; 7], data);
            grid.decode(&bytes, &mut decoded);
            grid.round(&mut rounded, 1);
            assert_eq!(decoded, rounded, "{grid:?}");
            let off = data.iter().zip(&decoded).filter(|(a, b)| a != b).count();
            assert_eq!(off > 0, !grid.holds_all(), "{grid:?}");
        }
    }

    #[test]
    fn rows_have_scales_of_their_own() {
        let mut data = [1.0, -1.0, 0.5, 100.0, 3.0, -1.0];
        Grid::Rows { nonbatch_dims: 1 }.round(&mut data, 3);
        assert!((data[2] - 0.5).abs() <= 1.0 / 127.0 && data[2] != 0.5, "{data:?}");
        assert!((data[4] - 3.0).abs() <= 0.25 && data[4] != 3.0, "{data:?}");
        let mut zeros = [0.0; 4];
        Grid::Rows { nonbatch_dims: 1 }.round(&mut zeros, 4);
        assert_eq!(zeros, [0.0; 4]);
    }
}
