//! Descent on the loss of rounded rows, one scale and one code at a time, from where error feedback has left them.
//!
//! The loss `eᵀ H e` of errors `e = w − q` is a quadratic of every scale and of every code with all others held, so
//! each step is exact, and none makes the loss larger.

use super::gptq::Moments;
use super::lanes::{Lanes, Part, Tile, ZERO, add_products};
use super::scale::{Grid, ScaleType};
use crate::kernels::simd::{Op, Simd};
use std::ops::Range;

/// Codes that are looked at between two meetings with all the others.
const PANEL: usize = 32;

/// How rows are rounded, and against which operand.
#[derive(Clone, Copy)]
pub(super) struct Loss<'a> {
    /// Of the operand, damped.
    pub moments: &'a Moments,
    /// Codes there are.
    pub grid: Grid,
    /// Scales there are.
    pub stored: ScaleType,
}

/// Improves scales and codes of a tile, all of them this many times.
pub(super) struct Descent<'a> {
    pub loss: Loss<'a>,
    pub tile: &'a mut Tile,
    pub sweeps: usize,
}

impl Op for Descent<'_> {
    type Out = ();

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        let Self { loss, tile, sweeps } = self;
        let columns = tile.reals.len();
        let mut errors = vec![ZERO; columns];
        for (column, errors) in errors.iter_mut().enumerate() {
            for half in 0..2 {
                let [code, scale] =
                    [&tile.codes[column], &tile.scales[column / tile.block]].map(|lanes| s.load(&lanes[half]));
                s.store(s.sub(s.load(&tile.reals[column][half]), s.mul(code, scale)), &mut errors[half]);
            }
        }
        for _ in 0..sweeps {
            for (index, first) in (0..columns).step_by(tile.block).enumerate() {
                let range = first..(first + tile.block).min(columns);
                // H·e of the block's columns.
                let mut gradient = vec![ZERO; range.len()];
                add_products(s, loss.rows([first, 0]), &errors, &mut gradient);
                improve_scale(s, loss, tile, index, (&range, &mut errors[range.clone()], &mut gradient));
                for start in range.clone().step_by(PANEL) {
                    let end = (start + PANEL).min(range.end);
                    let (now, later) = gradient[start - first..].split_at_mut(end - start);
                    let mut changes = [ZERO; PANEL];
                    let changes = &mut changes[..end - start];
                    improve_codes(s, loss, tile, start, (&mut errors[start..end], now, changes));
                    add_products(s, loss.rows([end, start]), changes, later);
                }
            }
        }
    }
}

impl<'a> Loss<'a> {
    fn rows(&self, place: [usize; 2]) -> Part<'a> {
        Part::at(self.moments.sums(), self.moments.columns(), place)
    }
}

#[inline(always)]
fn improve_scale<S: Simd>(
    s: S,
    loss: Loss<'_>,
    tile: &mut Tile,
    index: usize,
    (range, errors, gradient): (&Range<usize>, &mut [Lanes], &mut [Lanes]),
) {
    let codes = &tile.codes[range.clone()];
    let mut products = vec![ZERO; codes.len()]; // H·codes, within the block
    add_products(s, loss.rows([range.start, range.start]), codes, &mut products);
    for half in 0..2 {
        let (mut slope, mut curvature) = (s.splat(0.0), s.splat(0.0));
        for ((code, gradient), product) in codes.iter().zip(&*gradient).zip(&products) {
            let code = s.load(&code[half]);
            slope = s.fma(code, s.load(&gradient[half]), slope);
            curvature = s.fma(code, s.load(&product[half]), curvature);
        }
        let (mut slopes, mut curvatures, mut changes) = ([0f32; 16], [0f32; 16], [0f32; 16]);
        s.store(slope, &mut slopes);
        s.store(curvature, &mut curvatures);
        for (lane, scale) in tile.scales[index][half].iter_mut().enumerate() {
            let (slope, curvature) = (slopes[lane], curvatures[lane]);
            let better = loss.stored.round(*scale + slope / curvature);
            let change = better - *scale;
            if curvature > 0.0 && change * (change * curvature - 2.0 * slope) < 0.0 {
                (*scale, changes[lane]) = (better, change);
            }
        }
        let change = s.sub(s.splat(0.0), s.load(&changes));
        for (place, (error, gradient)) in errors.iter_mut().zip(&mut *gradient).enumerate() {
            s.store(s.fma(change, s.load(&codes[place][half]), s.load(&error[half])), &mut error[half]);
            s.store(s.fma(change, s.load(&products[place][half]), s.load(&gradient[half])), &mut gradient[half]);
        }
    }
}

