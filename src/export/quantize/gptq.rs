//! Error feedback: what rounding one column of a weight loses is made up for by the columns that are rounded after it.
//!
//! With second moments `H = Σ x·xᵀ` of the operand, a weight row `w` and its rounding `q`, the loss is
//! `(w − q)ᵀ H (w − q) = |A (w − q)|²` for the lower triangular `A` with `AᵀA = H`. Row `i` of `A` sees the errors of
//! columns `0..=i` only, so columns are rounded one by one, each to the code nearest to
//! `wᵢ + Σⱼ₍ⱼ<ᵢ₎ Aᵢⱼ (wⱼ − qⱼ) / Aᵢᵢ`: GPTQ (Frantar et al., 2022) in the form of Babai's nearest plane, which needs no
//! inverse. Columns of large moments go first.

use super::QuantizeError;
use super::descent::{Descent, Loss};
use super::lanes::{Part, Tile, ZERO, add_products, dot};
use super::scale::{Grid, ScaleType};
use crate::kernels::simd::{Op, Simd};
use crate::kernels::{Clamp, KernelSet, PackError, PackedF32, ThreadPool, fast_cores};

/// Added to each square, as a share of itself: what a text of calibration says of how columns go together is believed
/// in part only.
const SHRINKAGE: f32 = 0.5;

/// Added to all squares, as a share of their mean: keeps columns that calibration hardly saw from being given up.
const DAMPING: f32 = 0.01;

/// Columns that are factored, or rounded, between two meetings with all the others.
const PANEL: usize = 32;

/// Times that every scale and code of a row is looked at again.
const SWEEPS: usize = 3;

/// Second moments of an operand over calibration tokens.
#[derive(Debug, Clone, PartialEq)]
pub struct Moments {
    columns: usize,
    sums: Vec<f32>, // (columns, columns), symmetric
}

impl Moments {
    /// Of the columns of `turned`, `[columns, tokens]`.
    ///
    /// # Errors
    /// Without columns or tokens.
    pub fn of(turned: &[f32], columns: usize) -> Result<Self, PackError> {
        let packed = PackedF32::pack(columns, turned.len() / columns.max(1), turned, None)?;
        let mut sums = vec![0.0; columns * columns];
        KernelSet::best().gemm(&ThreadPool::new(fast_cores()), turned, &packed, Clamp::NONE, &mut sums);
        Ok(Self { columns, sums })
    }

    /// Multiplies every product with `factor`.
    pub(super) fn scale(&mut self, factor: f32) {
        self.sums.iter_mut().for_each(|x| *x *= factor);
    }

    /// Adds those of other tokens of the same columns.
    pub(super) fn add(&mut self, other: &Self) {
        self.sums.iter_mut().zip(&other.sums).for_each(|(x, other)| *x += other);
    }

    /// How many columns the operand has.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Products of columns, `[columns, columns]`.
    pub(super) fn sums(&self) -> &[f32] {
        &self.sums
    }

    /// Products of column `i` with every column.
    pub(super) fn row(&self, i: usize) -> &[f32] {
        &self.sums[i * self.columns..][..self.columns]
    }

    /// Sum of squares of each column.
    pub fn squares(&self) -> impl Iterator<Item = f32> {
        self.sums.iter().copied().step_by(self.columns + 1)
    }
}

/// What the rounding of any row against one operand needs.
#[derive(Debug)]
pub struct Feedback {
    moments: Moments, // damped
    order: Vec<usize>,
    importance: Vec<f32>, // by column
    factor: Vec<f32>,     // (columns, columns), lower; each row divided by its diagonal, in `order`
}

impl Feedback {
    /// # Errors
    /// [`QuantizeError::NotPositive`] for moments that are not finite or not positive definite; names `what`.
    pub fn new(mut moments: Moments, what: &str) -> Result<Self, QuantizeError> {
        let fail = || QuantizeError::NotPositive { what: what.into() };
        let n = moments.columns;
        let mean = moments.squares().sum::<f32>() / n.max(1) as f32;
        let damping = if mean > 0.0 { DAMPING * mean } else { 1.0 };
        moments.sums.iter_mut().step_by(n + 1).for_each(|square| *square += SHRINKAGE * *square + damping);
        let importance: Vec<f32> = moments.squares().collect();
        if importance.iter().any(|x| !x.is_finite()) {
            return Err(fail());
        }
        let mut order: Vec<usize> = (0..n).collect();
        order.sort_by(|&a, &b| importance[b].total_cmp(&importance[a]));
        // The Cholesky factor of the matrix in reverse order, transposed and reversed, is the lower `A` with AᵀA = H.
        let mut reversed: Vec<f32> = Vec::with_capacity(n * n);
        for &row in order.iter().rev() {
            let row = moments.row(row);
            reversed.extend(order.iter().rev().map(|&column| row[column]));
        }
        cholesky(&mut reversed, n).ok_or_else(fail)?;
        let mut factor = vec![0.0; n * n];
        for (i, row) in factor.chunks_exact_mut(n.max(1)).enumerate() {
            let diagonal = reversed[(n - 1 - i) * (n + 1)];
            for (j, x) in row[..=i].iter_mut().enumerate() {
                *x = reversed[(n - 1 - j) * n + (n - 1 - i)] / diagonal;
            }
        }
        Ok(Self { moments, order, importance, factor })
    }

