//! AVX2 with FMA: a vector is two registers. `vpmaddubsw` saturates at 16 bits, so it is only ever fed 4-bit weights, and
//! its sums are widened before they can reach the limit.
#![allow(unsafe_code)]
#![allow(clippy::needless_range_loop, reason = "tiles of registers are indexed alike")]

use crate::kernels::line::Line;
use crate::kernels::simd::{Op, Simd, Step};
use std::arch::x86_64::*;

/// Proof that the machine has AVX2, FMA and F16C.
#[derive(Debug, Clone, Copy)]
pub struct Avx2(());

impl Avx2 {
    /// The proof, if the machine and its operating system support the set.
    pub fn new() -> Option<Self> {
        (is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c"))
            .then_some(Self(()))
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn run<O: Op>(simd: Avx2, op: O) -> O::Out {
    op.eval(simd)
}

/// Calls an intrinsic; the caller holds an [`Avx2`].
macro_rules! with {
    ($call:expr) => {{
        // SAFETY: a value of `Avx2` exists only if the machine has every feature these intrinsics need, and memory
        // operands are references to arrays of at least the size that is read or written.
        unsafe { $call }
    }};
}

/// Steps of 8 activations whose products fit 16 bits: 4 · 2 words · 2 products of at most 15 · 128 = 30 720.
const STEPS_IN_16_BITS: usize = 4;

#[inline(always)]
fn both(f: impl Fn(usize) -> __m256) -> [__m256; 2] {
    [f(0), f(1)]
}

impl Simd for Avx2 {
    type F = [__m256; 2];
    type I = [__m256i; 2];
    const NAME: &'static str = "avx2";
    const ROWS: usize = 4;
    const WIDE: bool = false;

    #[inline(always)]
    fn run<O: Op>(self, op: O) -> O::Out {
        // SAFETY: `self` proves that the machine has the features `run` is compiled for.
        unsafe { run(self, op) }
    }
    #[inline(always)]
    fn prefetch<T>(self, at: &T) {
        with!(_mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(at).cast()))
    }
    #[inline(always)]
    fn splat(self, x: f32) -> Self::F {
        with!([_mm256_set1_ps(x); 2])
    }
    #[inline(always)]
    fn load(self, xs: &[f32; 16]) -> Self::F {
        with!([_mm256_loadu_ps(xs.as_ptr()), _mm256_loadu_ps(xs.as_ptr().add(8))])
    }
    #[inline(always)]
    fn store(self, v: Self::F, out: &mut [f32; 16]) {
        with!({
            _mm256_storeu_ps(out.as_mut_ptr(), v[0]);
            _mm256_storeu_ps(out.as_mut_ptr().add(8), v[1]);
        })
    }
    #[inline(always)]
    fn load_bf16(self, xs: &[u16; 16]) -> Self::F {
        both(|i| {
            with!({
                let wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(xs.as_ptr().add(8 * i).cast()));
                _mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide))
            })
        })
    }
    #[inline(always)]
    fn load_f16(self, xs: &[u16; 16]) -> Self::F {
        both(|i| with!(_mm256_cvtph_ps(_mm_loadu_si128(xs.as_ptr().add(8 * i).cast()))))
    }
    #[inline(always)]
    fn load_i8(self, xs: &[i8; 16]) -> Self::F {
        both(|i| with!(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(xs.as_ptr().add(8 * i).cast())))))
    }
    #[inline(always)]
    fn add(self, a: Self::F, b: Self::F) -> Self::F {
        both(|i| with!(_mm256_add_ps(a[i], b[i])))
    }
    #[inline(always)]
    fn sub(self, a: Self::F, b: Self::F) -> Self::F {
        both(|i| with!(_mm256_sub_ps(a[i], b[i])))
    }
    #[inline(always)]
    fn mul(self, a: Self::F, b: Self::F) -> Self::F {
        both(|i| with!(_mm256_mul_ps(a[i], b[i])))
    }
    #[inline(always)]
    fn div(self, a: Self::F, b: Self::F) -> Self::F {
        both(|i| with!(_mm256_div_ps(a[i], b[i])))
    }
    #[inline(always)]
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        both(|i| with!(_mm256_fmadd_ps(a[i], b[i], c[i])))
    }
    #[inline(always)]
    fn max(self, a: Self::F, b: Self::F) -> Self::F {
        both(|i| with!(_mm256_max_ps(a[i], b[i])))
    }
    #[inline(always)]
    fn min(self, a: Self::F, b: Self::F) -> Self::F {
        both(|i| with!(_mm256_min_ps(a[i], b[i])))
    }
    #[inline(always)]
    fn sqrt(self, v: Self::F) -> Self::F {
        both(|i| with!(_mm256_sqrt_ps(v[i])))
    }
    #[inline(always)]
    fn round(self, v: Self::F) -> Self::F {
        both(|i| with!(_mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(v[i])))
    }
    #[inline(always)]
    fn abs(self, v: Self::F) -> Self::F {
        both(|i| with!(_mm256_andnot_ps(_mm256_set1_ps(-0.0), v[i])))
    }
    #[inline(always)]
    fn copysign(self, v: Self::F, sign: Self::F) -> Self::F {
        both(|i| {
            with!({
                let mask = _mm256_set1_ps(-0.0);
                _mm256_or_ps(_mm256_andnot_ps(mask, v[i]), _mm256_and_ps(mask, sign[i]))
            })
        })
    }
    #[inline(always)]
    fn select_gt(self, a: Self::F, b: Self::F, yes: Self::F, no: Self::F) -> Self::F {
        both(|i| with!(_mm256_blendv_ps(no[i], yes[i], _mm256_cmp_ps::<_CMP_GT_OQ>(a[i], b[i]))))
    }
    #[inline(always)]
    fn exp2i(self, n: Self::F) -> Self::F {
        both(|i| {
            with!({
                let biased = _mm256_add_epi32(_mm256_cvtps_epi32(n[i]), _mm256_set1_epi32(127));
                _mm256_castsi256_ps(_mm256_slli_epi32::<23>(biased))
            })
        })
    }
    #[inline(always)]
    fn reduce_add(self, v: Self::F) -> f32 {
        with!({
            let eight = _mm256_add_ps(v[0], v[1]);
            let four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
            let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
        })
    }
    #[inline(always)]
    fn to_f32(self, v: Self::I) -> Self::F {
        both(|i| with!(_mm256_cvtepi32_ps(v[i])))
    }
    #[inline(always)]
    fn store_i8(self, v: Self::F, out: &mut [i8; 16]) {
        with!({
            let (low, high) = (_mm256_cvtps_epi32(v[0]), _mm256_cvtps_epi32(v[1]));
            let halves =
                [low, high].map(|x| _mm_packs_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256::<1>(x)));
            _mm_storeu_si128(out.as_mut_ptr().cast(), _mm_packs_epi16(halves[0], halves[1]));
        })
    }
    #[inline(always)]
    fn dot4<const M: usize>(self, start: [i32; M], lines: &[Line], a: &[[Step; M]]) -> [Self::I; M] {
        with!({
            let nibble = _mm256_set1_epi8(15);
            let one = _mm256_set1_epi16(1);
            let mut sums = [[_mm256_setzero_si256(); 2]; M];
            for m in 0..M {
                sums[m] = [_mm256_set1_epi32(start[m]); 2];
            }
            for (lines, a) in lines.chunks(STEPS_IN_16_BITS).zip(a.chunks(STEPS_IN_16_BITS)) {
                let mut short = [[_mm256_setzero_si256(); 2]; M];
                for (line, rows) in lines.iter().zip(a) {
                    for half in 0..2 {
                        let w = _mm256_load_si256(line.0.as_ptr().add(32 * half).cast());
                        let low = _mm256_and_si256(w, nibble);
                        let high = _mm256_and_si256(_mm256_srli_epi16::<4>(w), nibble);
                        for m in 0..M {
                            let first = _mm256_maddubs_epi16(low, _mm256_set1_epi32(rows[m][0]));
                            let second = _mm256_maddubs_epi16(high, _mm256_set1_epi32(rows[m][1]));
                            short[m][half] = _mm256_add_epi16(short[m][half], _mm256_add_epi16(first, second));
                        }
                    }
                }
                for m in 0..M {
                    for half in 0..2 {
                        sums[m][half] = _mm256_add_epi32(sums[m][half], _mm256_madd_epi16(short[m][half], one));
                    }
                }
            }
            sums
        })
    }
    #[inline(always)]
    fn dot8<const M: usize>(self, start: [i32; M], lines: &[[Line; 2]], a: &[[Step; M]]) -> [Self::I; M] {
        with!({
            let nibble = _mm256_set1_epi8(15);
            let (one, sixteen) = (_mm256_set1_epi16(1), _mm256_set1_epi16(16));
            let mut sums = [[_mm256_setzero_si256(); 2]; M];
            for m in 0..M {
                sums[m] = [_mm256_set1_epi32(start[m]); 2];
            }
            for half in 0..2 {
                for (lines, a) in lines.chunks(STEPS_IN_16_BITS).zip(a.chunks(STEPS_IN_16_BITS)) {
                    // The two nibbles of a weight are two 4-bit weights, the second worth sixteen times as much.
                    let mut low = [_mm256_setzero_si256(); M];
                    let mut high = [_mm256_setzero_si256(); M];
                    for (pair, rows) in lines.iter().zip(a) {
                        for word in 0..2 {
                            let w = _mm256_load_si256(pair[word].0.as_ptr().add(32 * half).cast());
                            let wl = _mm256_and_si256(w, nibble);
                            let wh = _mm256_and_si256(_mm256_srli_epi16::<4>(w), nibble);
                            for m in 0..M {
                                let x = _mm256_set1_epi32(rows[m][word]);
                                low[m] = _mm256_add_epi16(low[m], _mm256_maddubs_epi16(wl, x));
                                high[m] = _mm256_add_epi16(high[m], _mm256_maddubs_epi16(wh, x));
                            }
                        }
                    }
                    for m in 0..M {
                        let wide =
                            _mm256_add_epi32(_mm256_madd_epi16(low[m], one), _mm256_madd_epi16(high[m], sixteen));
                        sums[m][half] = _mm256_add_epi32(sums[m][half], wide);
                    }
                }
            }
            sums
        })
    }
}
