//! Codes and the reals they stand for: constants of files, and the rounding of computed values.

use super::InterpretError;
use super::step::{OpResult, Step};
use super::tensor::{Data, Tensor, from_bytes, is_real, round_real, wrap_integer};
use crate::graph::{CodeOrder, Quantization, Value};
use crate::tensor::DType;

/// The lines along the last axis of a value, as reals. A constant is decoded line by line.
pub(super) enum Rows<'a> {
    Constant { value: &'a Value, data: &'a [u8], columns: usize },
    Computed { data: Vec<f32>, columns: usize },
}

impl<'a> Rows<'a> {
    pub fn of_operand(step: &Step<'a>, index: usize) -> OpResult<Self> {
        let columns = step.operand_shape(index)?.last().copied().unwrap_or(1);
        match step.source(index) {
            (value, Some(data)) if value.quantization.is_some() || is_real(value.dtype) => {
                Ok(Self::Constant { value, data, columns })
            }
            _ => Ok(Self::Computed { data: step.reals(index)?, columns }),
        }
    }

    pub fn columns(&self) -> usize {
        match self {
            Self::Constant { columns, .. } | Self::Computed { columns, .. } => *columns,
        }
    }

    /// Line `row`, counted over all leading axes.
    pub fn row(&self, row: usize) -> Vec<f32> {
        match self {
            Self::Computed { data, columns } => data[row * columns..(row + 1) * columns].to_vec(),
            Self::Constant { value, data, columns } => match &value.quantization {
                Some(quantization) => dequantize_row(value, quantization, data, [row, *columns]),
                None => {
                    let bytes = columns * value.dtype.size();
                    from_bytes(value.dtype, &data[row * bytes..(row + 1) * bytes]).to_reals()
                }
            },
        }
    }
}

fn dequantize_row(value: &Value, quantization: &Quantization, data: &[u8], [row, columns]: [usize; 2]) -> Vec<f32> {
    let codes = codes_of_row(value.dtype, quantization, data, [row, columns]);
    let center = if quantization.bits() < 8 { 1 << (quantization.bits() - 1) } else { 0 };
    match quantization {
        Quantization::PerTensor { encoding, .. } => {
            codes.iter().map(|&code| (code - i64::from(encoding.zero_point)) as f32 * encoding.scale).collect()
        }
        Quantization::PerChannel { axis, scales, .. } => {
            let scales = from_bytes(DType::F32, &scales.data).to_reals();
            let shape: Vec<usize> = value.shape.iter().map(|&dim| known(dim)).collect();
            let last = shape.len().saturating_sub(1);
            let lines: usize = shape[(axis + 1).min(last)..last].iter().product();
            let channel = |column| if *axis == last { column } else { row / lines.max(1) % shape[*axis] };
            codes.iter().enumerate().map(|(column, &code)| (code - center) as f32 * scales[channel(column)]).collect()
        }
        Quantization::Blockwise { block, scales, scale_dtype, zero_points, .. } => {
            let blocks = columns / block;
            let (first, size) = (row * blocks, scale_dtype.size());
            let scales = from_bytes(*scale_dtype, &scales.data[first * size..(first + blocks) * size]).to_reals();
            let zero_points = zero_points.as_ref().map(|points| &points.data[first..first + blocks]);
            let real = |(column, &code): (usize, &i64)| {
                let index = column / block;
                let zero_point = zero_points.map_or(center, |points| i64::from(points[index] as i8));
                (code - zero_point) as f32 * scales[index]
            };
            codes.iter().enumerate().map(real).collect()
        }
        Quantization::DynamicPerRow { .. } => vec![0.0; columns],
    }
}

/// Codes below 8 bits are unsigned and share bytes; each line starts at a byte.
fn codes_of_row(dtype: DType, quantization: &Quantization, data: &[u8], [row, columns]: [usize; 2]) -> Vec<i64> {
    let bits = usize::from(quantization.bits());
    if bits >= 8 {
        let bytes = columns * dtype.size();
        return match from_bytes(dtype, &data[row * bytes..(row + 1) * bytes]) {
            Data::Integer(codes) => codes,
            Data::Real(codes) => codes.into_iter().map(|code| code as i64).collect(),
        };
    }
    let (bytes, per_byte) = ((columns * bits).div_ceil(8), 8 / bits);
    let line = &data[row * bytes..(row + 1) * bytes];
    let code = |column: usize| {
        let place = match quantization.order() {
            CodeOrder::LowFirst => column % per_byte,
            CodeOrder::HighFirst => per_byte - 1 - column % per_byte,
        };
        i64::from(line[column / per_byte] >> (place * bits) & ((1 << bits) - 1))
    };
    (0..columns).map(code).collect()
}

fn known(dim: crate::graph::Int) -> usize {
    match dim {
        crate::graph::Int::Const(size) => size.max(0) as usize,
        crate::graph::Int::Symbol(_) => 0,
    }
}

/// A constant, whole.
pub(super) fn decode(value: &Value, data: &[u8]) -> Result<Tensor, InterpretError> {
    let shape: Vec<usize> = value.shape.iter().map(|&dim| known(dim)).collect();
    let count: usize = shape.iter().product();
    if count > super::MAX_VALUE_ELEMENTS {
        return Err(InterpretError::TooLarge { value: value.name.clone(), shape });
    }
    let columns = shape.last().copied().unwrap_or(1);
    let data = match &value.quantization {
        None => from_bytes(value.dtype, data),
        Some(quantization) => {
            let lines = count.checked_div(columns).unwrap_or(0);
            Data::Real((0..lines).flat_map(|row| dequantize_row(value, quantization, data, [row, columns])).collect())
        }
    };
    Ok(Tensor { dtype: value.dtype, shape, data })
}

