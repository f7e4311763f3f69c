//! Reductions of a row to one number: extremes and the position of the largest.

use super::set::KernelSet;
use super::simd::{Op, Simd};

/// Smallest and largest number of `x`, NaN ignored; (∞, −∞) when there is none.
#[inline(always)]
pub(crate) fn min_max<S: Simd>(s: S, x: &[f32]) -> (f32, f32) {
    let (mut low, mut high) = (s.splat(f32::INFINITY), s.splat(f32::NEG_INFINITY));
    let (chunks, rest) = x.as_chunks();
    for chunk in chunks {
        let v = s.load(chunk);
        (low, high) = (s.min(v, low), s.max(v, high));
    }
    if !rest.is_empty() {
        let v = s.load_part(rest, rest[0]);
        (low, high) = (s.min(v, low), s.max(v, high));
    }
    let (mut lows, mut highs) = ([0.0; 16], [0.0; 16]);
    s.store(low, &mut lows);
    s.store(high, &mut highs);
    (lows.into_iter().fold(f32::INFINITY, f32::min), highs.into_iter().fold(f32::NEG_INFINITY, f32::max))
}

struct MinMax<'a>(&'a [f32]);

impl Op for MinMax<'_> {
    type Out = (f32, f32);
    #[inline(always)]
    fn eval<S: Simd>(self, s: S) -> (f32, f32) {
        min_max(s, self.0)
    }
}

struct Argmax<'a>(&'a [f32]);

impl Op for Argmax<'_> {
    type Out = Option<usize>;
    #[inline(always)]
    fn eval<S: Simd>(self, s: S) -> Option<usize> {
        const BLOCK: usize = 1024;
        let mut best: Option<(usize, f32)> = None;
        for (i, block) in self.0.chunks(BLOCK).enumerate() {
            let (_, max) = min_max(s, block);
            if best.is_none_or(|(_, value)| max > value) {
                // −∞ may stand for "only NaN here"; then no position is found and the block is passed over.
                if let Some(at) = block.iter().position(|&x| x == max) {
                    best = Some((i * BLOCK + at, max));
                }
            }
        }
        best.map(|(at, _)| at)
    }
}

impl KernelSet {
    /// Smallest and largest number of `x`, NaN ignored; (∞, −∞) when there is none.
    pub fn min_max(&self, x: &[f32]) -> (f32, f32) {
        self.run(MinMax(x))
    }

    /// Position of the largest number, the first of equals, NaN ignored; `None` when there is none.
    pub fn argmax(&self, x: &[f32]) -> Option<usize> {
        self.run(Argmax(x))
    }
}
