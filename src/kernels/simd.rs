//! The one vector type that every kernel is written over: 16 lanes, whatever the machine. An algorithm is written once,
//! generically, in safe code; an instruction set only supplies these few operations. Lane count, order of operations,
//! fused multiply-add and the shape of reductions are the same everywhere, so results are equal to the bit on all sets.

use super::line::Line;

/// Eight consecutive int8 activations of one row, as two little-endian words of four.
pub type Step = [i32; 2];

/// An operation over a [`Simd`], to be run inside the instruction set's own compilation context by [`Simd::run`].
pub trait Op {
    /// What it gives back.
    type Out;
    /// The work. Implementations are `#[inline(always)]`, or they would be compiled without the instruction set.
    fn eval<S: Simd>(self, simd: S) -> Self::Out;
}

/// An instruction set. A value of an implementing type exists only on a machine that has it, which is what makes
/// the methods safe.
///
/// Float semantics: `max`/`min` give the second argument when either is NaN; nothing else departs from IEEE 754.
pub trait Simd: Copy + Send + Sync + 'static {
    /// 16 lanes of f32.
    type F: Copy;
    /// 16 lanes of i32.
    type I: Copy;

    /// Suffix of kernel names.
    const NAME: &'static str;
    /// Rows that the integer GEMM handles at once: 12, 8, 4 or 2, by the number of registers.
    const ROWS: usize;
    /// True when the set has 32 registers or more of 16 lanes, so that tiles may be large.
    const WIDE: bool;

    /// Runs `op` compiled for this instruction set.
    fn run<O: Op>(self, op: O) -> O::Out;

    /// Asks for the cache line that holds `*at` to be brought near.
    fn prefetch<T>(self, at: &T);
    /// All lanes `x`.
    fn splat(self, x: f32) -> Self::F;
    /// Lane i = `xs[i]`.
    fn load(self, xs: &[f32; 16]) -> Self::F;
    /// `out[i]` = lane i.
    fn store(self, v: Self::F, out: &mut [f32; 16]);
    /// bfloat16 widened.
    fn load_bf16(self, xs: &[u16; 16]) -> Self::F;
    /// IEEE half widened.
    fn load_f16(self, xs: &[u16; 16]) -> Self::F;
    /// int8 converted.
    fn load_i8(self, xs: &[i8; 16]) -> Self::F;

    /// a + b
    fn add(self, a: Self::F, b: Self::F) -> Self::F;
    /// a − b
    fn sub(self, a: Self::F, b: Self::F) -> Self::F;
    /// a · b
    fn mul(self, a: Self::F, b: Self::F) -> Self::F;
    /// a / b
    fn div(self, a: Self::F, b: Self::F) -> Self::F;
    /// a · b + c, rounded once.
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// `if a > b { a } else { b }`
    fn max(self, a: Self::F, b: Self::F) -> Self::F;
    /// `if a < b { a } else { b }`
    fn min(self, a: Self::F, b: Self::F) -> Self::F;
    /// √a
    fn sqrt(self, v: Self::F) -> Self::F;
    /// To the nearest integer, ties to even.
    fn round(self, v: Self::F) -> Self::F;
    /// Sign bit cleared.
    fn abs(self, v: Self::F) -> Self::F;
    /// Magnitude of `v`, sign bit of `sign`.
    fn copysign(self, v: Self::F, sign: Self::F) -> Self::F;
    /// `if a > b { yes } else { no }`
    fn select_gt(self, a: Self::F, b: Self::F, yes: Self::F, no: Self::F) -> Self::F;
    /// 2 to the power `n`, for integral `n` in −126..=127; unspecified bits elsewhere.
    fn exp2i(self, n: Self::F) -> Self::F;
    /// The lanes' sum: lane i + lane i+8, then i + i+4, i + i+2, i + i+1.
    fn reduce_add(self, v: Self::F) -> f32;
    /// Lane i of the result is `reduce_add(vs[i])`.
    #[inline(always)]
    fn reduce_add_each<const N: usize>(self, vs: &[Self::F; N]) -> [f32; N] {
        let mut out = [0.0; N];
        for (o, &v) in out.iter_mut().zip(vs) {
            *o = self.reduce_add(v);
        }
        out
    }

    /// i32 to f32, rounded to nearest even.
    fn to_f32(self, v: Self::I) -> Self::F;
    /// Rounded to the nearest integer (ties to even), which must lie in −128..=127.
    fn store_i8(self, v: Self::F, out: &mut [i8; 16]);

    /// Integer dot products of `M` rows with 16 columns of 4-bit weights: row m, column c gets Σ a·(w − 8) over all
    /// steps, exactly. Step s of the weights is one line: byte 4c+i holds the weights of column c for k = 8s+i (low
    /// nibble) and k = 8s+4+i (high nibble), as unsigned numbers. `start[m]` must be −8·Σa: sets that multiply the
    /// weights as they are begin with it.
    fn dot4<const M: usize>(self, start: [i32; M], lines: &[Line], a: &[[Step; M]]) -> [Self::I; M];
    /// The same for 8-bit weights, Σ a·(w − 128) with `start[m]` = −128·Σa. A step is two lines: byte 4c+i of the first
    /// is k = 8s+i, of the second k = 8s+4+i.
    fn dot8<const M: usize>(self, start: [i32; M], lines: &[[Line; 2]], a: &[[Step; M]]) -> [Self::I; M];

    /// Up to 16 numbers; lanes beyond are `fill`.
    #[inline(always)]
    fn load_part(self, xs: &[f32], fill: f32) -> Self::F {
        let mut buffer = [fill; 16];
        let n = xs.len().min(16);
        buffer[..n].copy_from_slice(&xs[..n]);
        self.load(&buffer)
    }
    /// The first lanes into up to 16 numbers.
    #[inline(always)]
    fn store_part(self, v: Self::F, out: &mut [f32]) {
        let mut buffer = [0.0; 16];
        self.store(v, &mut buffer);
        let n = out.len().min(16);
        out[..n].copy_from_slice(&buffer[..n]);
    }
}
