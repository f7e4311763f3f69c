//! int8 activations × packed 4- or 8-bit weights → f32: the linear layers of a quantized model.
//!
//! out[m, n] = clamp((zero_point[m] · term[n] + Σ over groups of scale[n, g] · dot[m, n, g]) · scale[m] + bias[n]), where
//! dot is an exact integer, groups are added in order with one fused multiply-add each, the row scale and the bias are
//! applied by one more. The order depends neither on the number of rows, nor on threads, nor on the instruction set: a
//! row of a prefill equals the same row decoded alone, to the bit.

use super::elementwise::clamp;
use super::pool::ThreadPool;
use super::quantize::QuantizedRows;
use super::set::KernelSet;
use super::shared::SharedMut;
use super::simd::{Op, Simd};
use super::weights::{Bits, PackedWeights};
use std::ops::Range;

/// Bounds of an output. A NaN passes them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Clamp {
    /// Smallest output.
    pub min: f32,
    /// Largest output.
    pub max: f32,
}

impl Clamp {
    /// No bounds.
    pub const NONE: Self = Self { min: f32::NEG_INFINITY, max: f32::INFINITY };
}

/// One product of a batch: `out` [rows, n] = `activations` [rows, k] · `weights` [n, k]ᵀ.
#[derive(Debug)]
pub struct QuantizedProduct<'a> {
    /// Quantized with the group size of the weights, by the set that multiplies.
    pub activations: &'a QuantizedRows,
    /// The weights.
    pub weights: &'a PackedWeights,
    /// Bounds of the output.
    pub clamp: Clamp,
    /// [rows, n].
    pub out: &'a mut [f32],
}

struct Shared<'a> {
    activations: &'a QuantizedRows,
    weights: &'a PackedWeights,
    clamp: Clamp,
    out: SharedMut<'a, f32>,
}

/// Bytes of activations that stay in the second-level cache while the tiles of weights pass by.
const PANEL_BYTES: usize = 384 * 1024;
/// Multiplications below which threads cost more than they save.
const SERIAL_WORK: usize = 48 * 1024;

impl KernelSet {
    /// One product.
    ///
    /// # Panics
    /// When the operands do not fit: another `k` or group size, activations quantized by another set, or an `out` that has
    /// not rows · n elements.
    pub fn quantized_gemm(&self, pool: &ThreadPool, product: QuantizedProduct<'_>) {
        self.quantized_gemm_batch(pool, [product]);
    }

    /// Several independent products in one parallel loop, such as the query, key and value projections of a layer.
    ///
    /// # Panics
    /// As [`quantized_gemm`](Self::quantized_gemm).
    pub fn quantized_gemm_batch<'a, const N: usize>(&self, pool: &ThreadPool, products: [QuantizedProduct<'a>; N]) {
        let mut work = 0;
        let products = products.map(|QuantizedProduct { activations, weights, clamp, out }| {
            let shape = weights.shape();
            assert_eq!(
                (activations.k(), activations.group()),
                (shape.k, shape.group),
                "activations and weights differ"
            );
            assert_eq!(activations.tile_rows(), self.tile_rows(), "activations were quantized by another set");
            assert_eq!(out.len(), activations.rows() * shape.n, "output has not rows · n elements");
            work += activations.rows() * shape.n * shape.k;
            Shared { activations, weights, clamp, out: SharedMut::new(out) }
        });
        let threads = if work < SERIAL_WORK { 1 } else { pool.threads() };
        // Chunks of tiles, counted through all products.
        let total: usize = products.iter().map(|p| p.weights.tiles()).sum();
        let chunk = if threads == 1 { total.max(1) } else { total.div_ceil(threads * 6).clamp(1, 64) };
        let chunks = products.each_ref().map(|p| p.weights.tiles().div_ceil(chunk));
        let run = |mut index: usize| {
            for (product, &count) in products.iter().zip(&chunks) {
                if index < count {
                    let tiles = index * chunk..product.weights.tiles().min((index + 1) * chunk);
                    return self.run(Tiles { product, tiles });
                }
                index -= count;
            }
        };
        let tasks = chunks.iter().sum();
        if threads == 1 { (0..tasks).for_each(run) } else { pool.parallel_for(tasks, run) }
    }
}

struct Tiles<'a> {
    product: &'a Shared<'a>,
    tiles: Range<usize>,
}

