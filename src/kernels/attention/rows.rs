//! The inner loops of attention: rows of keys against one query, rows of values into several sums.

use super::KeyValues;
use crate::kernels::simd::Simd;
use std::ops::Range;

/// Rows `keys` of one head as dense vectors: where they are if they have that form, else as a copy in `scratch`.
#[inline(always)]
pub(super) fn dense<'a, S: Simd>(
    s: S,
    cache: &KeyValues<'a>,
    head: usize,
    keys: Range<usize>,
    dim: usize,
    scratch: &'a mut [[f32; 16]],
) -> (&'a [f32], usize) {
    let vectors = dim.div_ceil(16);
    match *cache {
        KeyValues::F32 { data, strides } if dim.is_multiple_of(16) => {
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
pub(super) fn prefetch<S: Simd>(s: S, cache: &KeyValues<'_>, heads: Range<usize>, keys: Range<usize>, dim: usize) {
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
pub(super) fn scores<S: Simd, const N: usize>(s: S, q: &[[f32; 16]], keys: &[f32], stride: usize) -> [f32; N] {
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
pub(super) fn add_all_values<S: Simd, const R: usize>(
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
