//! Operations that look along axes.

use super::nest::{Nest, dense};
use super::{Step, in_parts};
use crate::engine::memory::{Frame, Shared, StepResult};
use crate::graph::ValueId;
use crate::tensor::MAX_RANK;

/// Nests over the results of a reduction of `x` to `out`, and over the elements that each result sums up.
fn nests(shared: &Shared<'_>, x: ValueId, out: ValueId) -> (Nest<1>, Nest<1>) {
    let (from, to) = (shared.dims(x), shared.dims(out));
    let strides = dense(from);
    let mut inner = [1; MAX_RANK];
    for axis in 0..from.len() {
        inner[axis] = if to[axis] == from[axis] { 1 } else { from[axis] };
    }
    (Nest::new(to, [strides]), Nest::new(&inner[..from.len()], [strides]))
}

/// out ← mean of x over the axes that have size 1 in out.
#[derive(Debug)]
pub(in crate::engine) struct Mean {
    pub x: ValueId,
    pub out: ValueId,
}

impl Step for Mean {
    fn run(&self, frame: Frame<'_, '_>) -> StepResult {
        let shared = frame.shared;
        let (results, sums) = nests(&shared, self.x, self.out);
        let total: usize = shared.dims(self.x).iter().product();
        let (out, reader) = frame.write::<f32>(self.out)?;
        let x = reader.reals(self.x)?;
        let count = total / out.len().max(1);
        in_parts(shared.pool, out, 1, count, |start, out| {
            results.pieces(start..start + out.len(), |elements, [at]| {
                for (i, out) in out[elements].iter_mut().enumerate() {
                    let at = at + i * results.step[0];
                    let mut sum = 0.0;
                    sums.pieces(0..count, |elements, [first]| {
                        let first = at + first;
                        sum += match sums.step[0] {
                            1 => sum_row(&x[first..first + elements.len()]),
                            step => (0..elements.len()).map(|i| f64::from(x[first + i * step])).sum(),
                        };
                    });
                    *out = (sum / count as f64) as f32;
                }
            });
        });
        Ok(())
    }
}

/// In eight partial sums, so that additions need not wait for each other.
fn sum_row(row: &[f32]) -> f64 {
    let (eights, rest) = row.as_chunks::<8>();
    let mut sums = [0.0; 8];
    for eight in eights {
        sums.iter_mut().zip(eight).for_each(|(sum, &x)| *sum += f64::from(x));
    }
    sums.iter().sum::<f64>() + rest.iter().map(|&x| f64::from(x)).sum::<f64>()
}

/// out ← whether any element of x is true, over the axes that have size 1 in out.
#[derive(Debug)]
pub(in crate::engine) struct Any {
    pub x: ValueId,
    pub out: ValueId,
    /// Bytes of an element of `x`.
    pub size: usize,
    /// Whether elements are reals, of which −0 is false.
    pub real: bool,
}

impl Step for Any {
    fn run(&self, frame: Frame<'_, '_>) -> StepResult {
        let shared = frame.shared;
        let (results, parts) = nests(&shared, self.x, self.out);
        let total: usize = shared.dims(self.x).iter().product();
        let ([out], reader) = frame.split([self.out])?;
        let x = reader.bytes(self.x)?;
        let count = total / out.len().max(1);
        let is_true = |index: usize| {
            let element = &x[index * self.size..][..self.size];
            let sign = if self.real { 0x7f } else { 0xff };
            element[..self.size - 1].iter().any(|&byte| byte != 0) || element[self.size - 1] & sign != 0
        };
        results.pieces(0..out.len(), |elements, [at]| {
            for (i, out) in out[elements].iter_mut().enumerate() {
                let at = at + i * results.step[0];
                let mut any = false;
                parts.pieces(0..count, |elements, [first]| {
                    any = any || (0..elements.len()).any(|i| is_true(at + first + i * parts.step[0]));
                });
                *out = u8::from(any);
            }
        });
        Ok(())
    }
}

/// out ← softmax of x along an axis. A line of nothing but −∞ becomes zeros.
#[derive(Debug)]
pub(in crate::engine) struct Softmax {
    pub x: ValueId,
    pub out: ValueId,
    pub axis: usize,
}

impl Step for Softmax {
    fn run(&self, frame: Frame<'_, '_>) -> StepResult {
        let shared = frame.shared;
        let dims = shared.dims(self.out);
        let (row, inner) = (dims[self.axis], dims[self.axis + 1..].iter().product::<usize>());
        let in_place = shared.same_place(self.x, self.out);
        let (out, reader) = frame.write::<f32>(self.out)?;
        if !in_place {
            out.copy_from_slice(reader.reals(self.x)?);
        }
        if out.is_empty() {
            return Ok(());
        }
        if inner == 1 {
            in_parts(shared.pool, out, row, 4, |_, out| shared.kernels.softmax_rows(out, row));
            return Ok(());
        }
        let mut line = vec![0.0; row];
        for block in out.chunks_exact_mut(row * inner) {
            for column in 0..inner {
                line.iter_mut().zip(block[column..].iter().step_by(inner)).for_each(|(x, &from)| *x = from);
                shared.kernels.softmax_rows(&mut line, row);
                block[column..].iter_mut().step_by(inner).zip(&line).for_each(|(to, &x)| *to = x);
            }
        }
        Ok(())
    }
}