/// The codes from column `start` on; `changes` gets what that does to `errors`, and `gradient` follows.
#[inline(always)]
fn improve_codes<S: Simd>(
    s: S,
    loss: Loss<'_>,
    tile: &mut Tile,
    start: usize,
    (errors, gradient, changes): (&mut [Lanes], &mut [Lanes], &mut [Lanes]),
) {
    let (min, max) = (s.splat(loss.grid.min as f32), s.splat(loss.grid.max as f32));
    for place in 0..errors.len() {
        let column = start + place;
        let row = &loss.moments.row(column)[start..][..errors.len()];
        let inverse = s.splat(1.0 / row[place]);
        for half in 0..2 {
            let [old, scale] =
                [&tile.codes[column], &tile.scales[column / tile.block]].map(|lanes| s.load(&lanes[half]));
            let steps = s.div(s.mul(s.load(&gradient[place][half]), inverse), scale);
            let code = s.round(s.min(s.max(s.add(old, steps), min), max));
            let change = s.mul(s.sub(old, code), scale);
            s.store(code, &mut tile.codes[column][half]);
            s.store(change, &mut changes[place][half]);
            s.store(s.add(s.load(&errors[place][half]), change), &mut errors[place][half]);
            for (gradient, &factor) in gradient.iter_mut().zip(row).skip(place + 1) {
                s.store(s.fma(change, s.splat(factor), s.load(&gradient[half])), &mut gradient[half]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::lanes::{ROWS, gather};
    use super::*;
    use crate::graph::testing::Rng;
    use crate::kernels::KernelSet;

    /// Columns of few causes, `[columns, tokens]`, and noise.
    fn moments(rng: &mut Rng, n: usize) -> Moments {
        let (tokens, causes) = (200, rng.reals(6 * 200));
        let mut column = || {
            let mix = rng.reals(6);
            let of = |token: usize| (0..6).map(|k| mix[k] * causes[k * tokens + token]).sum::<f32>();
            (0..tokens).map(|token| of(token) + 0.1 * rng.real()).collect::<Vec<_>>()
        };
        let turned: Vec<f32> = (0..n).flat_map(|_| column()).collect();
        Moments::of(&turned, n).unwrap()
    }

    #[test]
    fn descent_never_raises_the_loss_and_mostly_lowers_it() {
        let (mut rng, n) = (Rng(41), 96);
        let moments = moments(&mut rng, n);
        let grid = Grid::of_bits(4);
        for block in [16, 48, 96] {
            let loss = Loss { moments: &moments, grid, stored: ScaleType::BF16 };
            let reals = rng.reals(ROWS * n);
            let plain = vec![ScaleType::BF16.round(1.0 / 7.5); ROWS * n / block];
            let mut tile = Tile::new(&reals, &plain, [n, block]);
            let nearest: Vec<f32> = reals.iter().map(|&x| grid.code(x, plain[0])).collect();
            super::super::lanes::scatter(&nearest, &mut tile.codes);
            let losses = |codes: &[f32], scales: &[f32]| -> Vec<f32> {
                let of_row = |row: usize| {
                    let error = |i: usize| {
                        let at = row * n + i;
                        reals[at] - codes[at] * scales[at / block]
                    };
                    let errors: Vec<f32> = (0..n).map(error).collect();
                    let product = |i: usize| moments.row(i).iter().zip(&errors).map(|(h, e)| h * e).sum::<f32>();
                    (0..n).map(|i| errors[i] * product(i)).sum()
                };
                (0..ROWS).map(of_row).collect()
            };
            let before = losses(&nearest, &plain);
            KernelSet::best().run(Descent { loss, tile: &mut tile, sweeps: 2 });
            let (mut codes, mut scales) = (nearest.clone(), plain.clone());
            gather(&tile.codes, &mut codes);
            gather(&tile.scales, &mut scales);
            let after = losses(&codes, &scales);
            assert!(before.iter().zip(&after).all(|(before, after)| *after <= before * 1.001), "{before:?} {after:?}");
            assert!(after.iter().sum::<f32>() < 0.5 * before.iter().sum::<f32>(), "{block}: {before:?} {after:?}");
            assert!(scales.iter().all(|&scale| scale > 0.0 && ScaleType::BF16.round(scale) == scale));
            assert!(codes.iter().all(|&code| (grid.min..=grid.max).any(|known| known as f32 == code)));
        }
    }
}
