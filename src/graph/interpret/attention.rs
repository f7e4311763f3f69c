//! Attention over a key-value cache, in the plainest form: one query at a time.

use super::linear::dot;
use super::movement::{strides, write_positions};
use super::reduce::softmax_line;
use super::step::{OpResult, Step};
use super::tensor::Data;
use crate::graph::CacheLayout;

/// Axes of a cache, in the order batch, positions, heads, head_dim.
fn axes(layout: CacheLayout) -> [usize; 4] {
    match layout {
        CacheLayout::PositionMajor => [0, 1, 2, 3],
        CacheLayout::HeadMajor => [0, 2, 1, 3],
    }
}

pub(super) fn cache_update(step: &Step<'_>, layout: CacheLayout, start: i64) -> OpResult {
    write_positions(step, axes(layout), start)
}

pub(super) fn attention(step: &Step<'_>, layout: CacheLayout, start: i64, scale: f32) -> OpResult {
    let mask = if step.operands() == 4 { Some(step.reals(3)?) } else { None };
    attend(step, layout, [step.reals(0)?, step.reals(1)?, step.reals(2)?], mask, start, scale)
}

pub(super) fn quantized_attention(step: &Step<'_>, layout: CacheLayout, start: i64, scale: f32) -> OpResult {
    let k = dequantize(step, 1, 3)?;
    let v = dequantize(step, 2, 5)?;
    let q = if step.operands() == 9 { dequantize(step, 0, 7)? } else { step.reals(0)? };
    attend(step, layout, [q, k, v], None, start, scale)
}

/// Codes of operand `codes` with the scales at `scales` and the zero points after them, one a row.
fn dequantize(step: &Step<'_>, codes: usize, scales: usize) -> OpResult<Vec<f32>> {
    let length = step.operand_shape(codes)?[3];
    let (codes, scales, zero_points) = (step.integers(codes)?, step.reals(scales)?, step.integers(scales + 1)?);
    let real = |(index, &code): (usize, &i64)| {
        let row = index / length;
        (code - zero_points[row]) as f32 * scales[row]
    };
    Ok(codes.iter().enumerate().map(real).collect())
}

fn attend(
    step: &Step<'_>,
    layout: CacheLayout,
    [q, k, v]: [Vec<f32>; 3],
    mask: Option<Vec<f32>>,
    start: i64,
    scale: f32,
) -> OpResult {
    let shape = step.out_shape(0); // [batch, tokens, heads, d]
    let (tokens, heads, d) = (shape[1], shape[2], shape[3]);
    let cache = step.operand_shape(1)?;
    let strides = strides(&cache);
    let [batch_axis, position_axis, head_axis, _] = axes(layout);
    let (positions, group) = (cache[position_axis], heads / cache[head_axis]);
    let mut data = vec![0.0; q.len()];
    for (row, (query, out)) in q.chunks(d.max(1)).zip(data.chunks_mut(d.max(1))).enumerate() {
        let (batch, token, head) = (row / (tokens * heads), row / heads % tokens, row % heads);
        let base = batch * strides[batch_axis] + head / group * strides[head_axis];
        let at =
            |position: usize| base + position * strides[position_axis]..base + position * strides[position_axis] + d;
        let score = |position: usize| {
            let score = dot(query, &k[at(position)]) as f32 * scale;
            match &mask {
                Some(mask) => score + mask[token * positions + position],
                None if position as i64 <= start.saturating_add(token as i64) => score,
                None => f32::NEG_INFINITY,
            }
        };
        let scores: Vec<f32> = (0..positions).map(score).collect();
        if scores.iter().all(|&score| score == f32::NEG_INFINITY) {
            continue;
        }
        let mut sums = vec![0f64; d];
        for (position, weight) in softmax_line(&scores).into_iter().enumerate() {
            let values = &v[at(position)];
            sums.iter_mut().zip(values).for_each(|(sum, &value)| *sum += f64::from(weight) * f64::from(value));
        }
        out.iter_mut().zip(sums).for_each(|(out, sum)| *out = sum as f32);
    }
    Ok(Data::Real(data))
}
