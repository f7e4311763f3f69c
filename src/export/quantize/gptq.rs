//! Error feedback: what rounding one column of a weight loses is made up for by the columns that are rounded after it.
//!
//! With second moments `H = Σ x·xᵀ` of the operand, a weight row `w` and its rounding `q`, the loss is
//! `(w − q)ᵀ H (w − q) = |A (w − q)|²` for the lower triangular `A` with `AᵀA = H`. Row `i` of `A` sees the errors of
//! columns `0..=i` only, so columns are rounded one by one, each to the code nearest to
//! `wᵢ + Σⱼ₍ⱼ<ᵢ₎ Aᵢⱼ (wⱼ − qⱼ) / Aᵢᵢ`: GPTQ (Frantar et al., 2022) in the form of Babai's nearest plane, which needs no
//! inverse. Columns of large moments go first.

use super::QuantizeError;
use super::descent::{Loss, Row};
use super::scale::{Grid, ScaleType};

/// Added to the diagonal, as a share of its mean: keeps directions that calibration hardly saw from being exploited.
const DAMPING: f32 = 0.05;

/// Columns that are factored between two meetings of the threads.
const PANEL: usize = 64;

/// Second moments of an operand over calibration tokens.
#[derive(Debug, Clone, PartialEq)]
pub struct Moments {
    columns: usize,
    sums: Vec<f32>, // (columns, columns), symmetric
}

impl Moments {
    /// None seen.
    pub fn new(columns: usize) -> Self {
        Self { columns, sums: vec![0.0; columns * columns] }
    }

    /// Adds `Σ x·xᵀ` of some tokens, `[columns, columns]`; a matrix of another size adds nothing.
    pub fn add(&mut self, products: &[f32]) {
        if products.len() == self.sums.len() {
            self.sums.iter_mut().zip(products).for_each(|(sum, x)| *sum += x);
        }
    }

    /// Adds the rows of `tokens`, `[tokens, columns]`.
    pub fn add_rows(&mut self, tokens: &[f32]) {
        for x in tokens.chunks_exact(self.columns.max(1)) {
            for (sums, &factor) in self.sums.chunks_exact_mut(self.columns).zip(x) {
                sums.iter_mut().zip(x).for_each(|(sum, x)| *sum += factor * x);
            }
        }
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
pub(super) struct Feedback<'a> {
    moments: &'a Moments,
    damping: f32,
    order: Vec<usize>,
    importance: Vec<f32>, // by column
    factor: Vec<f32>,     // (columns, columns), lower; each row divided by its diagonal, in `order`
}

impl<'a> Feedback<'a> {
    /// # Errors
    /// [`QuantizeError::NotPositive`] for moments that are not finite or not positive definite; names `what`.
    pub fn new(moments: &'a Moments, what: &str) -> Result<Self, QuantizeError> {
        let n = moments.columns;
        let mean = moments.squares().sum::<f32>() / n.max(1) as f32;
        let damping = if mean > 0.0 { DAMPING * mean } else { 1.0 };
        let importance: Vec<f32> = moments.squares().map(|square| square + damping).collect();
        if importance.iter().any(|x| !x.is_finite()) {
            return Err(QuantizeError::NotPositive { what: what.into() });
        }
        let mut order: Vec<usize> = (0..n).collect();
        order.sort_by(|&a, &b| importance[b].total_cmp(&importance[a]));
        let moment = |a: usize, b: usize| moments.sums[a * n + b] + if a == b { damping } else { 0.0 };
        // The Cholesky factor of the matrix in reverse order, transposed and reversed, is the lower `A` with AᵀA = H.
        let mut reversed: Vec<f32> = Vec::with_capacity(n * n);
        for &row in order.iter().rev() {
            reversed.extend(order.iter().rev().map(|&column| moment(row, column)));
        }
        cholesky(&mut reversed, n).ok_or_else(|| QuantizeError::NotPositive { what: what.into() })?;
        let mut factor = vec![0.0; n * n];
        for (i, row) in factor.chunks_exact_mut(n.max(1)).enumerate() {
            let diagonal = reversed[(n - 1 - i) * (n + 1)];
            for (j, x) in row[..=i].iter_mut().enumerate() {
                *x = reversed[(n - 1 - j) * n + (n - 1 - i)] / diagonal;
            }
        }
        Ok(Self { moments, damping, order, importance, factor })
    }

    /// How much the square of each column's error matters.
    pub fn importance(&self) -> &[f32] {
        &self.importance
    }

