//! The scale of a group of weights: from their largest, or the one of least squared error.
//!
//! Scales are positive: XNNPACK and QNN take no others. With `min = −2^(bits−1)` one side of the grid reaches further
//! than the other, so even without clipping the best scale is often below `absmax / max`.

use crate::kernels::simd::{Op, Simd};
use half::bf16;

/// The codes that a weight may have; code 0 is real 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grid {
    /// Smallest.
    pub min: i32,
    /// Largest.
    pub max: i32,
}

impl Grid {
    /// All signed codes of `bits` bits.
    pub fn of_bits(bits: u8) -> Self {
        let half = 1 << (bits - 1);
        Self { min: -half, max: half - 1 }
    }

    /// The code nearest to `real`, a whole number; ties to even.
    pub fn code(self, real: f32, scale: f32) -> f32 {
        self.nearest(real / scale)
    }

    /// The code nearest to `steps`, as a real.
    #[inline(always)]
    fn nearest(self, steps: f32) -> f32 {
        // Adding 1.5 · 2^23 rounds to an integer, ties to even, and is vector code where `round_ties_even` is a call.
        const ROUND: f32 = 12_582_912.0;
        (steps.max(self.min as f32).min(self.max as f32) + ROUND) - ROUND
    }
}

/// How scales are stored, which they are rounded to before any code is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScaleType {
    /// f32
    F32,
    /// bf16
    BF16,
}

impl ScaleType {
    /// The nearest scale that can be stored and is a normal number above zero.
    pub fn round(self, scale: f32) -> f32 {
        let scale = scale.max(1e-30);
        match self {
            Self::F32 => scale,
            Self::BF16 => bf16::from_f32(scale).to_f32(),
        }
    }
}

/// How scales are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ScaleMethod {
    /// The largest magnitude gets the largest code, as torchao's 8da4w does: `absmax / ((max − min) / 2)`.
    AbsMax,
    /// Least squared error (weighted where importances are known) over a grid of scales, then refined by least squares.
    #[default]
    Search,
}

/// A group of weights that gets one scale.
#[derive(Debug, Clone, Copy)]
pub struct Group<'a> {
    /// The weights.
    pub reals: &'a [f32],
    /// How much the square of each one's error matters; empty: all alike.
    pub importance: &'a [f32],
}

/// Ratios of scales tried to the one from the largest magnitude, in 32nds: from strong clipping to none at all.
const RATIOS: std::ops::RangeInclusive<u32> = 18..=37;

/// Least-squares steps after the search.
const REFINEMENTS: usize = 2;

/// Finds the scales of rows of weights, compiled for an instruction set.
pub struct Search<'a> {
    /// The weights.
    pub reals: &'a [f32], // (rows, columns)
    /// How much the square of each column's error matters; empty: all alike.
    pub importance: &'a [f32],
    /// Elements of a row, and of a group.
    pub sizes: [usize; 2],
    /// Codes there are.
    pub grid: Grid,
    /// Scales there are.
    pub stored: ScaleType,
    /// What the scale is to be.
    pub method: ScaleMethod,
    /// Takes the scales.
    pub scales: &'a mut [f32], // (rows, groups)
}

impl Op for Search<'_> {
    type Out = ();

    #[inline(always)]
    fn eval<S: Simd>(self, _: S) {
        let [columns, size] = self.sizes;
        let groups = self.reals.chunks_exact(columns).flat_map(|row| row.chunks(size).enumerate());
        for ((index, reals), scale) in groups.zip(self.scales) {
            let importance = self.importance.get(index * size..).unwrap_or_default();
            let importance = &importance[..reals.len().min(importance.len())];
            *scale = find(Group { reals, importance }, self.grid, self.stored, self.method);
        }
    }
}

/// The scale for `group`.
#[inline(always)]
pub fn find(group: Group<'_>, grid: Grid, stored: ScaleType, method: ScaleMethod) -> f32 {
    let largest = group.reals.iter().fold(0f32, |largest, x| largest.max(x.abs()));
    if largest == 0.0 {
        return stored.round(1.0);
    }
    let half_range = (grid.max - grid.min) as f32 / 2.0;
    let plain = stored.round(largest / half_range);
    if method == ScaleMethod::AbsMax {
        return plain;
    }
    let mut best = (error(group, grid, plain), plain);
    for ratio in RATIOS {
        best = better(best, group, grid, stored.round(largest / half_range * ratio as f32 / 32.0));
    }
    for _ in 0..REFINEMENTS {
        match least_squares(group, grid, best.1) {
            Some(scale) => best = better(best, group, grid, stored.round(scale)),
            None => break,
        }
    }
    best.1
}

/// The better of a scale with its error and another scale.
#[inline(always)]
fn better(best: (f32, f32), group: Group<'_>, grid: Grid, scale: f32) -> (f32, f32) {
    let error = error(group, grid, scale);
    if error < best.0 { (error, scale) } else { best }
}

