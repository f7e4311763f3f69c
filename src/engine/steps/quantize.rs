//! Between the engine's reals and codes: at the borders of a graph, and where a graph quantizes by itself.

use super::{Step, in_parts};
use crate::engine::integers;
use crate::engine::memory::{Frame, StepResult, numbers_mut};
use crate::engine::reals::Grid;
use crate::graph::ValueId;
use crate::tensor::DType;

/// out ← reals of what the caller gave.
#[derive(Debug)]
pub(in crate::engine) struct Decode {
    pub grid: Grid,
    pub x: ValueId,
    pub out: ValueId,
}

impl Step for Decode {
    fn run(&self, frame: Frame<'_, '_>) -> StepResult {
        let (out, reader) = frame.write::<f32>(self.out)?;
        self.grid.decode(reader.bytes(self.x)?, out);
        Ok(())
    }
}

/// out ← x as the caller wants it.
#[derive(Debug)]
pub(in crate::engine) struct Encode {
    pub grid: Grid,
    pub x: ValueId,
    pub out: ValueId,
}

impl Step for Encode {
    fn run(&self, frame: Frame<'_, '_>) -> StepResult {
        let ([out], reader) = frame.split([self.out])?;
        self.grid.encode(reader.reals(self.x)?, out);
        Ok(())
    }
}

/// Codes, scales and zero points of the rows of x, as `choose_qparams_per_token_asymmetric` and `quantize_per_token`
/// find them.
#[derive(Debug)]
pub(in crate::engine) struct QuantizePerToken {
    pub x: ValueId,
    pub codes: ValueId,
    pub scales: ValueId,
    pub zero_points: ValueId,
    pub dtype: DType,
}

impl Step for QuantizePerToken {
    fn run(&self, frame: Frame<'_, '_>) -> StepResult {
        let row = frame.shared.dims(self.x).last().copied().unwrap_or(1);
        let ([codes, scales, zero_points], reader) = frame.split([self.codes, self.scales, self.zero_points])?;
        let scales: &mut [f32] = numbers_mut(scales)?;
        let x = reader.reals(self.x)?;
        for (index, scale) in scales.iter_mut().enumerate() {
            let x = &x[index * row..][..row];
            let zero_point;
            (*scale, zero_point) = parameters(x);
            let inverse = 1.0 / *scale;
            for (code, &x) in codes[index * row..][..row].iter_mut().zip(x) {
                let wide = (x * inverse).round_ties_even() as i64 + zero_point;
                *code = (wide.clamp(-128, 127) as i8).cast_unsigned();
            }
            let size = self.dtype.size();
            integers::store(self.dtype, &[zero_point], &mut zero_points[index * size..][..size]);
        }
        Ok(())
    }
}

/// The scale, found in f64 and never below 6.1e-5, and the zero point, which makes the smaller of the errors at the
/// ends of the row vanish.
fn parameters(row: &[f32]) -> (f32, i64) {
    const SMALLEST: f32 = 6.1e-5;
    let (mut min, mut max) = row.iter().fold((0.0f32, 0.0f32), |(min, max), &x| (min.min(x), max.max(x)));
    let mut scale = (f64::from(max) - f64::from(min)) / 255.0;
    if scale as f32 == 0.0 || (1.0 / scale as f32).is_infinite() {
        scale = 0.1;
    }
    if scale < f64::from(SMALLEST) {
        let amplifier = SMALLEST / scale as f32;
        scale = SMALLEST.into();
        if min == 0.0 {
            max = SMALLEST * 255.0;
        } else if max == 0.0 {
            min = -SMALLEST * 255.0;
        } else {
            (min, max) = (min * amplifier, max * amplifier);
        }
    }
    let (below, above) = (f64::from(min) / scale, f64::from(max) / scale);
    let zero_point = if 128.0 - below.abs() < 127.0 - above.abs() { -128.0 - below } else { 127.0 - above };
    (scale as f32, zero_point.clamp(-128.0, 127.0).round_ties_even() as i64)
}

/// out ← (codes − zero point) · scale, each row with its own.
#[derive(Debug)]
pub(in crate::engine) struct DequantizeRows {
    pub codes: ValueId,
    pub scales: ValueId,
    pub zero_points: ValueId,
    pub codes_dtype: DType,
    pub zero_points_dtype: DType,
    pub out: ValueId,
}

impl Step for DequantizeRows {
    fn run(&self, frame: Frame<'_, '_>) -> StepResult {
        let row = frame.shared.dims(self.codes).last().copied().unwrap_or(1);
        let (out, reader) = frame.write::<f32>(self.out)?;
        let (codes, zero_points) = (reader.bytes(self.codes)?, reader.bytes(self.zero_points)?);
        let scales = reader.reals(self.scales)?;
        if out.is_empty() {
            return Ok(());
        }
        let size = row * self.codes_dtype.size();
        in_parts(reader.shared.pool, out, row, 4, |start, out| {
            for (index, out) in out.chunks_exact_mut(row).enumerate() {
                let at = start / row + index;
                let zero_point = integers::get(self.zero_points_dtype, zero_points, at).unwrap_or_default();
                let codes = &codes[at * size..][..size];
                for (column, out) in out.iter_mut().enumerate() {
                    let code = integers::get(self.codes_dtype, codes, column).unwrap_or_default();
                    *out = (code - zero_point) as f32 * scales[at];
                }
            }
        });
        Ok(())
    }
}
