//! The instruction set that every machine has: plain arrays. It is the specification of what a lane operation means,
//! and it runs where no other set does.

use super::line::Line;
use super::simd::{Op, Simd, Step};
use half::{bf16, f16};

/// Plain Rust.
#[derive(Debug, Clone, Copy)]
pub struct Scalar;

#[inline(always)]
fn map(a: [f32; 16], f: impl Fn(f32) -> f32) -> [f32; 16] {
    let mut out = a;
    for lane in &mut out {
        *lane = f(*lane);
    }
    out
}

#[inline(always)]
fn zip(a: [f32; 16], b: [f32; 16], f: impl Fn(f32, f32) -> f32) -> [f32; 16] {
    let mut out = a;
    for (lane, y) in out.iter_mut().zip(b) {
        *lane = f(*lane, y);
    }
    out
}

impl Simd for Scalar {
    type F = [f32; 16];
    type I = [i32; 16];
    const NAME: &'static str = "scalar";
    const ROWS: usize = 4;
    const WIDE: bool = false;

    #[inline]
    fn run<O: Op>(self, op: O) -> O::Out {
        op.eval(self)
    }
    #[inline(always)]
    fn prefetch<T>(self, _: &T) {}
    #[inline(always)]
    fn splat(self, x: f32) -> Self::F {
        [x; 16]
    }
    #[inline(always)]
    fn load(self, xs: &[f32; 16]) -> Self::F {
        *xs
    }
    #[inline(always)]
    fn store(self, v: Self::F, out: &mut [f32; 16]) {
        *out = v;
    }
    #[inline(always)]
    fn load_bf16(self, xs: &[u16; 16]) -> Self::F {
        xs.map(|bits| bf16::from_bits(bits).to_f32())
    }
    #[inline(always)]
    fn load_f16(self, xs: &[u16; 16]) -> Self::F {
        xs.map(|bits| f16::from_bits(bits).to_f32())
    }
    #[inline(always)]
    fn load_i8(self, xs: &[i8; 16]) -> Self::F {
        xs.map(f32::from)
    }
    #[inline(always)]
    fn add(self, a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |x, y| x + y)
    }
    #[inline(always)]
    fn sub(self, a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |x, y| x - y)
    }
    #[inline(always)]
    fn mul(self, a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |x, y| x * y)
    }
    #[inline(always)]
    fn div(self, a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |x, y| x / y)
    }
    #[inline(always)]
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        let mut out = c;
        for i in 0..16 {
            out[i] = a[i].mul_add(b[i], c[i]);
        }
        out
    }
    #[inline(always)]
    fn max(self, a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |x, y| if x > y { x } else { y })
    }
    #[inline(always)]
    fn min(self, a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |x, y| if x < y { x } else { y })
    }
    #[inline(always)]
    fn sqrt(self, v: Self::F) -> Self::F {
        map(v, f32::sqrt)
    }
    #[inline(always)]
    fn round(self, v: Self::F) -> Self::F {
        map(v, f32::round_ties_even)
    }
    #[inline(always)]
    fn abs(self, v: Self::F) -> Self::F {
        map(v, f32::abs)
    }
    #[inline(always)]
    fn copysign(self, v: Self::F, sign: Self::F) -> Self::F {
        zip(v, sign, f32::copysign)
    }
    #[inline(always)]
    fn select_gt(self, a: Self::F, b: Self::F, yes: Self::F, no: Self::F) -> Self::F {
        let mut out = no;
        for i in 0..16 {
            if a[i] > b[i] {
                out[i] = yes[i];
            }
        }
        out
    }
    #[inline(always)]
    fn exp2i(self, n: Self::F) -> Self::F {
        map(n, |n| f32::from_bits((n as i32).wrapping_add(127).wrapping_shl(23) as u32))
    }
    #[inline(always)]
    fn reduce_add(self, mut v: Self::F) -> f32 {
        for half in [8, 4, 2, 1] {
            for i in 0..half {
                v[i] += v[i + half];
            }
        }
        v[0]
    }
    #[inline(always)]
    fn to_f32(self, v: Self::I) -> Self::F {
        v.map(|x| x as f32)
    }
    #[inline(always)]
    fn store_i8(self, v: Self::F, out: &mut [i8; 16]) {
        *out = v.map(|x| x.round_ties_even() as i32 as i8);
    }
    #[inline(always)]
    fn dot4<const M: usize>(self, _: [i32; M], lines: &[Line], a: &[[Step; M]]) -> [Self::I; M] {
        let mut sums = [[0; 16]; M];
        for (line, rows) in lines.iter().zip(a) {
            for (sums, step) in sums.iter_mut().zip(rows) {
                let [low, high] = step.map(i32::to_le_bytes);
                for (c, sum) in sums.iter_mut().enumerate() {
                    for i in 0..4 {
                        let byte = i32::from(line.0[4 * c + i]);
                        *sum +=
                            ((byte & 15) - 8) * i32::from(low[i] as i8) + ((byte >> 4) - 8) * i32::from(high[i] as i8);
                    }
                }
            }
        }
        sums
    }
    #[inline(always)]
    fn dot8<const M: usize>(self, _: [i32; M], lines: &[[Line; 2]], a: &[[Step; M]]) -> [Self::I; M] {
        let mut sums = [[0; 16]; M];
        for (pair, rows) in lines.iter().zip(a) {
            for (sums, step) in sums.iter_mut().zip(rows) {
                for (line, word) in pair.iter().zip(step.map(i32::to_le_bytes)) {
                    for (c, sum) in sums.iter_mut().enumerate() {
                        for (i, byte) in word.into_iter().enumerate() {
                            *sum += (i32::from(line.0[4 * c + i]) - 128) * i32::from(byte as i8);
                        }
                    }
                }
            }
        }
        sums
    }
}
