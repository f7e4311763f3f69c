//! Attention over a key-value cache, without ever forming the matrix of scores.
//!
//! Keys are taken in splits of 128, counted from position 0. In a split each query row takes the scores of its keys, their
//! maximum, exponentials and weighted sum of values; splits are merged in order. What a row computes depends on its own
//! position only, so prefill and decoding give the same bits, and decoding may spread the splits over threads.

use super::math::exp;
use super::norm::exp_minus_max;
use super::pool::ThreadPool;
use super::reduce::min_max;
use super::set::KernelSet;
use super::shared::SharedMut;
use super::simd::{Op, Simd};
use std::cell::RefCell;
use std::ops::Range;

/// Distances, in elements, between neighbours of a tensor whose innermost dimension is dense.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Strides {
    /// From a token to the next.
    pub token: usize,
    /// From a head to the next.
    pub head: usize,
}

/// Keys or values of all cached positions.
#[derive(Debug, Clone, Copy)]
pub enum KeyValues<'a> {
    /// Plain floats.
    F32 {
        /// [tokens, kv_heads, head_dim] in the order that `strides` says.
        data: &'a [f32],
        /// Strides of `data`.
        strides: Strides,
    },
    /// int8 with a scale and zero point for each token and head: (q − zero point) · scale.
    I8 {
        /// [tokens, kv_heads, head_dim] in the order that `strides` says.
        data: &'a [i8],
        /// Strides of `data`.
        strides: Strides,
        /// [tokens, kv_heads] in the order that `quant_strides` says.
        scales: &'a [f32],
        /// As `scales`.
        zero_points: &'a [i8],
        /// Strides of `scales` and `zero_points`.
        quant_strides: Strides,
    },
}

/// Which keys a query sees.
#[derive(Debug, Clone, Copy)]
pub enum Mask<'a> {
    /// Query i sees keys 0..=start + i.
    Causal {
        /// Position of the first query.
        start: usize,
    },
    /// Every query sees the first `keys` keys.
    Full {
        /// Number of keys.
        keys: usize,
    },
    /// Every query sees the first `keys` keys, with `bias` [queries, keys] added to the scores.
    Bias {
        /// Number of keys.
        keys: usize,
        /// Added to scaled scores; −∞ hides a key.
        bias: &'a [f32],
    },
}

/// One attention call. Query head h reads key-value head h / (heads / kv_heads).
#[derive(Debug, Clone, Copy)]
pub struct Attention<'a> {
    /// Query tokens.
    pub queries: usize,
    /// Query heads.
    pub heads: usize,
    /// Key-value heads; divides `heads`.
    pub kv_heads: usize,
    /// Numbers a head has.
    pub head_dim: usize,
    /// Factor of the scores, usually 1/√head_dim.
    pub scale: f32,
    /// Which keys are seen.
    pub mask: Mask<'a>,
    /// Queries, [queries, heads, head_dim] in the order that `q_strides` says.
    pub q: &'a [f32],
    /// Strides of `q`.
    pub q_strides: Strides,
    /// Keys.
    pub k: KeyValues<'a>,
    /// Values.
    pub v: KeyValues<'a>,
    /// Strides of the output.
    pub out_strides: Strides,
}

/// Keys of a split.
const SPLIT: usize = 128;
/// Query rows that share a pass over a split.
const ROWS: usize = 32;
/// Keys taken at a time when many rows share them. Their values stay in the first-level cache meanwhile.
const MANY_KEYS: usize = 32;
/// Keys taken at a time when memory is the limit: all heads of these keys, then of the next, so that the cache is read
/// nearly from end to end; the next block is asked for ahead.
const FEW_KEYS: usize = 8;

/// Result of a row in one split, before [`finish`]: maximum, sum of exponentials, weighted values.
struct Partial<'a> {
    max: &'a mut f32,
    sum: &'a mut f32,
    values: &'a mut [[f32; 16]],
}

/// One row of partials: two numbers (padded to a vector) and the values.
fn partial(row: &mut [[f32; 16]]) -> Partial<'_> {
    let (head, values) = row.split_at_mut(1);
    let [max, sum, ..] = &mut head[0];
    Partial { max, sum, values }
}

