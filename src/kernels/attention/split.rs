//! One split of keys for some query rows: scores, exponentials, weighted values.

use super::merge::partial;
use super::rows::{add_all_values, dense, prefetch, scores};
use super::{Attention, Mask};
use crate::kernels::norm::exp_minus_max;
use crate::kernels::reduce::min_max;
use crate::kernels::simd::{Op, Simd};
use std::ops::Range;

/// Keys of a split.
pub(super) const SPLIT: usize = 128;
/// Query rows that share a pass over a split.
pub(super) const ROWS: usize = 32;
/// Keys taken at a time when the cache of a layer stays near, or many rows share them. Their values stay in the
/// first-level cache meanwhile.
const MANY_KEYS: usize = 32;
/// Keys taken at a time when memory is the limit: all heads of these keys, then of the next, so that memory is read
/// nearly from end to end; the next block is asked for ahead.
const FEW_KEYS: usize = 4;
/// Keys from which on memory is the limit.
const FAR: usize = 512;

/// Query rows `rows` of some key-value heads against one split. A row is (query, head of the group), the head counting first.
pub(super) struct SplitRows<'a> {
    pub(super) call: &'a Attention<'a>,
    pub(super) kv_heads: Range<usize>,
    pub(super) rows: Range<usize>,
    pub(super) split: usize,
    pub(super) partials: &'a mut [[f32; 16]], // [kv_heads][rows][1 + vectors]
    pub(super) scratch: &'a mut Vec<[f32; 16]>,
}

impl Op for SplitRows<'_> {
    type Out = ();
    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        let Self { call, kv_heads, rows, split, partials, scratch } = self;
        let (dim, vectors) = (call.head_dim, call.vectors());
        let total_rows = kv_heads.len() * rows.len();
        let far = rows.len() <= 4 && call.keys(call.queries - 1) > FAR;
        let block = if far { FEW_KEYS } else { MANY_KEYS };
        scratch.resize(total_rows * (vectors + SPLIT / 16) + block * vectors, [0.0; 16]);
        let (q, scratch) = scratch.split_at_mut(total_rows * vectors);
        let (weights, dense_rows) = scratch.split_at_mut(total_rows * (SPLIT / 16));
        let work = Work::new(call, rows.clone(), split * SPLIT);
        let most = work.counts[..rows.len()].iter().copied().max().unwrap_or(0);
        let blocks = (0..most).step_by(block).map(|key| key..most.min(key + block));

        for (kv_head, q) in kv_heads.clone().zip(q.chunks_exact_mut(rows.len() * vectors)) {
            work.load_queries(s, kv_head, q);
        }
        for keys in blocks.clone() {
            let next = work.begin + keys.end..work.begin + most.min(keys.end + block);
            if far {
                prefetch(s, &call.k, kv_heads.clone(), next, dim);
            }
            let heads = q.chunks_exact(rows.len() * vectors).zip(weights.chunks_exact_mut(rows.len() * (SPLIT / 16)));
            for (kv_head, (q, weights)) in kv_heads.clone().zip(heads) {
                work.block_scores(s, kv_head, keys.clone(), q, weights, dense_rows);
            }
        }
        let heads = weights.chunks_exact_mut(rows.len() * (SPLIT / 16));
        for (weights, partials) in heads.zip(partials.chunks_exact_mut(rows.len() * (1 + vectors))) {
            work.exponentials(s, weights, partials);
        }
        for keys in blocks {
            let next = work.begin + keys.end..work.begin + most.min(keys.end + block);
            if far {
                prefetch(s, &call.v, kv_heads.clone(), next, dim);
            }
            let heads = weights.chunks_exact(rows.len() * (SPLIT / 16));
            let heads = heads.zip(partials.chunks_exact_mut(rows.len() * (1 + vectors)));
            for (kv_head, (weights, partials)) in kv_heads.clone().zip(heads) {
                work.block_values(s, kv_head, keys.clone(), weights, partials, dense_rows);
            }
        }
    }
}

/// What the passes over a split share.
struct Work<'a> {
    call: &'a Attention<'a>,
    rows: Range<usize>,
    begin: usize,
    /// Keys of the split that each row sees.
    counts: [usize; ROWS],
}

impl<'a> Work<'a> {
    fn new(call: &'a Attention<'a>, rows: Range<usize>, begin: usize) -> Self {
        let mut counts = [0; ROWS];
        for (row, count) in rows.clone().zip(&mut counts) {
            *count = call.keys(row / call.group()).saturating_sub(begin).min(SPLIT);
        }
        Self { call, rows, begin, counts }
    }

    /// The query rows of a head, dense.
    #[inline(always)]
    fn load_queries<S: Simd>(&self, s: S, kv_head: usize, q: &mut [[f32; 16]]) {
        let Attention { head_dim, q: queries, q_strides, .. } = *self.call;
        let group = self.call.group();
        for (row, q) in self.rows.clone().zip(q.chunks_exact_mut(self.call.vectors())) {
            let head = kv_head * group + row % group;
            let x = &queries[row / group * q_strides.token + head * q_strides.head..][..head_dim];
            for (x, out) in x.chunks(16).zip(q) {
                s.store(s.load_part(x, 0.0), out);
            }
        }
    }