    /// How much the square of each column's error matters.
    pub(super) fn importance(&self) -> &[f32] {
        &self.importance
    }

    /// Rounds `tile` to codes of `grid`, and improves their scales on the way, which are stored as `stored`.
    pub(super) fn round(&self, tile: &mut Tile, grid: Grid, stored: ScaleType) {
        let kernels = KernelSet::best();
        kernels.run(Rounding { feedback: self, grid, tile });
        let loss = Loss { moments: &self.moments, grid, stored };
        kernels.run(Descent { loss, tile, sweeps: SWEEPS });
    }
}

struct Rounding<'a> {
    feedback: &'a Feedback,
    grid: Grid,
    tile: &'a mut Tile,
}

impl Op for Rounding<'_> {
    type Out = ();

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        let Self { feedback: Feedback { order, factor, .. }, grid, tile } = self;
        let n = order.len();
        let (min, max) = (s.splat(grid.min as f32), s.splat(grid.max as f32));
        let mut errors = vec![ZERO; n]; // in order
        for start in (0..n).step_by(PANEL) {
            let end = (start + PANEL).min(n);
            let mut sums = [ZERO; PANEL];
            add_products(s, Part::at(factor, n, [start, 0]), &errors[..start], &mut sums[..end - start]);
            for i in start..end {
                let (column, weights) = (order[i], &factor[i * n + start..][..i - start]);
                for half in 0..2 {
                    let real = s.load(&tile.reals[column][half]);
                    let mut target = s.add(real, s.load(&sums[i - start][half]));
                    for (&weight, error) in weights.iter().zip(&errors[start..i]) {
                        target = s.fma(s.splat(weight), s.load(&error[half]), target);
                    }
                    let scale = s.load(&tile.scales[column / tile.block][half]);
                    let code = s.round(s.min(s.max(s.div(target, scale), min), max));
                    s.store(code, &mut tile.codes[column][half]);
                    s.store(s.sub(real, s.mul(code, scale)), &mut errors[i][half]);
                }
            }
        }
    }
}

/// Replaces the lower half of a symmetric `[n, n]` by its Cholesky factor; `None` when it is not positive definite.
fn cholesky(matrix: &mut [f32], n: usize) -> Option<()> {
    let (kernels, threads) = (KernelSet::best(), fast_cores());
    for start in (0..n).step_by(PANEL) {
        let end = (start + PANEL).min(n);
        let (above, below) = matrix.split_at_mut(end * n);
        for i in start..end {
            let (before, row) = above.split_at_mut(i * n);
            let row = &mut row[..n];
            kernels.run(Eliminate { rows: row, panel: &before[start * n..], start, n });
            let square = row[i] - kernels.run(Square(&row[..i]));
            row[i] = Some(square.sqrt()).filter(|root| root.is_finite() && *root > 0.0)?;
        }
        let panel = &above[start * n..];
        let rows = below.len() / n.max(1);
        std::thread::scope(|scope| {
            for rows in below.chunks_mut((rows.div_ceil(threads) * n).max(1)) {
                scope.spawn(move || kernels.run(Eliminate { rows, panel, start, n }));
            }
        });
    }
    Some(())
}

/// Makes elements `start..` of each row those of the factor, as far as `panel`, the factor's rows from `start` on,
/// reaches.
struct Eliminate<'a> {
    rows: &'a mut [f32],
    panel: &'a [f32],
    start: usize,
    n: usize,
}

impl Op for Eliminate<'_> {
    type Out = ();

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        for row in self.rows.chunks_exact_mut(self.n) {
            for (j, other) in (self.start..).zip(self.panel.chunks_exact(self.n)) {
                row[j] = (row[j] - dot(s, &row[..j], &other[..j])) / other[j];
            }
        }
    }
}

struct Square<'a>(&'a [f32]);