impl Attention<'_> {
    /// Query heads of a key-value head.
    fn group(&self) -> usize {
        self.heads / self.kv_heads
    }

    /// Keys that query `query` sees.
    fn keys(&self, query: usize) -> usize {
        match self.mask {
            Mask::Causal { start } => start + query + 1,
            Mask::Full { keys } | Mask::Bias { keys, .. } => keys,
        }
    }

    /// Vectors a head takes.
    fn vectors(&self) -> usize {
        self.head_dim.div_ceil(16)
    }

    /// Panics unless every index that the kernels form lies in its slice.
    fn check(&self, out: usize) {
        assert!(self.kv_heads > 0 && self.heads % self.kv_heads == 0 && self.head_dim > 0, "heads do not divide");
        let last = |strides: Strides, tokens: usize, heads: usize, dim: usize| {
            (tokens - 1) * strides.token + (heads - 1) * strides.head + dim
        };
        let keys = self.keys(self.queries - 1);
        assert!(keys > 0, "no keys");
        for cache in [self.k, self.v] {
            match cache {
                KeyValues::F32 { data, strides } => {
                    assert!(last(strides, keys, self.kv_heads, self.head_dim) <= data.len(), "cache too short");
                }
                KeyValues::I8 { data, strides, scales, zero_points, quant_strides } => {
                    assert!(last(strides, keys, self.kv_heads, self.head_dim) <= data.len(), "cache too short");
                    let quants = last(quant_strides, keys, self.kv_heads, 1);
                    assert!(quants <= scales.len() && quants <= zero_points.len(), "cache parameters too short");
                }
            }
        }
        if let Mask::Bias { keys, bias } = self.mask {
            assert_eq!(bias.len(), self.queries * keys, "mask has not queries · keys elements");
        }
        assert!(last(self.q_strides, self.queries, self.heads, self.head_dim) <= self.q.len(), "queries too short");
        assert!(last(self.out_strides, self.queries, self.heads, self.head_dim) <= out, "output too short");
        let (Strides { token, head }, dim) = (self.out_strides, self.head_dim);
        let apart = (head >= dim && token >= head * (self.heads - 1) + dim)
            || (token >= dim && head >= token * (self.queries - 1) + dim);
        assert!(apart || self.queries * self.heads == 1, "output heads overlap");
    }
}

/// Rows `keys` of one head as dense vectors: where they are if they have that form, else as a copy in `scratch`.
#[inline(always)]
fn dense<'a, S: Simd>(
    s: S,
    cache: &KeyValues<'a>,
    head: usize,
    keys: Range<usize>,
    dim: usize,
    scratch: &'a mut [[f32; 16]],
) -> (&'a [f32], usize) {
    let vectors = dim.div_ceil(16);
    match *cache {
        KeyValues::F32 { data, strides } if dim % 16 == 0 => {
            (&data[keys.start * strides.token + head * strides.head..], strides.token)
        }
        KeyValues::F32 { data, strides } => {
            for (key, row) in keys.zip(scratch.chunks_exact_mut(vectors)) {
                let x = &data[key * strides.token + head * strides.head..][..dim];
                for (x, out) in x.chunks(16).zip(row) {
                    s.store(s.load_part(x, 0.0), out);
                }
            }
            (scratch.as_flattened(), vectors * 16)
        }
        KeyValues::I8 { data, strides, scales, zero_points, quant_strides } => {
            for (key, row) in keys.zip(scratch.chunks_exact_mut(vectors)) {
                let x = &data[key * strides.token + head * strides.head..][..dim];
                let quant = key * quant_strides.token + head * quant_strides.head;
                let (scale, zero_point) = (s.splat(scales[quant]), s.splat(f32::from(zero_points[quant])));
                let (x, rest) = x.as_chunks();
                for (x, out) in x.iter().zip(&mut *row) {
                    s.store(s.mul(s.sub(s.load_i8(x), zero_point), scale), out);
                }
                if !rest.is_empty() {
                    let mut last = [0i8; 16];
                    last[..rest.len()].copy_from_slice(rest);
                    let out = &mut row[vectors - 1];
                    s.store(s.mul(s.sub(s.load_i8(&last), zero_point), scale), out);
                    out[rest.len()..].fill(0.0);
                }
            }
            (scratch.as_flattened(), vectors * 16)
        }
    }
}

/// Asks for the rows `keys` of `heads`: a block of a few keys is too small a run for the processor to foresee.
#[inline(always)]
fn prefetch<S: Simd>(s: S, cache: &KeyValues<'_>, heads: Range<usize>, keys: Range<usize>, dim: usize) {
    for key in keys {
        for head in heads.clone() {
            match *cache {
                KeyValues::F32 { data, strides } => {
                    let row = &data[key * strides.token + head * strides.head..][..dim];
                    row.chunks(16).for_each(|line| s.prefetch(&line[0]));
                }
                KeyValues::I8 { data, strides, .. } => {
                    let row = &data[key * strides.token + head * strides.head..][..dim];
                    row.chunks(64).for_each(|line| s.prefetch(&line[0]));
                }
            }
        }
    }
}