impl Op for Tiles<'_> {
    type Out = ();
    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        let Shared { activations, weights, .. } = *self.product;
        let panel_rows = (PANEL_BYTES / (8 * activations.row_steps())).max(S::ROWS);
        let panel_rows = panel_rows - panel_rows % S::ROWS;
        for panel in (0..activations.rows()).step_by(panel_rows) {
            for tile in self.tiles.clone() {
                match (weights.bits(), weights.bf16_scales(), weights.shape().group_steps()) {
                    (Bits::Four, true, 4) => tile_blocks::<S, 4, true, 4>(s, self.product, tile, panel, panel_rows),
                    (Bits::Four, true, _) => tile_blocks::<S, 4, true, 0>(s, self.product, tile, panel, panel_rows),
                    (Bits::Four, false, _) => tile_blocks::<S, 4, false, 0>(s, self.product, tile, panel, panel_rows),
                    (Bits::Eight, true, _) => tile_blocks::<S, 8, true, 0>(s, self.product, tile, panel, panel_rows),
                    (Bits::Eight, false, _) => tile_blocks::<S, 8, false, 0>(s, self.product, tile, panel, panel_rows),
                }
            }
        }
    }
}

/// One tile of weights against the row blocks that begin in `panel..panel + panel_rows`.
#[inline(always)]
fn tile_blocks<S: Simd, const BITS: u32, const BF16: bool, const STEPS: usize>(
    s: S,
    product: &Shared<'_>,
    tile: usize,
    panel: usize,
    panel_rows: usize,
) {
    let rows = product.activations.rows();
    let mut first = panel;
    for size in [S::ROWS, 8, 4, 2, 1] {
        if size > S::ROWS {
            continue;
        }
        while first + size <= rows && first < panel + panel_rows {
            match size {
                12 => block::<S, 12, BITS, BF16, STEPS>(s, product, tile, first),
                8 => block::<S, 8, BITS, BF16, STEPS>(s, product, tile, first),
                4 => block::<S, 4, BITS, BF16, STEPS>(s, product, tile, first),
                2 => block::<S, 2, BITS, BF16, STEPS>(s, product, tile, first),
                _ => block::<S, 1, BITS, BF16, STEPS>(s, product, tile, first),
            }
            first += size;
        }
    }
}

/// `M` rows × 16 columns. `STEPS`: steps of a group when known at compile time, else 0.
#[inline(always)]
#[allow(unsafe_code)]
fn block<S: Simd, const M: usize, const BITS: u32, const BF16: bool, const STEPS: usize>(
    s: S,
    product: &Shared<'_>,
    index: usize,
    first: usize,
) {
    if M > S::ROWS {
        return; // Never asked for; keeps such blocks from being compiled.
    }
    let (steps, starts) = product.activations.block::<M>(first);
    let quants = &product.activations.quants()[first..][..M];
    let tile = product.weights.tile(index);
    let terms = s.load(tile.zero_point_terms);
    let mut sums = [terms; M];
    for (sum, quant) in sums.iter_mut().zip(quants) {
        *sum = s.mul(s.splat(f32::from(quant.zero_point)), terms);
    }
    let group_steps = if STEPS > 0 { STEPS } else { product.weights.shape().group_steps() };
    let group_lines = if BITS == 4 { group_steps } else { 2 * group_steps };
    let section_groups = if BF16 { 2 } else { 1 };
    let sections = tile.sections.chunks(1 + section_groups * group_lines);
    let groups = starts.chunks(section_groups).zip(steps.chunks(section_groups * group_steps));
    for (section, (starts, steps)) in sections.zip(groups) {
        let (scales, lines) = section.split_first().expect("a line of scales");
        let groups = starts.iter().zip(steps.chunks_exact(group_steps)).zip(lines.chunks_exact(group_lines));
        for (g, ((start, steps), lines)) in groups.enumerate() {
            let dots = if BITS == 4 {
                s.dot4::<M>(*start, lines, steps)
            } else {
                let mut start = *start;
                for start in &mut start {
                    *start *= 16;
                }
                s.dot8::<M>(start, lines.as_chunks().0, steps)
            };
            let scale = if BF16 { s.load_bf16(&scales.as_u16()[g]) } else { s.load(scales.as_f32()) };
            for m in 0..M {
                sums[m] = s.fma(s.to_f32(dots[m]), scale, sums[m]);
            }
        }
    }
    let bias = match tile.bias {
        Some(bias) => s.load(bias),
        None => s.splat(0.0),
    };
    let n = product.weights.shape().n;
    let columns = 16 * index..n.min(16 * index + 16);
    for m in 0..M {
        let y = s.fma(sums[m], s.splat(quants[m].scale), bias);
        let y = clamp(s, y, [product.clamp.min, product.clamp.max]);
        let row = (first + m) * n;
        // SAFETY: each (row, tile) pair is computed once, by one task, and these elements belong to it alone.
        let out = unsafe { product.out.part(row + columns.start..row + columns.end) };
        match out.try_into() {
            Ok(out) => s.store(y, out),
            Err(_) => s.store_part(y, out),
        }
    }
}