impl Op for Square<'_> {
    type Out = f32;

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) -> f32 {
        dot(s, self.0, self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::lanes::{gather, scatter};
    use super::super::scale::{Group, ScaleMethod, find};
    use super::*;
    use crate::graph::testing::Rng;

    /// Columns that depend on each other, as those of a model do, `[columns, tokens]`.
    fn columns(rng: &mut Rng, [columns, tokens]: [usize; 2]) -> Vec<f32> {
        let causes = rng.reals(8 * tokens);
        let mut column = || {
            let mix = rng.reals(8);
            let of = |token: usize| (0..8).map(|k| mix[k] * causes[k * tokens + token]).sum::<f32>();
            (0..tokens).map(|token| of(token) + 0.1 * rng.real()).collect::<Vec<_>>()
        };
        (0..columns).flat_map(|_| column()).collect()
    }

    fn product(a: &[f32], b: &[f32]) -> f32 {
        a.iter().zip(b).map(|(a, b)| a * b).sum()
    }

    #[test]
    fn the_factor_gives_the_moments_back() {
        let (mut rng, n) = (Rng(5), 150);
        let moments = Moments::of(&columns(&mut rng, [n, 300]), n).unwrap();
        let mut factor = moments.sums.clone();
        (0..n).for_each(|i| factor[i * (n + 1)] += 1.0);
        cholesky(&mut factor, n).unwrap();
        for i in 0..n {
            for j in 0..=i {
                let product = product(&factor[i * n..][..=j], &factor[j * n..][..=j]);
                let wanted = moments.sums[i * n + j] + if i == j { 1.0 } else { 0.0 };
                assert!((product - wanted).abs() < 1e-2, "{i} {j}: {product}, not {wanted}");
            }
        }
    }

    #[test]
    fn moments_are_the_products_of_columns() {
        let (mut rng, n, tokens) = (Rng(6), 21, 35);
        let x = columns(&mut rng, [n, tokens]);
        let moments = Moments::of(&x, n).unwrap();
        for (i, j) in (0..n).flat_map(|i| (0..n).map(move |j| (i, j))) {
            let wanted = product(&x[i * tokens..][..tokens], &x[j * tokens..][..tokens]);
            assert!((moments.row(i)[j] - wanted).abs() < 1e-3, "{i} {j}");
        }
        assert!(Moments::of(&[], n).is_err());
    }

    #[test]
    fn feedback_lowers_the_error_of_the_product() {
        let (mut rng, n, rows, tokens) = (Rng(9), 64, 20, 200);
        let x = columns(&mut rng, [n, tokens]);
        let feedback = Feedback::new(Moments::of(&x, n).unwrap(), "w").unwrap();
        let (w, grid) = (rng.reals(rows * n), Grid::of_bits(4));
        let scale = |w| find(Group { reals: w, importance: &[] }, grid, ScaleType::F32, ScaleMethod::Search);
        let scales: Vec<f32> = w.chunks(n).map(scale).collect();
        let mut tile = Tile::new(&w, &scales, [n, n]);
        feedback.round(&mut tile, grid, ScaleType::F32);
        let (mut codes, mut better) = (vec![0.0; rows * n], vec![0.0; rows]);
        gather(&tile.codes, &mut codes);
        gather(&tile.scales, &mut better);
        let loss = |rounded: &dyn Fn(usize) -> f32| {
            let of_row = |row: usize| {
                let errors: Vec<f32> = (row * n..row * n + n).map(|i| w[i] - rounded(i)).collect();
                let of_token = |token| (0..n).map(|i| x[i * tokens + token] * errors[i]).sum::<f32>().powi(2);
                (0..tokens).map(of_token).sum::<f32>()
            };
            (0..rows).map(of_row).sum::<f32>()
        };
        let plain = loss(&|i| grid.code(w[i], scales[i / n]) * scales[i / n]);
        let fed = loss(&|i| codes[i] * better[i / n]);
        assert!(codes.iter().all(|code| (-8..=7).any(|whole| whole as f32 == *code)));
        assert!(fed < 0.3 * plain, "{fed} of {plain}");
    }

    #[test]
    fn moments_of_nothing_round_to_nearest_and_infinite_ones_are_refused() {
        let moments = Moments::of(&[0.0; 6], 3).unwrap();
        let feedback = Feedback::new(moments, "w").unwrap();
        let mut tile = Tile::new(&[0.9, -2.2, 7.3], &[1.0], [3, 3]);
        feedback.round(&mut tile, Grid::of_bits(4), ScaleType::F32);
        let mut codes = [0.0; 3];
        gather(&tile.codes, &mut codes);
        assert_eq!(codes, [1.0, -2.0, 7.0]);
        let error = Feedback::new(Moments::of(&[f32::INFINITY, 1.0], 2).unwrap(), "w").unwrap_err();
        assert_eq!(error, QuantizeError::NotPositive { what: "w".into() });
    }

    #[test]
    fn rows_of_a_tile_are_rounded_as_if_alone() {
        let (mut rng, n) = (Rng(13), 40);
        let feedback = Feedback::new(Moments::of(&columns(&mut rng, [n, 90]), n).unwrap(), "w").unwrap();
        let (w, scales) = (rng.reals(5 * n), vec![0.125; 5 * n / 8]);
        let rounded = |w: &[f32], scales: &[f32]| {
            let mut tile = Tile::new(w, scales, [n, 8]);
            feedback.round(&mut tile, Grid::of_bits(4), ScaleType::BF16);
            let mut codes = vec![0.0; w.len()];
            gather(&tile.codes, &mut codes);
            codes
        };
        let apart: Vec<f32> = w.chunks(n).zip(scales.chunks(n / 8)).flat_map(|(w, s)| rounded(w, s)).collect();
        assert_eq!(rounded(&w, &scales), apart);
        let mut again = vec![ZERO; n];
        scatter(&w, &mut again);
        let mut back = vec![0.0; w.len()];
        gather(&again, &mut back);
        assert_eq!(back, w);
    }
}