/// Scores of `N` keys for one query row.
#[inline(always)]
fn scores<S: Simd, const N: usize>(s: S, q: &[[f32; 16]], keys: &[f32], stride: usize) -> [f32; N] {
    let mut rows = [&keys.as_chunks::<16>().0[..0]; N];
    for (i, row) in rows.iter_mut().enumerate() {
        *row = &keys[i * stride..][..16 * q.len()].as_chunks().0[..q.len()];
    }
    let mut sums = [s.splat(0.0); N];
    for (c, q) in q.iter().enumerate() {
        let q = s.load(q);
        for i in 0..N {
            sums[i] = s.fma(q, s.load(&rows[i][c]), sums[i]);
        }
    }
    s.reduce_add_each(&sums)
}

/// Adds the values of `keys` rows, weighted, to `V` vectors of `R` rows.
#[inline(always)]
fn add_values<S: Simd, const R: usize, const V: usize>(
    s: S,
    weights: [&[f32]; R],
    values: &[f32],
    stride: usize,
    sums: [&mut [[f32; 16]]; R],
) {
    let mut acc = [[s.splat(0.0); V]; R];
    for r in 0..R {
        for c in 0..V {
            acc[r][c] = s.load(&sums[r][c]);
        }
    }
    let keys = weights[0].len();
    let mut weights = weights;
    for weights in &mut weights {
        *weights = &weights[..keys];
    }
    for key in 0..keys {
        let row: &[[f32; 16]; V] = values[key * stride..][..16 * V].as_chunks().0.try_into().expect("V vectors");
        let mut v = [s.splat(0.0); V];
        for c in 0..V {
            v[c] = s.load(&row[c]);
        }
        for r in 0..R {
            let weight = s.splat(weights[r][key]);
            for c in 0..V {
                acc[r][c] = s.fma(weight, v[c], acc[r][c]);
            }
        }
    }
    for r in 0..R {
        for c in 0..V {
            s.store(acc[r][c], &mut sums[r][c]);
        }
    }
}

/// [`add_values`] for all vectors of `R` rows.
#[inline(always)]
fn add_all_values<S: Simd, const R: usize>(
    s: S,
    weights: [&[f32]; R],
    values: &[f32],
    stride: usize,
    sums: &mut [[f32; 16]],
    row_vectors: usize,
) {
    let vectors = row_vectors - 1;
    let step = if S::WIDE { 4 } else { 2 };
    let mut c = 0;
    while c < vectors {
        let wide = c + step <= vectors;
        let mut rows = sums.chunks_exact_mut(row_vectors).map(|row| &mut row[1 + c..]);
        let parts = std::array::from_fn(|_| rows.next().expect("R rows"));
        match (wide, S::WIDE) {
            (true, true) => add_values::<S, R, 4>(s, weights, &values[16 * c..], stride, parts),
            (true, false) => add_values::<S, R, 2>(s, weights, &values[16 * c..], stride, parts),
            _ => add_values::<S, R, 1>(s, weights, &values[16 * c..], stride, parts),
        }
        c += if wide { step } else { 1 };
    }
}

thread_local! {
    static SCRATCH: RefCell<Vec<[f32; 16]>> = const { RefCell::new(Vec::new()) };
}

/// Query rows `rows` of some key-value heads against one split. A row is (query, head of the group), the head counting first.
struct SplitRows<'a> {
    call: &'a Attention<'a>,
    kv_heads: Range<usize>,
    rows: Range<usize>,
    split: usize,
    partials: &'a mut [[f32; 16]], // [kv_heads][rows][1 + vectors]
    scratch: &'a mut Vec<[f32; 16]>,
}