/// Weighted squared error of rounding `group` with `scale`.
#[inline(always)]
pub fn error(group: Group<'_>, grid: Grid, scale: f32) -> f32 {
    let inverse = 1.0 / scale;
    let square = |x: f32| {
        let difference = grid.nearest(x * inverse) * scale - x;
        difference * difference
    };
    // Summed in lanes, so that it becomes vector code.
    const LANES: usize = 16;
    let mut lanes = [0f32; LANES];
    if group.importance.is_empty() {
        let (whole, rest) = group.reals.as_chunks::<LANES>();
        whole.iter().for_each(|x| (0..LANES).for_each(|lane| lanes[lane] += square(x[lane])));
        return lanes.iter().sum::<f32>() + rest.iter().map(|&x| square(x)).sum::<f32>();
    }
    let ((reals, rest), (weights, rest_weights)) =
        (group.reals.as_chunks::<LANES>(), group.importance.as_chunks::<LANES>());
    for (x, weight) in reals.iter().zip(weights) {
        (0..LANES).for_each(|lane| lanes[lane] += weight[lane] * square(x[lane]));
    }
    lanes.iter().sum::<f32>() + rest.iter().zip(rest_weights).map(|(&x, weight)| weight * square(x)).sum::<f32>()
}

/// The best scale for the codes that `scale` gives; `None` where all are zero.
#[inline(always)]
fn least_squares(group: Group<'_>, grid: Grid, scale: f32) -> Option<f32> {
    let (mut product, mut square) = (0f64, 0f64);
    for (index, &x) in group.reals.iter().enumerate() {
        let weight = f64::from(group.importance.get(index).copied().unwrap_or(1.0));
        let code = f64::from(grid.code(x, scale));
        product += weight * code * f64::from(x);
        square += weight * code * code;
    }
    let best = product / square;
    (square > 0.0 && best > 0.0).then_some(best as f32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::testing::Rng;

    fn rows() -> Vec<Vec<f32>> {
        let mut rng = Rng(3);
        let mut rows: Vec<Vec<f32>> = (0..200).map(|_| rng.reals(32)).collect();
        // Heavy tails: cubes, and one outlier in a row.
        rows.extend((0..200).map(|_| rng.reals(32).into_iter().map(|x| x * x * x).collect::<Vec<_>>()));
        rows.extend((0..50).map(|_| {
            let mut row = rng.reals(32);
            row[7] = 6.0;
            row
        }));
        rows
    }

    #[test]
    fn search_is_never_worse_than_absmax_and_better_on_the_whole() {
        for bits in [2, 4, 8] {
            for stored in [ScaleType::F32, ScaleType::BF16] {
                let grid = Grid::of_bits(bits);
                let (mut plain, mut searched) = (0.0, 0.0);
                for row in rows() {
                    let group = Group { reals: &row, importance: &[] };
                    let of = |method| error(group, grid, find(group, grid, stored, method));
                    let (a, b) = (of(ScaleMethod::AbsMax), of(ScaleMethod::Search));
                    assert!(b <= a, "{bits} bits: {b} above {a}");
                    (plain, searched) = (plain + a, searched + b);
                }
                let most = [0.9, 0.97, 1.0][bits as usize / 4];
                assert!(searched < most * plain, "{bits} bits: {searched} of {plain}");
            }
        }
    }

    #[test]
    fn important_weights_are_kept_better() {
        let grid = Grid::of_bits(4);
        for row in rows().iter().skip(400) {
            let mut importance = vec![1.0; 32];
            importance[7] = 0.0;
            let rest: Vec<f32> = row.iter().enumerate().map(|(i, &x)| if i == 7 { 0.0 } else { x }).collect();
            let of = |importance| {
                let scale = find(Group { reals: row, importance }, grid, ScaleType::F32, ScaleMethod::Search);
                error(Group { reals: &rest, importance: &[] }, grid, scale)
            };
            assert!(of(&importance) < of(&[]));
        }
    }

    #[test]
    fn codes_are_the_nearest_and_ties_go_to_even() {
        let grid = Grid::of_bits(4);
        for steps in (-1000..=1000).map(|i| i as f32 / 80.0) {
            let plain = steps.round_ties_even().clamp(-8.0, 7.0);
            assert_eq!(grid.code(steps, 1.0), plain, "{steps}");
        }
    }

    #[test]
    fn scales_are_positive_normal_numbers() {
        for reals in [[0.0; 4], [1e-38, 0.0, -1e-39, 0.0], [-3e38, 3e38, 1.0, 0.0]] {
            for method in [ScaleMethod::AbsMax, ScaleMethod::Search] {
                for stored in [ScaleType::F32, ScaleType::BF16] {
                    let scale = find(Group { reals: &reals, importance: &[] }, Grid::of_bits(4), stored, method);
                    assert!(scale > 0.0 && scale.is_normal(), "{reals:?}: {scale}");
                }
            }
        }
    }
}
