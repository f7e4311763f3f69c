//! f32 activations × packed f32 or f16 weights: the linear layers of an unquantized model.
//!
//! out[m, n] = clamp(bias[n] + Σ over k, in order, one fused multiply-add each): the same bits for a row whatever the
//! number of rows, threads or the instruction set.

use super::elementwise::clamp;
use super::line::Line;
use super::pool::ThreadPool;
use super::qgemm::Clamp;
use super::set::KernelSet;
use super::shared::SharedMut;
use super::simd::{Op, Simd};
use super::weights::PackError;
use std::ops::Range;

/// A packed weight matrix [n, k] of floats with its bias: tiles of 16 columns, each the bias line and then, for every
/// input, 16 numbers.
#[derive(Debug, Clone)]
pub struct PackedF32 {
    n: usize,
    k: usize,
    half: bool,
    lines: Vec<Line>, // [tiles][1 + k or ⌈k/2⌉]
}

impl PackedF32 {
    /// Packs f32 weights [n, k].
    pub fn pack(n: usize, k: usize, weights: &[f32], bias: Option<&[f32]>) -> Result<Self, PackError> {
        Self::pack_with(n, k, weights.len(), bias, false, |line, at, column, index| {
            line[at].0[4 * column..][..4].copy_from_slice(&weights[index].to_ne_bytes());
        })
    }

    /// Packs IEEE half weights [n, k], given as bits; they stay halves in memory.
    pub fn pack_f16(n: usize, k: usize, weights: &[u16], bias: Option<&[f32]>) -> Result<Self, PackError> {
        Self::pack_with(n, k, weights.len(), bias, true, |line, at, column, index| {
            line[at / 2].0[32 * (at % 2) + 2 * column..][..2].copy_from_slice(&weights[index].to_ne_bytes());
        })
    }

    fn pack_with(
        n: usize,
        k: usize,
        found: usize,
        bias: Option<&[f32]>,
        half: bool,
        put: impl Fn(&mut [Line], usize, usize, usize),
    ) -> Result<Self, PackError> {
        if n == 0 || k == 0 {
            return Err(PackError::Shape { n, k });
        }
        let lengths = [("weights", found, n.checked_mul(k)), ("bias", bias.map_or(n, <[f32]>::len), Some(n))];
        for (what, found, needed) in lengths {
            if Some(found) != needed {
                return Err(PackError::Length { what, found, needed: needed.unwrap_or(usize::MAX) });
            }
        }
        let mut packed = Self { n, k, half, lines: Vec::new() };
        packed.lines = vec![Line::ZERO; packed.tiles() * packed.tile_lines()];
        let tile_lines = packed.tile_lines();
        for (tile, lines) in packed.lines.chunks_exact_mut(tile_lines).enumerate() {
            for (column, row) in (tile * 16..n.min(tile * 16 + 16)).enumerate() {
                if let Some(bias) = bias {
                    lines[0].0[4 * column..][..4].copy_from_slice(&bias[row].to_ne_bytes());
                }
                for at in 0..k {
                    put(&mut lines[1..], at, column, row * k + at);
                }
            }
        }
        Ok(packed)
    }

    /// Output columns.
    pub fn n(&self) -> usize {
        self.n
    }

    /// Inputs.
    pub fn k(&self) -> usize {
        self.k
    }

    /// Bytes a full multiplication reads.
    pub fn size_bytes(&self) -> usize {
        self.lines.len() * size_of::<Line>()
    }

    fn tiles(&self) -> usize {
        self.n.div_ceil(16)
    }

    fn tile_lines(&self) -> usize {
        1 + if self.half { self.k.div_ceil(2) } else { self.k }
    }

    fn tile(&self, index: usize) -> &[Line] {
        &self.lines[index * self.tile_lines()..][..self.tile_lines()]
    }
}

struct Tiles<'a> {
    x: &'a [f32],
    weights: &'a PackedF32,
    clamp: Clamp,
    out: &'a SharedMut<'a, f32>,
    tiles: Range<usize>,
}

impl Op for Tiles<'_> {
    type Out = ();
    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        if self.weights.half { tiles::<S, true>(s, &self) } else { tiles::<S, false>(s, &self) }
    }
}

