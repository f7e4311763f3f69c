//! Matrix products.

use super::movement::{broadcast, strides, walk};
use super::quantized::Rows;
use super::step::{OpResult, Step};
use super::tensor::Data;

pub(super) fn dot(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum()
}

/// `x` is operand 0, perhaps rounded.
pub(super) fn fully_connected(step: &Step<'_>, x: &[f32]) -> OpResult {
    let weights = Rows::of_operand(step, 1)?;
    let shape = step.operand_shape(1)?; // [out, in]
    let (outputs, inputs) = (shape[0], shape[1]);
    let bias = if step.operands() == 3 { step.reals(2)? } else { vec![0.0; outputs] };
    let rows: usize = step.out_shape(0).iter().rev().skip(1).product();
    let mut data = vec![0.0; rows * outputs];
    for (output, &bias) in bias.iter().enumerate() {
        let weights = weights.row(output);
        for row in 0..rows {
            let sum = dot(&x[row * inputs..(row + 1) * inputs], &weights);
            data[row * outputs + output] = (sum + f64::from(bias)) as f32;
        }
    }
    Ok(Data::Real(data))
}

pub(super) fn matmul(step: &Step<'_>, transpose_b: bool) -> OpResult {
    let (a, b) = (step.reals(0)?, step.reals(1)?);
    let (a_shape, b_shape, out_shape) = (step.operand_shape(0)?, step.operand_shape(1)?, step.out_shape(0));
    let (a_batch, a_matrix) = a_shape.split_at(a_shape.len() - 2);
    let (b_batch, b_matrix) = b_shape.split_at(b_shape.len() - 2);
    let (batch, out_matrix) = out_shape.split_at(out_shape.len() - 2);
    let (m, n, k) = (out_matrix[0], out_matrix[1], a_matrix[1]);
    let b_strides = strides(b_matrix);
    let columns_first = if transpose_b { [b_strides[0], b_strides[1]] } else { [b_strides[1], b_strides[0]] };
    let columns = walk(&[n, k], &columns_first, 0);
    let mut data = Vec::with_capacity(out_shape.iter().product());
    for (i, j) in broadcast(a_batch, batch)?.into_iter().zip(broadcast(b_batch, batch)?) {
        let b = &b[j * n * k..(j + 1) * n * k];
        let b: Vec<f32> = columns.iter().map(|&index| b[index]).collect(); // [n, k]
        for row in 0..m {
            let start = (i * m + row) * k;
            data.extend((0..n).map(|column| dot(&a[start..start + k], &b[column * k..(column + 1) * k]) as f32));
        }
    }
    Ok(Data::Real(data))
}
