//! Rows of a weight side by side: what is done to one row column by column is vector code over a tile of them.

use crate::kernels::simd::Simd;

/// Rows of a tile.
pub(super) const ROWS: usize = 32;

/// One number of each row of a tile.
pub(super) type Lanes = [[f32; 16]; ROWS / 16];

/// No rows at all.
pub(super) const ZERO: Lanes = [[0.0; 16]; ROWS / 16];

/// Some rows of weights and what they are rounded to, column by column.
#[derive(Debug, Clone)]
pub(super) struct Tile {
    /// The weights.
    pub reals: Vec<Lanes>, // (columns)
    /// Their codes, which are whole numbers.
    pub codes: Vec<Lanes>, // (columns)
    /// The scales of each block of codes.
    pub scales: Vec<Lanes>, // (blocks)
    /// Codes that share a scale.
    pub block: usize,
}

impl Tile {
    /// From at most [`ROWS`] rows of weights and of their scales; rows that are missing are zero.
    pub fn new(reals: &[f32], scales: &[f32], [columns, block]: [usize; 2]) -> Self {
        let (codes, blocks) = (vec![ZERO; columns], columns.div_ceil(block));
        let mut tile = Self { reals: codes.clone(), codes, scales: vec![[[1.0; 16]; 2]; blocks], block };
        scatter(reals, &mut tile.reals);
        scatter(scales, &mut tile.scales);
        tile
    }
}

/// Puts rows side by side.
pub(super) fn scatter(rows: &[f32], lanes: &mut [Lanes]) {
    for (row, values) in rows.chunks_exact(lanes.len().max(1)).enumerate() {
        lanes.iter_mut().zip(values).for_each(|(lanes, &value)| lanes[row / 16][row % 16] = value);
    }
}

/// The way back.
pub(super) fn gather(lanes: &[Lanes], rows: &mut [f32]) {
    for (row, values) in rows.chunks_exact_mut(lanes.len().max(1)).enumerate() {
        values.iter_mut().zip(lanes).for_each(|(value, lanes)| *value = lanes[row / 16][row % 16]);
    }
}

/// A part of a matrix: so many columns of rows that begin `stride` apart.
#[derive(Clone, Copy)]
pub(super) struct Part<'a> {
    /// From the first element of the part on.
    pub elements: &'a [f32],
    /// Elements from a row to the next.
    pub stride: usize,
}

impl<'a> Part<'a> {
    /// The part of a matrix of `stride` columns that begins at that row and column.
    pub fn at(matrix: &'a [f32], stride: usize, [row, column]: [usize; 2]) -> Self {
        Self { elements: matrix.get(row * stride + column..).unwrap_or_default(), stride }
    }
}

/// `sums[i] += Σⱼ part[i][j] · x[j]`
#[inline(always)]
pub(super) fn add_products<S: Simd>(s: S, part: Part<'_>, x: &[Lanes], sums: &mut [Lanes]) {
    if x.is_empty() {
        return;
    }
    let (quads, rest) = sums.as_chunks_mut::<4>();
    for (index, sums) in quads.iter_mut().enumerate() {
        products(s, Part::at(part.elements, part.stride, [4 * index, 0]), x, sums);
    }
    let first = 4 * quads.len();
    for (index, sum) in rest.iter_mut().enumerate() {
        products(s, Part::at(part.elements, part.stride, [first + index, 0]), x, std::array::from_mut(sum));
    }
}

#[inline(always)]
fn products<S: Simd, const M: usize>(s: S, part: Part<'_>, x: &[Lanes], out: &mut [Lanes; M]) {
    let mut rows = [x.len(); M].map(|columns| &part.elements[..columns]);
    for (m, row) in rows.iter_mut().enumerate() {
        *row = &part.elements[m * part.stride..][..x.len()];
    }
    let mut sums = [[s.splat(0.0); 2]; M];
    for (column, x) in x.iter().enumerate() {
        let x = [s.load(&x[0]), s.load(&x[1])];
        for m in 0..M {
            let factor = s.splat(rows[m][column]);
            sums[m] = [s.fma(factor, x[0], sums[m][0]), s.fma(factor, x[1], sums[m][1])];
        }
    }
    for (out, sums) in out.iter_mut().zip(sums) {
        for half in 0..2 {
            s.store(s.add(s.load(&out[half]), sums[half]), &mut out[half]);
        }
    }
}

/// `a · b` of two slices of one length, in lanes.
#[inline(always)]
pub(super) fn dot<S: Simd>(s: S, a: &[f32], b: &[f32]) -> f32 {
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<64>(), b.as_chunks::<64>());
    let mut sums = [s.splat(0.0); 4];
    for (a, b) in a.iter().zip(b) {
        let (a, b) = (a.as_chunks::<16>().0, b.as_chunks::<16>().0);
        for k in 0..4 {
            sums[k] = s.fma(s.load(&a[k]), s.load(&b[k]), sums[k]);
        }
    }
    for (k, (a, b)) in a_rest.chunks(16).zip(b_rest.chunks(16)).enumerate() {
        sums[k] = s.fma(s.load_part(a, 0.0), s.load_part(b, 0.0), sums[k]);
    }
    s.reduce_add(s.add(s.add(sums[0], sums[1]), s.add(sums[2], sums[3])))
}