    /// Unscaled scores of the keys `keys` (counted from the split's begin) for all rows that see them.
    #[inline(always)]
    fn block_scores<S: Simd>(
        &self,
        s: S,
        kv_head: usize,
        keys: Range<usize>,
        q: &[[f32; 16]],
        weights: &mut [[f32; 16]],
        dense_rows: &mut [[f32; 16]],
    ) {
        let at = self.begin + keys.start..self.begin + keys.end;
        let (data, stride) = dense(s, &self.call.k, kv_head, at, self.call.head_dim, dense_rows);
        let rows = q.chunks_exact(self.call.vectors()).zip(weights.chunks_exact_mut(SPLIT / 16));
        for (count, (q, weights)) in self.counts.into_iter().zip(rows) {
            let wanted = count.saturating_sub(keys.start).min(keys.len());
            let mut out = &mut weights.as_flattened_mut()[keys.start..keys.start + wanted];
            let mut data = data;
            loop {
                let n = match out.len() {
                    0 => break,
                    8.. if S::WIDE => {
                        out[..8].copy_from_slice(&scores::<S, 8>(s, q, data, stride));
                        8
                    }
                    4.. => {
                        out[..4].copy_from_slice(&scores::<S, 4>(s, q, data, stride));
                        4
                    }
                    _ => {
                        out[..1].copy_from_slice(&scores::<S, 1>(s, q, data, stride));
                        1
                    }
                };
                out = &mut out[n..];
                if !out.is_empty() {
                    data = &data[n * stride..];
                }
            }
        }
    }

    /// Scores of each row to exponentials; their maximum and sum to the row's partial, whose values become zero.
    #[inline(always)]
    fn exponentials<S: Simd>(&self, s: S, weights: &mut [[f32; 16]], partials: &mut [[f32; 16]]) {
        let scale = s.splat(self.call.scale);
        let rows = weights.chunks_exact_mut(SPLIT / 16).zip(partials.chunks_exact_mut(1 + self.call.vectors()));
        for (i, (weights, partials)) in rows.enumerate() {
            let (row, count) = (self.rows.start + i, self.counts[i]);
            let weights = &mut weights[..count.div_ceil(16)];
            for (i, chunk) in weights.iter_mut().enumerate() {
                let scaled = match self.call.mask {
                    Mask::Bias { keys, bias } => {
                        let first = self.begin + 16 * i;
                        let bias = &bias[row / self.call.group() * keys + first..][..(keys - first).min(16)];
                        s.fma(s.load(chunk), scale, s.load_part(bias, 0.0))
                    }
                    _ => s.mul(s.load(chunk), scale),
                };
                s.store(scaled, chunk);
            }
            weights.as_flattened_mut()[count..].fill(f32::NEG_INFINITY);
            let (_, max) = min_max(s, weights.as_flattened());
            let partial = partial(partials);
            *partial.max = max;
            if max == f32::NEG_INFINITY {
                *partial.sum = 0.0;
                weights.as_flattened_mut().fill(0.0);
            } else {
                *partial.sum = exp_minus_max(s, weights, max);
            }
            partial.values.fill([0.0; 16]);
        }
    }

    /// Adds the weighted values of the keys `keys` to the partials of all rows that see them.
    #[inline(always)]
    fn block_values<S: Simd>(
        &self,
        s: S,
        kv_head: usize,
        keys: Range<usize>,
        weights: &[[f32; 16]],
        partials: &mut [[f32; 16]],
        dense_rows: &mut [[f32; 16]],
    ) {
        let at = self.begin + keys.start..self.begin + keys.end;
        let (data, stride) = dense(s, &self.call.v, kv_head, at, self.call.head_dim, dense_rows);
        let row_vectors = 1 + self.call.vectors();
        let wanted = |i: usize| self.counts[i].saturating_sub(keys.start).min(keys.len());
        let mut i = 0;
        while i < self.rows.len() {
            let n = wanted(i);
            // Rows of one query see the same keys; of later queries perhaps more.
            let most = if S::WIDE { 4 } else { 2 };
            let alike = (i + 1..self.rows.len().min(i + most)).take_while(|&j| wanted(j) == n).count() + 1;
            let weight =
                |r: usize| &weights[(i + r) * (SPLIT / 16)..][..SPLIT / 16].as_flattened()[keys.start..keys.start + n];
            let sums = &mut partials[i * row_vectors..];
            match alike {
                4.. if S::WIDE => {
                    add_all_values::<S, 4>(
                        s,
                        [weight(0), weight(1), weight(2), weight(3)],
                        data,
                        stride,
                        sums,
                        row_vectors,
                    );
                }
                3 if S::WIDE => {
                    add_all_values::<S, 3>(s, [weight(0), weight(1), weight(2)], data, stride, sums, row_vectors);
                }
                2.. => add_all_values::<S, 2>(s, [weight(0), weight(1)], data, stride, sums, row_vectors),
                _ => add_all_values::<S, 1>(s, [weight(0)], data, stride, sums, row_vectors),
            }
            i += alike;
        }
    }
}
