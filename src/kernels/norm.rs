//! Normalisations of rows: softmax and RMS-norm.

use super::math::exp;
use super::reduce::min_max;
use super::set::KernelSet;
use super::simd::{Op, Simd};

/// x ← e^(x − max) and their sum, in 16 partial sums; `x` is whole vectors, −∞ where there is no number.
#[inline(always)]
pub(crate) fn exp_minus_max<S: Simd>(s: S, x: &mut [[f32; 16]], max: f32) -> f32 {
    let max = s.splat(max);
    let mut sum = s.splat(0.0);
    for chunk in x {
        let e = exp(s, s.sub(s.load(chunk), max));
        sum = s.add(sum, e);
        s.store(e, chunk);
    }
    s.reduce_add(sum)
}

struct Softmax<'a>(&'a mut [f32], usize);

impl Op for Softmax<'_> {
    type Out = ();
    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        for row in self.0.chunks_exact_mut(self.1) {
            let (_, max) = min_max(s, row);
            if max == f32::NEG_INFINITY {
                row.fill(f32::NAN);
                continue;
            }
            let (chunks, rest) = row.as_chunks_mut();
            let mut sum = s.splat(0.0);
            let max = s.splat(max);
            for chunk in &mut *chunks {
                let e = exp(s, s.sub(s.load(chunk), max));
                sum = s.add(sum, e);
                s.store(e, chunk);
            }
            let last = exp(s, s.sub(s.load_part(rest, f32::NEG_INFINITY), max));
            let scale = s.splat(1.0 / s.reduce_add(s.add(sum, last)));
            for chunk in chunks {
                s.store(s.mul(s.load(chunk), scale), chunk);
            }
            s.store_part(s.mul(last, scale), rest);
        }
    }
}

/// Rows whose sums of squares are made beside each other.
const ROWS: usize = 4;

/// Σ x² of the first `N` rows (of the first row again where there are fewer), each added in order and rounded at each
/// step: what ExecuTorch's mean does, whose last bit decides codes of activations. A sum waits for each of its additions,
/// so that some take hardly longer than one.
#[inline(always)]
fn square_sums<const N: usize>(rows: &[f32], row: usize) -> [f32; N] {
    let mut parts = [&rows[..row]; N];
    for (part, x) in parts.iter_mut().zip(rows.chunks_exact(row)) {
        *part = x;
    }
    let mut sums = [0.0; N];
    for i in 0..row {
        for (sum, part) in sums.iter_mut().zip(parts) {
            *sum += part[i] * part[i];
        }
    }
    sums
}

struct RmsNorm<'a> {
    x: &'a [f32],
    weight: Option<&'a [f32]>,
    row: usize,
    epsilon: f32,
    out: &'a mut [f32],
}

impl RmsNorm<'_> {
    /// The rows from `first` on, as many as there are sums of squares.
    #[inline(always)]
    fn scale_rows<S: Simd>(&mut self, s: S, first: usize, square_sums: &[f32]) {
        let rows = self.x[first * self.row..].chunks_exact(self.row);
        let outs = self.out[first * self.row..].chunks_exact_mut(self.row);
        for ((x, out), sum) in rows.zip(outs).zip(square_sums) {
            let scale = s.splat(1.0 / (sum / self.row as f32 + self.epsilon).sqrt());
            for (i, (x, out)) in x.chunks(16).zip(out.chunks_mut(16)).enumerate() {
                let at = 16 * i..16 * i + x.len();
                match (x.try_into(), self.weight) {
                    (Ok(x), Some(weight)) => {
                        let weight = weight[at].try_into().expect("as long as x");
                        s.store(s.mul(s.mul(s.load(x), scale), s.load(weight)), out.try_into().expect("as long as x"));
                    }
                    (Ok(x), None) => s.store(s.mul(s.load(x), scale), out.try_into().expect("as long as x")),
                    (Err(_), weight) => {
                        let y = s.mul(s.load_part(x, 0.0), scale);
                        let weight = weight.map_or(s.splat(1.0), |weight| s.load_part(&weight[at], 1.0));
                        s.store_part(s.mul(y, weight), out);
                    }
                }
            }
        }
    }
}

impl Op for RmsNorm<'_> {
    type Out = ();
    #[inline(always)]
    fn eval<S: Simd>(mut self, s: S) {
        let rows = self.x.len() / self.row;
        let mut first = 0;
        while first < rows {
            let (x, count) = (&self.x[first * self.row..], ROWS.min(rows - first));
            if count == 1 {
                self.scale_rows(s, first, &square_sums::<1>(x, self.row));
            } else {
                self.scale_rows(s, first, &square_sums::<ROWS>(x, self.row)[..count]);
            }
            first += count;
        }
    }
}

impl KernelSet {
    /// Softmax of each row of `row` numbers, in place. A row of −∞ only becomes NaN, as in PyTorch.
    ///
    /// # Panics
    /// When `x` is not whole rows.
    pub fn softmax_rows(&self, x: &mut [f32], row: usize) {
        assert!(row > 0 && x.len().is_multiple_of(row), "not whole rows");
        self.run(Softmax(x, row));
    }

    /// out ← x / √(mean(x²) + epsilon) · weight, for each row of `row` numbers, rounded as ExecuTorch's operators do it one
    /// after another: squares are added in order.
    ///
    /// # Panics
    /// When `x` is not whole rows, `out` is not as long as `x`, or `weight` is not one row.
    pub fn rms_norm(&self, x: &[f32], row: usize, weight: Option<&[f32]>, epsilon: f32, out: &mut [f32]) {
        assert!(row > 0 && x.len().is_multiple_of(row) && out.len() == x.len(), "not whole rows");
        assert!(weight.is_none_or(|weight| weight.len() == row), "weight is not one row");
        self.run(RmsNorm { x, weight, row, epsilon, out });
    }
}