/// Blocks of rows × tiles by the number of registers: 8×2 or 4×1 for many rows, 1×4 or 1×2 for few.
#[inline(always)]
fn tiles<S: Simd, const HALF: bool>(s: S, work: &Tiles<'_>) {
    let rows = work.x.len() / work.weights.k;
    let mut first = 0;
    let (many, many_tiles) = if S::WIDE { (8, 2) } else { (4, 1) };
    while first + many <= rows {
        let mut tile = work.tiles.start;
        while tile < work.tiles.end {
            let wide = tile + many_tiles <= work.tiles.end;
            match (S::WIDE, wide) {
                (true, true) => block::<S, 8, 2, HALF>(s, work, tile, first),
                (true, false) => block::<S, 8, 1, HALF>(s, work, tile, first),
                _ => block::<S, 4, 1, HALF>(s, work, tile, first),
            }
            tile += if wide { many_tiles } else { 1 };
        }
        first += many;
    }
    for row in first..rows {
        let mut tile = work.tiles.start;
        while tile < work.tiles.end {
            match work.tiles.end - tile {
                4.. if S::WIDE => {
                    block::<S, 1, 4, HALF>(s, work, tile, row);
                    tile += 4;
                }
                2.. => {
                    block::<S, 1, 2, HALF>(s, work, tile, row);
                    tile += 2;
                }
                _ => {
                    block::<S, 1, 1, HALF>(s, work, tile, row);
                    tile += 1;
                }
            }
        }
    }
}

#[inline(always)]
#[allow(unsafe_code)]
fn block<S: Simd, const M: usize, const T: usize, const HALF: bool>(s: S, work: &Tiles<'_>, tile: usize, first: usize) {
    let (k, n) = (work.weights.k, work.weights.n);
    let mut rows = [&work.x[..0]; M];
    for (m, row) in rows.iter_mut().enumerate() {
        *row = &work.x[(first + m) * k..][..k];
    }
    let mut lines = [&work.weights.lines[..0]; T];
    let mut sums = [[s.splat(0.0); T]; M];
    for t in 0..T {
        let all = work.weights.tile(tile + t);
        let bias = s.load(all[0].as_f32());
        lines[t] = &all[1..];
        for sums in &mut sums {
            sums[t] = bias;
        }
    }
    for at in 0..k {
        let mut w = [s.splat(0.0); T];
        for t in 0..T {
            w[t] = if HALF { s.load_f16(&lines[t][at / 2].as_u16()[at % 2]) } else { s.load(lines[t][at].as_f32()) };
        }
        for m in 0..M {
            let x = s.splat(rows[m][at]);
            for t in 0..T {
                sums[m][t] = s.fma(x, w[t], sums[m][t]);
            }
        }
    }
    for (m, sums) in sums.into_iter().enumerate() {
        for (t, sum) in sums.into_iter().enumerate() {
            let y = clamp(s, sum, [work.clamp.min, work.clamp.max]);
            let columns = 16 * (tile + t)..n.min(16 * (tile + t) + 16);
            let row = (first + m) * n;
            // SAFETY: each (row, tile) pair is computed once, by one task, and these elements belong to it alone.
            let out = unsafe { work.out.part(row + columns.start..row + columns.end) };
            match out.try_into() {
                Ok(out) => s.store(y, out),
                Err(_) => s.store_part(y, out),
            }
        }
    }
}

impl KernelSet {
    /// out [rows, n] = x [rows, k] · weights [n, k]ᵀ + bias, bounded.
    ///
    /// # Panics
    /// When `x` is not whole rows or `out` has not rows · n elements.
    pub fn gemm(&self, pool: &ThreadPool, x: &[f32], weights: &PackedF32, clamp: Clamp, out: &mut [f32]) {
        assert_eq!(x.len() % weights.k, 0, "activations are not whole rows");
        let rows = x.len() / weights.k;
        assert_eq!(out.len(), rows * weights.n, "output has not rows · n elements");
        let out = SharedMut::new(out);
        let run = |tiles| self.run(Tiles { x, weights, clamp, out: &out, tiles });
        if rows * weights.n * weights.k < 16 * 1024 {
            run(0..weights.tiles());
        } else {
            pool.parallel_ranges(weights.tiles(), 4, run);
        }
    }
}