impl Op for SplitRows<'_> {
    type Out = ();
    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        let Self { call, kv_heads, rows, split, partials, scratch } = self;
        let (dim, vectors) = (call.head_dim, call.vectors());
        let total_rows = kv_heads.len() * rows.len();
        let block = if rows.len() > 4 { MANY_KEYS } else { FEW_KEYS };
        scratch.resize(total_rows * (vectors + SPLIT / 16) + block * vectors, [0.0; 16]);
        let (q, scratch) = scratch.split_at_mut(total_rows * vectors);
        let (weights, dense_rows) = scratch.split_at_mut(total_rows * (SPLIT / 16));
        let work = Work { call, rows: rows.clone(), begin: split * SPLIT };
        let most = rows.clone().map(|row| work.count(row)).max().unwrap_or(0);
        let blocks = (0..most).step_by(block).map(|key| key..most.min(key + block));

        for (kv_head, q) in kv_heads.clone().zip(q.chunks_exact_mut(rows.len() * vectors)) {
            work.load_queries(s, kv_head, q);
        }
        for keys in blocks.clone() {
            let next = work.begin + keys.end..work.begin + most.min(keys.end + block);
            if block == FEW_KEYS {
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
            if block == FEW_KEYS {
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
}

impl Work<'_> {
    /// Keys of the split that row `row` sees.
    #[inline(always)]
    fn count(&self, row: usize) -> usize {
        self.call.keys(row / self.call.group()).saturating_sub(self.begin).min(SPLIT)
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
        for (row, (q, weights)) in self.rows.clone().zip(rows) {
            let wanted = self.count(row).saturating_sub(keys.start).min(keys.len());
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
        for (row, (weights, partials)) in self.rows.clone().zip(rows) {
            let count = self.count(row);
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
        let wanted = |i: usize| self.count(self.rows.start + i).saturating_sub(keys.start).min(keys.len());
        let mut i = 0;
        while i < self.rows.len() {
            let n = wanted(i);
            // Rows of one query see the same keys; of later queries perhaps more.
            let most = if S::WIDE { 4 } else { 2 };
            let alike = (i + 1..self.rows.len().min(i + most)).take_while(|&j| wanted(j) == n).count() + 1;
            let weight = |r: usize| &weights[(i + r) * (SPLIT / 16)..][..SPLIT / 16].as_flattened()[keys.start..keys.start + n];
            let sums = &mut partials[i * row_vectors..];
            match alike {
                4.. if S::WIDE => {
                    add_all_values::<S, 4>(s, [weight(0), weight(1), weight(2), weight(3)], data, stride, sums, row_vectors);
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
struct Finish<'a>(&'a mut [[f32; 16]], &'a mut [f32]);

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
struct Merge<'a>(&'a mut [[f32; 16]], &'a mut [[f32; 16]], usize);

impl Op for Merge<'_> {
    type Out = ();
    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        for (total, next) in self.0.chunks_exact_mut(self.2).zip(self.1.chunks_exact_mut(self.2)) {
            merge(s, total, next);
        }
    }
}

impl KernelSet {
    /// Attention of `call` into `out` [queries, heads, head_dim], in the order that `out_strides` says. A query that sees
    /// no key (all −∞) gives zeros.
    ///
    /// # Panics
    /// When slices are too short for the shapes, or heads of the output overlap.
    #[allow(unsafe_code)]
    pub fn attention(&self, pool: &ThreadPool, call: &Attention<'_>, out: &mut [f32]) {
        if call.queries == 0 {
            return;
        }
        call.check(out.len());
        let (group, row_vectors) = (call.group(), 1 + call.vectors());
        let rows = call.queries * group;
        let blocks = rows.div_ceil(ROWS);
        let splits = call.keys(call.queries - 1).div_ceil(SPLIT);
        let out = SharedMut::new(out);
        let finish = |kv_head: usize, row: usize, total: &mut [[f32; 16]]| {
            let head = kv_head * group + row % group;
            let at = row / group * call.out_strides.token + head * call.out_strides.head;
            // SAFETY: each (token, head) is finished once, and `check` found that heads of the output do not overlap.
            let out = unsafe { out.part(at..at + call.head_dim) };
            self.run(Finish(total, out));
        };

        if blocks == 1 {
            // [splits][kv_heads][rows][row_vectors]: all heads of a split together, since their keys lie side by side.
            let split_vectors = call.kv_heads * rows * row_vectors;
            let mut partials = vec![[0.0; 16]; splits * split_vectors];
            pool.parallel_chunks(&mut partials, split_vectors, |split, partials| {
                SCRATCH.with_borrow_mut(|scratch| {
                    self.run(SplitRows { call, kv_heads: 0..call.kv_heads, rows: 0..rows, split, partials, scratch });
                });
            });
            let (total, rest) = partials.split_at_mut(split_vectors);
            for next in rest.chunks_exact_mut(split_vectors) {
                self.run(Merge(total, next, row_vectors));
            }
            for (i, total) in total.chunks_exact_mut(row_vectors).enumerate() {
                finish(i / rows, i % rows, total);
            }
            return;
        }

        pool.parallel_for(call.kv_heads * blocks, |i| {
            let (kv_head, block) = (i / blocks, i % blocks);
            let rows = block * ROWS..rows.min((block + 1) * ROWS);
            let splits = call.keys((rows.end - 1) / group).div_ceil(SPLIT);
            let size = rows.len() * row_vectors;
            let mut partials = vec![[0.0; 16]; 2 * size];
            let (total, next) = partials.split_at_mut(size);
            SCRATCH.with_borrow_mut(|scratch| {
                for split in 0..splits {
                    let (kv_heads, rows) = (kv_head..kv_head + 1, rows.clone());
                    let partials = if split == 0 { &mut *total } else { &mut *next };
                    self.run(SplitRows { call, kv_heads, rows, split, partials, scratch });
                    if split > 0 {
                        self.run(Merge(total, next, row_vectors));
                    }
                }
            });
            for (row, total) in rows.zip(total.chunks_exact_mut(row_vectors)) {
                finish(kv_head, row, total);
            }
        });
    }
}
