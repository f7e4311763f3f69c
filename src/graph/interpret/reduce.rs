//! Operations that look along axes.

use super::movement::{strides, walk};
use super::step::{OpResult, Step};
use super::tensor::Data;

/// Start of each line along `axis`, the number of its elements, and their distance.
fn lines(shape: &[usize], axis: usize) -> (Vec<usize>, usize, usize) {
    let strides = strides(shape);
    let mut without = shape.to_vec();
    without[axis] = 1;
    (walk(&without, &strides, 0), shape[axis], strides[axis])
}

pub(super) fn mean(step: &Step<'_>, axes: &[usize]) -> OpResult {
    let x = step.reals(0)?;
    let shape = step.operand_shape(0)?;
    let strides = strides(&shape);
    let inner: Vec<usize> = (0..shape.len()).map(|axis| if axes.contains(&axis) { shape[axis] } else { 1 }).collect();
    let outer: Vec<usize> = (0..shape.len()).map(|axis| if axes.contains(&axis) { 1 } else { shape[axis] }).collect();
    let offsets = walk(&inner, &strides, 0);
    let mean = |start: usize| {
        let sum: f64 = offsets.iter().map(|offset| f64::from(x[start + offset])).sum();
        (sum / offsets.len() as f64) as f32
    };
    Ok(Data::Real(walk(&outer, &strides, 0).into_iter().map(mean).collect()))
}

pub(super) fn any(step: &Step<'_>, axis: usize) -> OpResult {
    let x = step.operand(0)?.data.to_reals();
    let (starts, count, stride) = lines(&step.operand_shape(0)?, axis);
    let any = |start: usize| i64::from((0..count).any(|i| x[start + i * stride] != 0.0));
    Ok(Data::Integer(starts.into_iter().map(any).collect()))
}

/// Along a line of nothing but −∞ the result is NaN, as in PyTorch.
pub(super) fn softmax(step: &Step<'_>, axis: usize) -> OpResult {
    let mut x = step.reals(0)?;
    let (starts, count, stride) = lines(&step.operand_shape(0)?, axis);
    for start in starts {
        let line: Vec<f32> = (0..count).map(|i| x[start + i * stride]).collect();
        for (i, weight) in softmax_line(&line).into_iter().enumerate() {
            x[start + i * stride] = weight;
        }
    }
    Ok(Data::Real(x))
}

pub(super) fn softmax_line(line: &[f32]) -> Vec<f32> {
    let largest = line.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let weights: Vec<f64> = line.iter().map(|&x| (f64::from(x) - f64::from(largest)).exp()).collect();
    let sum: f64 = weights.iter().sum();
    weights.into_iter().map(|weight| (weight / sum) as f32).collect()
}