    /// Rounds `rows` to codes of `grid`, and improves their scales on the way, which are stored as `stored`.
    pub fn codes(&self, rows: &mut [Row<'_>], grid: Grid, stored: ScaleType) {
        let n = self.order.len();
        let mut errors = vec![0.0; rows.len() * n]; // (rows, columns in order)
        for (i, &column) in self.order.iter().enumerate() {
            let weights = &self.factor[i * n..][..i];
            for (row, errors) in rows.iter_mut().zip(errors.chunks_exact_mut(n)) {
                let (real, scale) = (row.reals[column], row.scales[column / row.block]);
                let code = grid.code(real + dot(weights, &errors[..i]), scale);
                errors[i] = real - code as f32 * scale;
                row.codes[column] = code as i8;
            }
        }
        let loss = Loss { moments: self.moments, damping: self.damping, grid, stored };
        rows.iter_mut().for_each(|row| loss.descend(row));
    }
}

/// In lanes, so that it becomes vector code.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    const LANES: usize = 16;
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    let mut lanes = [0f32; LANES];
    for (a, b) in a.iter().zip(b) {
        for lane in 0..LANES {
            lanes[lane] += a[lane] * b[lane];
        }
    }
    lanes.iter().sum::<f32>() + a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum::<f32>()
}

/// Replaces the lower half of a symmetric `[n, n]` by its Cholesky factor; `None` when it is not positive definite.
fn cholesky(matrix: &mut [f32], n: usize) -> Option<()> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    for start in (0..n).step_by(PANEL) {
        let end = (start + PANEL).min(n);
        let (above, below) = matrix.split_at_mut(end * n);
        for i in start..end {
            let (before, row) = above.split_at_mut(i * n);
            eliminate(row, &before[start * n..], [start, n]);
            let square = row[i] - dot(&row[..i], &row[..i]);
            row[i] = Some(square.sqrt()).filter(|root| root.is_finite() && *root > 0.0)?;
        }
        let panel = &above[start * n..];
        let rows = below.len() / n.max(1);
        std::thread::scope(|scope| {
            for part in below.chunks_mut((rows.div_ceil(threads) * n).max(1)) {
                scope.spawn(move || part.chunks_exact_mut(n).for_each(|row| eliminate(row, panel, [start, n])));
            }
        });
    }
    Some(())
}

/// Makes elements `start..` of a row those of the factor, as far as `panel`, the factor's rows from `start` on, reaches.
fn eliminate(row: &mut [f32], panel: &[f32], [start, n]: [usize; 2]) {
    for (j, other) in (start..).zip(panel.chunks_exact(n)) {
        row[j] = (row[j] - dot(&row[..j], &other[..j])) / other[j];
    }
}

#[cfg(test)]
mod tests {
    use super::super::scale::{Group, ScaleMethod, find};
    use super::*;
    use crate::graph::testing::Rng;

    /// Tokens whose columns depend on each other, as those of a model do.
    fn tokens(rng: &mut Rng, [count, columns]: [usize; 2]) -> Vec<f32> {
        let mix = rng.reals(columns * 8);
        let token = |rng: &mut Rng| {
            let causes = rng.reals(8);
            let of = |column: usize| dot(&causes, &mix[column * 8..][..8]);
            (0..columns).map(|column| of(column) + 0.1 * rng.real()).collect::<Vec<_>>()
        };
        (0..count).flat_map(|_| token(rng)).collect()
    }

    #[test]
    fn the_factor_gives_the_moments_back() {
        let (mut rng, n) = (Rng(5), 150);
        let mut moments = Moments::new(n);
        moments.add_rows(&tokens(&mut rng, [300, n]));
        let mut factor = moments.sums.clone();
        (0..n).for_each(|i| factor[i * (n + 1)] += 1.0);
        cholesky(&mut factor, n).unwrap();
        for i in 0..n {
            for j in 0..=i {
                let product = dot(&factor[i * n..][..=j], &factor[j * n..][..=j]);
                let wanted = moments.sums[i * n + j] + if i == j { 1.0 } else { 0.0 };
                assert!((product - wanted).abs() < 1e-2, "{i} {j}: {product}, not {wanted}");
            }
        }
    }

    #[test]
    fn feedback_lowers_the_error_of_the_product() {
        let (mut rng, n) = (Rng(9), 64);
        let x = tokens(&mut rng, [200, n]);
        let mut moments = Moments::new(n);
        moments.add_rows(&x);
        let feedback = Feedback::new(&moments, "w").unwrap();
        let (mut plain, mut fed) = (0.0, 0.0);
        for _ in 0..20 {
            let w = rng.reals(n);
            let grid = Grid::of_bits(4);
            let scale = find(Group { reals: &w, importance: &[] }, grid, ScaleType::F32, ScaleMethod::Search);
            let (mut codes, mut scales) = (vec![0; n], [scale]);
            let row = Row { reals: &w, codes: &mut codes, scales: &mut scales, block: n };
            feedback.codes(&mut [row], grid, ScaleType::F32);
            let loss = |code: &dyn Fn(usize) -> f32| -> f32 {
                let errors: Vec<f32> = (0..n).map(|i| w[i] - code(i)).collect();
                x.chunks(n).map(|x| dot(x, &errors).powi(2)).sum()
            };
            plain += loss(&|i| grid.code(w[i], scale) as f32 * scale);
            fed += loss(&|i| f32::from(codes[i]) * scales[0]);
        }
        assert!(fed < 0.3 * plain, "{fed} of {plain}");
    }

    #[test]
    fn moments_of_nothing_round_to_nearest_and_infinite_ones_are_refused() {
        let moments = Moments::new(3);
        let feedback = Feedback::new(&moments, "w").unwrap();
        let (mut codes, mut scales) = ([0; 3], [1.0]);
        let row = Row { reals: &[0.9, -2.2, 7.3], codes: &mut codes, scales: &mut scales, block: 3 };
        feedback.codes(&mut [row], Grid::of_bits(4), ScaleType::F32);
        assert_eq!(codes, [1, -2, 7]);
        let mut moments = Moments::new(2);
        moments.add_rows(&[f32::INFINITY, 1.0]);
        let error = Feedback::new(&moments, "w").unwrap_err();
        assert_eq!(error, QuantizeError::NotPositive { what: "w".into() });
    }
}
