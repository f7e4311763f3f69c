//! Products of two matrices that both come from activations, as attention made of plain operators needs them.

use super::gemm::PackedF32;
use super::pool::ThreadPool;
use super::qgemm::Clamp;
use super::set::KernelSet;
use super::simd::{Op, Simd};

/// out [m, n] = a [m, k] · b, for each of `batch` consecutive pairs.
#[derive(Debug, Clone, Copy)]
pub struct MatrixProduct<'a> {
    /// Number of products.
    pub batch: usize,
    /// Rows of a and out.
    pub m: usize,
    /// Columns of out.
    pub n: usize,
    /// Columns of a.
    pub k: usize,
    /// True when `b` is stored as [n, k], false for [k, n].
    pub transposed_b: bool,
    /// [batch, m, k]
    pub a: &'a [f32],
    /// [batch, n, k] or [batch, k, n]
    pub b: &'a [f32],
}

struct Rows<'a> {
    a: &'a [f32], // [m, k]
    b: &'a [f32], // [k, n]
    k: usize,
    n: usize,
    out: &'a mut [f32], // [m, n]
}

impl Op for Rows<'_> {
    type Out = ();
    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        let Self { a, b, k, n, out } = self;
        let m = out.len() / n;
        for column in (0..n).step_by(16) {
            let width = (n - column).min(16);
            let mut first = 0;
            while first < m {
                if first + 4 <= m {
                    block::<S, 4>(s, &a[first * k..], b, (k, n), column, width, &mut out[first * n..]);
                    first += 4;
                } else {
                    block::<S, 1>(s, &a[first * k..], b, (k, n), column, width, &mut out[first * n..]);
                    first += 1;
                }
            }
        }
    }
}

#[inline(always)]
fn block<S: Simd, const M: usize>(
    s: S,
    a: &[f32],
    b: &[f32],
    (k, n): (usize, usize),
    column: usize,
    width: usize,
    out: &mut [f32],
) {
    let mut sums = [s.splat(0.0); M];
    for at in 0..k {
        let b = &b[at * n + column..][..width];
        let b = if let Ok(b) = b.try_into() { s.load(b) } else { s.load_part(b, 0.0) };
        for (m, sum) in sums.iter_mut().enumerate() {
            *sum = s.fma(s.splat(a[m * k + at]), b, *sum);
        }
    }
    for (m, sum) in sums.into_iter().enumerate() {
        s.store_part(sum, &mut out[m * n + column..][..width]);
    }
}

impl KernelSet {
    /// Computes `product` into `out` [batch, m, n]; sums over k in order, one fused multiply-add each.
    ///
    /// # Panics
    /// When lengths do not fit.
    pub fn matmul(&self, pool: &ThreadPool, product: MatrixProduct<'_>, out: &mut [f32]) {
        let MatrixProduct { batch, m, n, k, transposed_b, a, b } = product;
        assert_eq!((a.len(), b.len(), out.len()), (batch * m * k, batch * n * k, batch * m * n), "lengths do not fit");
        if out.is_empty() {
            return;
        }
        if k == 0 {
            return out.fill(0.0);
        }
        if transposed_b {
            for i in 0..batch {
                let b = PackedF32::pack(n, k, &b[i * n * k..][..n * k], None).expect("shape checked above");
                self.gemm(pool, &a[i * m * k..][..m * k], &b, Clamp::NONE, &mut out[i * m * n..][..m * n]);
            }
            return;
        }
        let rows = if batch >= pool.threads() { m } else { m.div_ceil(pool.threads()).next_multiple_of(4).min(m) };
        let per_batch = m.div_ceil(rows);
        if rows < m && batch > 1 {
            // Chunks of rows would straddle products; one product at a time keeps them apart.
            for (i, out) in out.chunks_exact_mut(m * n).enumerate() {
                let product = MatrixProduct { batch: 1, a: &a[i * m * k..][..m * k], b: &b[i * n * k..][..n * k], ..product };
                self.matmul(pool, product, out);
            }
            return;
        }
        pool.parallel_chunks(out, rows * n, |i, out| {
            let (product, first) = (i / per_batch, i % per_batch * rows);
            let a = &a[(product * m + first) * k..][..out.len() / n * k];
            self.run(Rows { a, b: &b[product * n * k..][..n * k], k, n, out });
        });
    }
}
