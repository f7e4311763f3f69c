//! What fused operations stand for, each in its own formula rather than through the operations it replaces.

use super::elementwise::sigmoid;
use super::linear::dot;
use super::step::{OpResult, Step};
use super::tensor::Data;
use crate::graph::RotaryStyle;

pub(super) fn rms_norm(step: &Step<'_>, epsilon: f32) -> OpResult {
    let (x, gamma) = (step.reals(0)?, step.reals(1)?);
    let mut data = Vec::with_capacity(x.len());
    for row in x.chunks(gamma.len().max(1)) {
        let factor = 1.0 / (dot(row, row) / row.len() as f64 + f64::from(epsilon)).sqrt();
        data.extend(row.iter().zip(&gamma).map(|(&x, &gamma)| (f64::from(x) * factor * f64::from(gamma)) as f32));
    }
    Ok(Data::Real(data))
}

pub(super) fn rotary(step: &Step<'_>, style: RotaryStyle) -> OpResult {
    let (mut x, cos, sin) = (step.reals(0)?, step.reals(1)?, step.reals(2)?);
    let shape = step.out_shape(0); // [batch, tokens, heads, d]
    let (tokens, heads, d) = (shape[1], shape[2], shape[3]);
    for (row, head) in x.chunks_mut(d.max(1)).enumerate() {
        let token = row / heads % tokens;
        for i in 0..d / 2 {
            let (cos, sin) = (cos[token * (d / 2) + i], sin[token * (d / 2) + i]);
            let [first, second] = match style {
                RotaryStyle::Interleaved => [2 * i, 2 * i + 1],
                RotaryStyle::Half => [i, i + d / 2],
            };
            let (re, im) = (head[first], head[second]);
            (head[first], head[second]) = (re * cos - im * sin, re * sin + im * cos);
        }
    }
    Ok(Data::Real(x))
}

pub(super) fn swiglu(step: &Step<'_>) -> OpResult {
    let (gate, up) = (step.reals(0)?, step.reals(1)?);
    let one = |(&gate, &up): (&f32, &f32)| (f64::from(gate) * sigmoid(f64::from(gate)) * f64::from(up)) as f32;
    Ok(Data::Real(gate.iter().zip(&up).map(one).collect()))
}
