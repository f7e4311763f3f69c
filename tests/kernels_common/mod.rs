//! What the kernel batteries share: repeatable random numbers and measures of error.
#![allow(dead_code)] // Each test program uses its own part.

use llama_runner::kernels::{KernelSet, ThreadPool};

/// Repeatable random numbers (splitmix64).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// In `low..high`.
    pub fn int(&mut self, low: usize, high: usize) -> usize {
        low + (self.next() % (high - low) as u64) as usize
    }

    /// In `low..high`.
    pub fn float(&mut self, low: f32, high: f32) -> f32 {
        low + (high - low) * ((self.next() >> 40) as f32 / (1u64 << 24) as f32)
    }

    pub fn floats(&mut self, n: usize, low: f32, high: f32) -> Vec<f32> {
        (0..n).map(|_| self.float(low, high)).collect()
    }

    pub fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.next() as u8).collect()
    }
}

/// Every set of this machine with a pool of its own size.
pub fn sets() -> Vec<(KernelSet, ThreadPool)> {
    KernelSet::all_available().iter().zip([2, 1, 3, 2]).map(|(&set, threads)| (set, ThreadPool::new(threads))).collect()
}

/// Panics unless `a` and `b` are the same bits; NaN equals NaN.
pub fn assert_same(what: &str, a: &[f32], b: &[f32]) {
    assert_eq!(a.len(), b.len(), "{what}");
    for (i, (x, y)) in a.iter().zip(b).enumerate() {
        assert!(x.to_bits() == y.to_bits() || x.is_nan() && y.is_nan(), "{what}: element {i}: {x:e} and {y:e}");
    }
}

/// Distance of `x` from `exact` in units of the last place of `exact` as f32; small for results both below the normal range.
pub fn ulps(x: f32, exact: f64) -> f64 {
    if x.is_nan() && exact.is_nan() || f64::from(x) == exact {
        return 0.0;
    }
    if exact.abs() > f64::from(f32::MAX) {
        return if x == exact.signum() as f32 * f32::INFINITY { 0.0 } else { f64::INFINITY };
    }
    let nearest = (exact.abs() as f32).max(f32::MIN_POSITIVE);
    let unit = f64::from(f32::from_bits(nearest.to_bits() + 1)) - f64::from(nearest);
    (f64::from(x) - exact).abs() / unit
}
