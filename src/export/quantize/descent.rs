//! Descent on the loss of a rounded row, one scale and one code at a time, from where error feedback has left it.
//!
//! The loss `eᵀ H e` of errors `e = w − q` is a quadratic of every scale and of every code with all others held, so
//! each step is exact, and none makes the loss larger.

use super::gptq::Moments;
use super::scale::{Grid, ScaleType};

/// Times that every scale and code of a row is looked at again.
const SWEEPS: usize = 2;

/// A row of weights and what it is rounded to.
pub(super) struct Row<'a> {
    /// The weights.
    pub reals: &'a [f32],
    /// Their codes.
    pub codes: &'a mut [i8],
    /// One for each block of codes.
    pub scales: &'a mut [f32],
    /// Codes that share a scale.
    pub block: usize,
}

/// How rows are rounded, and against which operand.
#[derive(Clone, Copy)]
pub(super) struct Loss<'a> {
    /// Of the operand.
    pub moments: &'a Moments,
    /// Added to their diagonal.
    pub damping: f32,
    /// Codes there are.
    pub grid: Grid,
    /// Scales there are.
    pub stored: ScaleType,
}

impl Loss<'_> {
    /// Improves scales and codes of `row`.
    pub fn descend(&self, row: &mut Row<'_>) {
        let error = |i: usize| row.reals[i] - f32::from(row.codes[i]) * row.scales[i / row.block];
        let mut errors: Vec<f32> = (0..row.reals.len()).map(error).collect();
        let mut gradient: Vec<f32> = errors.iter().map(|error| self.damping * error).collect(); // H·e
        for (i, &error) in errors.iter().enumerate().filter(|(_, error)| **error != 0.0) {
            add(&mut gradient, self.moments.row(i), error);
        }
        for _ in 0..SWEEPS {
            for index in 0..row.scales.len() {
                self.improve_scale(row, index, [&mut errors, &mut gradient]);
            }
            for i in 0..errors.len() {
                self.improve_code(row, i, [&mut errors, &mut gradient]);
            }
        }
    }

    fn improve_scale(&self, row: &mut Row<'_>, index: usize, [errors, gradient]: [&mut Vec<f32>; 2]) {
        let first = index * row.block;
        let codes = &row.codes[first..(first + row.block).min(errors.len())];
        let (mut slope, mut curvature) = (0f32, 0f32);
        for (i, &code) in codes.iter().enumerate().filter(|(_, code)| **code != 0) {
            let moments = &self.moments.row(first + i)[first..][..codes.len()];
            let product: f32 = moments.iter().zip(codes).map(|(h, &other)| h * f32::from(other)).sum();
            let code = f32::from(code);
            slope += code * gradient[first + i];
            curvature += code * (product + self.damping * code);
        }
        if curvature <= 0.0 {
            return;
        }
        let scale = self.stored.round(row.scales[index] + slope / curvature);
        let change = scale - row.scales[index];
        if change * (change * curvature - 2.0 * slope) >= 0.0 {
            return;
        }
        row.scales[index] = scale;
        for (i, &code) in codes.iter().enumerate().filter(|(_, code)| **code != 0) {
            self.shift(first + i, -change * f32::from(code), [errors, gradient]);
        }
    }

    fn improve_code(&self, row: &mut Row<'_>, i: usize, [errors, gradient]: [&mut Vec<f32>; 2]) {
        let scale = row.scales[i / row.block];
        let curvature = self.moments.row(i)[i] + self.damping;
        let best = row.reals[i] - (errors[i] - gradient[i] / curvature);
        let code = self.grid.code(best, scale) as i8;
        if code != row.codes[i] {
            let change = f32::from(row.codes[i]) - f32::from(code);
            row.codes[i] = code;
            self.shift(i, change * scale, [errors, gradient]);
        }
    }

    fn shift(&self, i: usize, change: f32, [errors, gradient]: [&mut Vec<f32>; 2]) {
        errors[i] += change;
        add(gradient, self.moments.row(i), change);
        gradient[i] += self.damping * change;
    }
}

fn add(sums: &mut [f32], row: &[f32], factor: f32) {
    sums.iter_mut().zip(row).for_each(|(sum, x)| *sum += factor * x);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::testing::Rng;

    #[test]
    fn descent_never_raises_the_loss_and_mostly_lowers_it() {
        let (mut rng, n) = (Rng(41), 48);
        let mut moments = Moments::new(n);
        let mix = rng.reals(n * 6);
        for _ in 0..200 {
            let causes = rng.reals(6);
            let of = |i: usize| (0..6).map(|k| causes[k] * mix[i * 6 + k]).sum::<f32>();
            let token: Vec<f32> = (0..n).map(|i| of(i) + 0.1 * rng.real()).collect();
            moments.add_rows(&token);
        }
        let grid = Grid::of_bits(4);
        let loss = Loss { moments: &moments, damping: 0.5, grid, stored: ScaleType::BF16 };
        let (mut before, mut after) = (0.0, 0.0);
        for _ in 0..30 {
            let reals = rng.reals(n);
            let mut scales = vec![ScaleType::BF16.round(1.0 / 7.5); n / 16];
            let mut codes: Vec<i8> = reals.iter().map(|&x| grid.code(x, scales[0]) as i8).collect();
            let of = |codes: &[i8], scales: &[f32]| {
                let errors: Vec<f32> = (0..n).map(|i| reals[i] - f32::from(codes[i]) * scales[i / 16]).collect();
                let product = |i: usize| moments.row(i).iter().zip(&errors).map(|(h, e)| h * e).sum::<f32>();
                (0..n).map(|i| errors[i] * (product(i) + 0.5 * errors[i])).sum::<f32>()
            };
            let plain = of(&codes, &scales);
            loss.descend(&mut Row { reals: &reals, codes: &mut codes, scales: &mut scales, block: 16 });
            let better = of(&codes, &scales);
            assert!(better <= plain * 1.001, "{better} after {plain}");
            assert!(scales.iter().all(|&scale| scale > 0.0 && ScaleType::BF16.round(scale) == scale));
            assert!(codes.iter().all(|&code| (grid.min..=grid.max).contains(&code.into())));
            (before, after) = (before + plain, after + better);
        }
        assert!(after < 0.5 * before, "{after} of {before}");
    }
}