/// Reals of codes that a caller gave.
pub(super) fn reals_of_codes(quantization: &Quantization, codes: &[i64]) -> OpResult {
    match quantization {
        Quantization::PerTensor { encoding, .. } => {
            let real = |&code: &i64| code.wrapping_sub(encoding.zero_point.into()) as f32 * encoding.scale;
            Ok(Data::Real(codes.iter().map(real).collect()))
        }
        _ => Err("codes whose scales the caller cannot know".into()),
    }
}

/// Rounds `data` to what `value`'s type and quantization can hold.
pub(super) fn settle(value: &Value, shape: &[usize], data: Data) -> Data {
    match (data, &value.quantization) {
        (Data::Real(mut data), Some(quantization)) => {
            match quantization {
                Quantization::PerTensor { bits, encoding } => {
                    let (min, max) = code_range(value.dtype, *bits);
                    for real in &mut data {
                        *real = encoding.dequantize(encoding.quantize(*real, min, max));
                    }
                }
                Quantization::DynamicPerRow { nonbatch_dims } => {
                    let length = shape.iter().rev().take(*nonbatch_dims).product();
                    round_rows(&mut data, length);
                }
                // Only moved, never computed: the reals are on their grid already.
                Quantization::PerChannel { .. } | Quantization::Blockwise { .. } => {}
            }
            Data::Real(data)
        }
        (Data::Real(mut data), None) => {
            data.iter_mut().for_each(|real| *real = round_real(value.dtype, *real));
            Data::Real(data)
        }
        (Data::Integer(mut data), _) => {
            data.iter_mut().for_each(|integer| *integer = wrap_integer(value.dtype, *integer));
            Data::Integer(data)
        }
    }
}

/// Smallest and largest code of `bits` in `dtype`.
pub(super) fn code_range(dtype: DType, bits: u8) -> (i32, i32) {
    let signed = matches!(dtype, DType::I8 | DType::QI8 | DType::I16 | DType::I32 | DType::QI32 | DType::I64);
    let bits = u32::from(bits.clamp(1, 32));
    if signed {
        (i32::MIN >> (32 - bits), i32::MAX >> (32 - bits))
    } else {
        (0, (u32::MAX >> (32 - bits)).min(i32::MAX as u32) as i32)
    }
}

/// Quantizes each line of `length` reals to 8 bits and back, as XNNPACK's `qdint8` does.
#[allow(clippy::manual_clamp, reason = "a zero point that is NaN becomes the lower bound")]
pub(super) fn round_rows(data: &mut [f32], length: usize) {
    const MIN: f32 = -128.0;
    const MAX: f32 = 127.0;
    for row in data.chunks_mut(length.max(1)) {
        let low = row.iter().copied().fold(0.0f32, f32::min);
        let high = row.iter().copied().fold(0.0f32, f32::max);
        let multiplier = if low == high { 1.0 } else { (MAX - MIN) / (high - low) };
        let (low, high) = (low * multiplier, high * multiplier);
        let from_low = (MIN + low) + (MAX + high) > 0.0;
        let zero_point = if from_low { MIN - low } else { MAX - high }.max(MIN).min(MAX).round_ties_even();
        let scale = 1.0 / multiplier;
        for real in row {
            let code = (*real * multiplier).min(MAX - zero_point).max(MIN - zero_point).round_ties_even();
            *real = code * scale;
        }
    }
}

/// Codes, scales, zero points of each line, as `choose_qparams_per_token_asymmetric` and `quantize_per_token` find
/// them: scale in f64, never below 6.1e-5.
pub(super) fn quantize_per_token(step: &Step<'_>) -> OpResult<Vec<Data>> {
    let x = step.reals(0)?;
    let length = step.out_shape(0).last().copied().unwrap_or(1).max(1);
    let (mut codes, mut scales, mut zero_points) = (Vec::new(), Vec::new(), Vec::new());
    for row in x.chunks(length) {
        let (scale, zero_point) = per_token_parameters(row);
        let inverse = 1.0 / scale;
        let code = |&real: &f32| (real * inverse).round_ties_even() as i64 + zero_point;
        codes.extend(row.iter().map(|real| code(real).clamp(-128, 127)));
        scales.push(scale);
        zero_points.push(zero_point);
    }
    Ok(vec![Data::Integer(codes), Data::Real(scales), Data::Integer(zero_points)])
}

fn per_token_parameters(row: &[f32]) -> (f32, i64) {
    const SMALLEST: f32 = 6.1e-5;
    let mut min = row.iter().copied().fold(0.0f32, f32::min);
    let mut max = row.iter().copied().fold(0.0f32, f32::max);
    let mut scale = (f64::from(max) - f64::from(min)) / 255.0;
    if scale as f32 == 0.0 || (1.0 / scale as f32).is_infinite() {
        scale = 0.1;
    }
    if scale < f64::from(SMALLEST) {
        let amplifier = SMALLEST / scale as f32;
        scale = f64::from(SMALLEST);
        match (min == 0.0, max == 0.0) {
            (true, _) => max = SMALLEST * 255.0,
            (_, true) => min = -SMALLEST * 255.0,
            _ => (min, max) = (min * amplifier, max * amplifier),
        }
    }
    let (below, above) = (f64::from(min) / scale, f64::from(max) / scale);
    let zero_point = if 128.0 - below.abs() < 127.0 - above.abs() { -128.0 - below } else { 127.0 - above };
    (scale as f32, zero_point.clamp(-128.0, 127.0).round_ties_even() as i64)
}
