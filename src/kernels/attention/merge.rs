//! What a query row keeps of a split, and how splits become one.

use crate::kernels::math::exp;
use crate::kernels::simd::{Op, Simd};

/// Result of a row in one split, before [`finish`]: maximum, sum of exponentials, weighted values.
pub(super) struct Partial<'a> {
    pub(super) max: &'a mut f32,
    pub(super) sum: &'a mut f32,
    pub(super) values: &'a mut [[f32; 16]],
}

/// One row of partials: two numbers (padded to a vector) and the values.
pub(super) fn partial(row: &mut [[f32; 16]]) -> Partial<'_> {
    let (head, values) = row.split_at_mut(1);
    let [max, sum, ..] = &mut head[0];
    Partial { max, sum, values }
}

/// total ← total and next, as if their keys had been one split.
#[inline(always)]
fn merge<S: Simd>(s: S, total: &mut [[f32; 16]], next: &mut [[f32; 16]]) {
    let (total, next) = (partial(total), partial(next));
    if *next.max == f32::NEG_INFINITY {
        return;
    }
    let max = total.max.max(*next.max);
    let keep = exp(s, s.splat(*total.max - max));
    let take = exp(s, s.splat(*next.max - max));
    let mut sums = [0.0; 16];
    s.store(s.fma(s.splat(*next.sum), take, s.mul(s.splat(*total.sum), keep)), &mut sums);
    (*total.max, *total.sum) = (max, sums[0]);
    for (total, next) in total.values.iter_mut().zip(&*next.values) {
        s.store(s.fma(s.load(next), take, s.mul(s.load(total), keep)), total);
    }
}

/// out ← values / sum of a row; zeros when no key was seen.
pub(super) struct Finish<'a>(pub(super) &'a mut [[f32; 16]], pub(super) &'a mut [f32]);

impl Op for Finish<'_> {
    type Out = ();
    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        let total = partial(self.0);
        let scale = s.splat(if *total.sum > 0.0 { 1.0 / *total.sum } else { 0.0 });
        for (v, out) in total.values.iter().zip(self.1.chunks_mut(16)) {
            s.store_part(s.mul(s.load(v), scale), out);
        }
    }
}

/// Merges the rows of a later split into the totals; the last number is the length of a row.
pub(super) struct Merge<'a>(pub(super) &'a mut [[f32; 16]], pub(super) &'a mut [[f32; 16]], pub(super) usize);

impl Op for Merge<'_> {
    type Out = ();
    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        for (total, next) in self.0.chunks_exact_mut(self.2).zip(self.1.chunks_exact_mut(self.2)) {
            merge(s, total, next);
        }
    }
}
