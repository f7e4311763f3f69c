//! Matrix products.

use super::Step;
use super::nest::{Nest, broadcast};
use crate::engine::memory::{Frame, StepResult, numbers_mut};
use crate::graph::ValueId;
use crate::kernels::{Clamp, MatrixProduct, PackedF32, PackedWeights, QuantizedProduct};
use std::sync::Arc;

/// Linear layers over the same input, which is quantized once: query, key and value; gate and up.
#[derive(Debug)]
pub(in crate::engine) struct QuantizedLinears {
    pub x: ValueId,
    pub members: Vec<(Arc<PackedWeights>, ValueId)>,
}

/// Most layers of one step.
pub(in crate::engine) const MAX_MEMBERS: usize = 4;

impl QuantizedLinears {
    fn run_each<const N: usize>(&self, frame: Frame<'_, '_>) -> StepResult {
        let shared = frame.shared;
        let (outs, reader) = frame.split::<N>(std::array::from_fn(|i| self.members[i].1))?;
        let x = reader.reals(self.x)?;
        if x.is_empty() {
            return Ok(());
        }
        let shape = self.members[0].0.shape();
        shared.kernels.quantize_rows(shared.pool, x, shape.k, shape.group, reader.rows);
        let mut outs = outs.into_iter();
        let mut products = [const { None }; N];
        for (product, (weights, _)) in products.iter_mut().zip(&self.members) {
            let out = numbers_mut(outs.next().unwrap_or_default())?;
            *product = Some(QuantizedProduct { activations: &*reader.rows, weights, clamp: Clamp::NONE, out });
        }
        let products = products.map(|product| product.expect("one for each member"));
        shared.kernels.quantized_gemm_batch(shared.pool, products);
        Ok(())
    }
}

impl Step for QuantizedLinears {
    fn run(&self, frame: Frame<'_, '_>) -> StepResult {
        match self.members.len() {
            1 => self.run_each::<1>(frame),
            2 => self.run_each::<2>(frame),
            3 => self.run_each::<3>(frame),
            _ => self.run_each::<MAX_MEMBERS>(frame),
        }
    }
}

/// out ← x · wᵀ + bias, with constant weights.
#[derive(Debug)]
pub(in crate::engine) struct RealLinear {
    pub x: ValueId,
    pub weights: Arc<PackedF32>,
    pub out: ValueId,
}

impl Step for RealLinear {
    fn run(&self, frame: Frame<'_, '_>) -> StepResult {
        let shared = frame.shared;
        let (out, reader) = frame.write::<f32>(self.out)?;
        let x = reader.reals(self.x)?;
        if !x.is_empty() {
            shared.kernels.gemm(shared.pool, x, &self.weights, Clamp::NONE, out);
        }
        Ok(())
    }
}

/// out ← a · b, both made in the run; leading axes broadcast.
#[derive(Debug)]
pub(in crate::engine) struct MatMul {
    pub a: ValueId,
    pub b: ValueId,
    pub out: ValueId,
    pub transpose_b: bool,
}

impl Step for MatMul {
    fn run(&self, frame: Frame<'_, '_>) -> StepResult {
        let shared = frame.shared;
        let (a_dims, b_dims, dims) = (shared.dims(self.a), shared.dims(self.b), shared.dims(self.out));
        let (a_batch, a_matrix) = a_dims.split_at(a_dims.len() - 2);
        let (b_batch, _) = b_dims.split_at(b_dims.len() - 2);
        let (batch, matrix) = dims.split_at(dims.len() - 2);
        let (m, n, k) = (matrix[0], matrix[1], a_matrix[1]);
        let (out, reader) = frame.write::<f32>(self.out)?;
        let (a, b) = (reader.reals(self.a)?, reader.reals(self.b)?);
        if out.is_empty() {
            return Ok(());
        }
        let product = MatrixProduct { batch: 1, m, n, k, transposed_b: self.transpose_b, a, b };
        let b_is_one = b_batch.iter().all(|&size| size == 1);
        if b_is_one && a.len() == out.len() / n * k {
            // Rows of all batches meet the same matrix.
            let product = MatrixProduct { m: out.len() / n, ..product };
            shared.kernels.matmul(shared.pool, product, out);
            return Ok(());
        }
        if a_batch == batch && b_batch == batch {
            let product = MatrixProduct { batch: batch.iter().product(), ..product };
            shared.kernels.matmul(shared.pool, product, out);
            return Ok(());
        }
        let nest = Nest::new(batch, [broadcast(a_batch, batch), broadcast(b_batch, batch)]);
        nest.pieces(0..batch.iter().product(), |products, [a_at, b_at]| {
            for (i, index) in products.enumerate() {
                let (a_at, b_at) = (a_at + i * nest.step[0], b_at + i * nest.step[1]);
                let (a, b) = (&a[a_at * m * k..][..m * k], &b[b_at * n * k..][..n * k]);
                let out = &mut out[index * m * n..][..m * n];
                shared.kernels.matmul(shared.pool, MatrixProduct { a, b, ..product }, out);
            }
        });
        Ok(())
    }
}
