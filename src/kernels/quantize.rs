//! Dynamic int8 quantization of activations, one scale and zero point a row, as XNNPACK's `qd8` data type defines it.

use super::set::KernelSet;
use super::shared::SharedMut;
use super::simd::{Op, Simd, Step};
use super::{pool::ThreadPool, reduce};

/// Scale and zero point of one row: x ≈ (q − zero_point) · scale.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct RowQuant {
    /// Size of one quantization step: 1 / multiplier.
    pub scale: f32,
    /// The q that stands for 0, −128..=127.
    pub zero_point: i8,
}

impl RowQuant {
    /// Parameters for a row whose numbers lie in `min..=max`, and the multiplier that quantizes it. Every operation is
    /// rounded to f32, in this order, because the result must equal XNNPACK's to the bit.
    pub fn of_range(min: f32, max: f32) -> (Self, f32) {
        let (qmin, qmax) = (-128.0f32, 127.0f32);
        let (rmin, rmax) = (min.min(0.0), max.max(0.0));
        let multiplier = if rmin == rmax { 1.0 } else { (qmax - qmin) / (rmax - rmin) };
        let (low, high) = (rmin * multiplier, rmax * multiplier);
        let error_at_min = qmin + low;
        let error_at_max = qmax + high;
        let zero_point = if error_at_min + error_at_max > 0.0 { qmin - low } else { qmax - high };
        let zero_point = zero_point.max(qmin).min(qmax).round_ties_even() as i8;
        (Self { scale: 1.0 / multiplier, zero_point }, multiplier)
    }
}

/// Quantized activations [rows, k] in the order the GEMM reads them. Reused from call to call, it does not allocate once
/// it has seen the largest shape.
#[derive(Debug, Clone, Default)]
pub struct QuantizedRows {
    rows: usize,
    k: usize,
    group: usize,
    tile_rows: usize,
    steps: Vec<Step>,      // [blocks][row_steps][rows of the block]
    starts: Vec<i32>,      // [blocks][groups][rows of the block]: −8 · Σ of the group
    quants: Vec<RowQuant>, // [rows]
}

impl QuantizedRows {
    /// Empty, without memory.
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Inputs a row has.
    pub fn k(&self) -> usize {
        self.k
    }

    /// Group size it was quantized for.
    pub fn group(&self) -> usize {
        self.group
    }

    /// Parameters of each row.
    pub fn quants(&self) -> &[RowQuant] {
        &self.quants
    }

    /// The quantized numbers of row `row`, gathered from the packed order.
    pub fn row(&self, row: usize) -> Vec<i8> {
        let (first, size) = self.blocks().find(|&(first, size)| row < first + size).expect("row of this matrix");
        let base = first * self.row_steps();
        let groups = self.groups();
        let group_steps = self.row_steps() / groups;
        let mut out = Vec::with_capacity(self.k);
        for s in 0..self.row_steps() {
            let words = self.steps[base + s * size + (row - first)];
            let bytes = words.map(i32::to_le_bytes).concat();
            let left = if (s + 1) % group_steps == 0 { self.group - 8 * (group_steps - 1) } else { 8 };
            out.extend(bytes[..left].iter().map(|&b| b as i8));
        }
        out
    }

    pub(crate) fn tile_rows(&self) -> usize {
        self.tile_rows
    }

    pub(crate) fn groups(&self) -> usize {
        self.k / self.group
    }

    /// Steps of 8 that a row has.
    pub(crate) fn row_steps(&self) -> usize {
        self.groups() * self.group.div_ceil(8)
    }

    /// (first row, number of rows) of the blocks whose rows are interleaved.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        row_blocks(self.rows, self.tile_rows)
    }

    /// Steps and starts of a block of `M` rows that begins at row `first`.
    #[inline(always)]
    pub(crate) fn block<const M: usize>(&self, first: usize) -> (&[[Step; M]], &[[i32; M]]) {
        let steps = &self.steps[first * self.row_steps()..][..M * self.row_steps()];
        let starts = &self.starts[first * self.groups()..][..M * self.groups()];
        (steps.as_chunks().0, starts.as_chunks().0)
    }

    fn resize(&mut self, rows: usize, k: usize, group: usize, tile_rows: usize) {
        (self.rows, self.k, self.group, self.tile_rows) = (rows, k, group, tile_rows);
        self.steps.resize(rows * self.row_steps(), [0; 2]);
        self.starts.resize(rows * self.groups(), 0);
        self.quants.resize(rows, RowQuant::default());
    }
}

/// Splits `rows` into blocks of `tile` rows, and what is left into blocks of 8, 4, 2 and 1.
pub(crate) fn row_blocks(rows: usize, tile: usize) -> impl Iterator<Item = (usize, usize)> {
    let mut first = 0;
    std::iter::from_fn(move || {
        let size = [tile, 8, 4, 2, 1].into_iter().find(|&size| size <= tile && size <= rows - first)?;
        first += size;
        Some((first - size, size))
    })
}

struct QuantizeRow<'a> {
    x: &'a [f32],
    group: usize,
    at: usize,
    stride: usize,
    steps: &'a mut [Step],
    starts: &'a mut [i32],
}

impl Op for QuantizeRow<'_> {
    type Out = RowQuant;
    #[inline(always)]
    fn eval<S: Simd>(self, s: S) -> RowQuant {
        let (min, max) = reduce::min_max(s, self.x);
        let (quant, multiplier) = RowQuant::of_range(min, max);
        let zero_point = f32::from(quant.zero_point);
        let (low, high) = (s.splat(-128.0 - zero_point), s.splat(127.0 - zero_point));
        let (zero_point, multiplier) = (s.splat(zero_point), s.splat(multiplier));
        let mut step = 0;
        for (g, x) in self.x.chunks_exact(self.group).enumerate() {
            let mut sum = 0;
            for x in x.chunks(16) {
                let v = if let Ok(x) = x.try_into() { s.load(x) } else { s.load_part(x, 0.0) };
                let scaled = s.min(s.max(s.mul(v, multiplier), low), high);
                let mut q = [0i8; 16];
                s.store_i8(s.add(s.round(scaled), zero_point), &mut q);
                q[x.len()..].fill(0);
                for eight in q[..x.len().next_multiple_of(8)].as_chunks::<8>().0 {
                    sum += eight.iter().map(|&q| i32::from(q)).sum::<i32>();
                    self.steps[step * self.stride + self.at] = bytemuck::cast(*eight);
                    step += 1;
                }
            }
            self.starts[g * self.stride + self.at] = -8 * sum;
        }
        quant
    }
}

impl KernelSet {
    /// Quantizes `x` [rows, k] row by row for weights of group size `group` (their [`WeightShape::group`]). NaN becomes
    /// the lowest number of its row.
    ///
    /// [`WeightShape::group`]: super::weights::WeightShape::group
    ///
    /// # Panics
    /// When `x` is not whole rows, or `group` neither is `k` nor divides it in multiples of 8.
    #[allow(unsafe_code)]
    pub fn quantize_rows(&self, pool: &ThreadPool, x: &[f32], k: usize, group: usize, out: &mut QuantizedRows) {
        assert!(k > 0 && x.len().is_multiple_of(k), "activations are not whole rows");
        assert!(
            group == k || (group > 0 && group.is_multiple_of(8) && k.is_multiple_of(group)),
            "group size does not fit the rows"
        );
        let rows = x.len() / k;
        out.resize(rows, k, group, self.tile_rows());
        let (row_steps, groups) = (out.row_steps(), out.groups());
        let blocks = out.blocks();
        let steps = SharedMut::new(&mut out.steps);
        let starts = SharedMut::new(&mut out.starts);
        let quants = SharedMut::new(&mut out.quants);
        let block_rows = |(first, size): (usize, usize)| {
            // SAFETY: each block of rows is visited once, and its ranges belong to its rows alone.
            let (steps, starts, quants) = unsafe {
                (
                    steps.part(first * row_steps..(first + size) * row_steps),
                    starts.part(first * groups..(first + size) * groups),
                    quants.part(first..first + size),
                )
            };
            for (at, quant) in quants.iter_mut().enumerate() {
                let x = &x[(first + at) * k..][..k];
                *quant = self.run(QuantizeRow { x, group, at, stride: size, steps, starts });
            }
        };
        if rows * k < 32 * 1024 {
            blocks.for_each(block_rows);
        } else {
            let blocks: Vec<_> = blocks.collect();
            pool.parallel_for(blocks.len(), |i| block_rows(blocks[i]));
        }
    }
}
