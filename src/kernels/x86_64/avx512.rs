//! AVX-512 with VNNI: a vector is one register, and `vpdpbusd` multiplies unsigned weights by signed activations as they are.
#![allow(unsafe_code)]

use crate::kernels::line::Line;
use crate::kernels::simd::{Op, Simd, Step};
use std::arch::x86_64::*;

/// Proof that the machine has AVX-512 F, BW, DQ, VL and VNNI (and therefore AVX2, FMA and F16C).
#[derive(Debug, Clone, Copy)]
pub struct Avx512(());

impl Avx512 {
    /// The proof, if the machine and its operating system support the set.
    pub fn new() -> Option<Self> {
        (is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512vnni")
            && is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c"))
        .then_some(Self(()))
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn run<O: Op>(simd: Avx512, op: O) -> O::Out {
    op.eval(simd)
}

/// Calls an intrinsic; the caller holds an [`Avx512`].
macro_rules! with {
    ($call:expr) => {{
        // SAFETY: a value of `Avx512` exists only if the machine has every feature these intrinsics need, and memory
        // operands are references to arrays of exactly the size that is read or written.
        unsafe { $call }
    }};
}

impl Simd for Avx512 {
    type F = __m512;
    type I = __m512i;
    const NAME: &'static str = "avx512vnni";
    const ROWS: usize = 12;
    const WIDE: bool = true;

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
        with!(_mm512_set1_ps(x))
    }
    #[inline(always)]
    fn load(self, xs: &[f32; 16]) -> Self::F {
        with!(_mm512_loadu_ps(xs.as_ptr()))
    }
    #[inline(always)]
    fn store(self, v: Self::F, out: &mut [f32; 16]) {
        with!(_mm512_storeu_ps(out.as_mut_ptr(), v))
    }
    #[inline(always)]
    fn load_bf16(self, xs: &[u16; 16]) -> Self::F {
        with!({
            let wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(xs.as_ptr().cast()));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide))
        })
    }
    #[inline(always)]
    fn load_f16(self, xs: &[u16; 16]) -> Self::F {
        with!(_mm512_cvtph_ps(_mm256_loadu_si256(xs.as_ptr().cast())))
    }
    #[inline(always)]
    fn load_i8(self, xs: &[i8; 16]) -> Self::F {
        with!(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(xs.as_ptr().cast()))))
    }
    #[inline(always)]
    fn add(self, a: Self::F, b: Self::F) -> Self::F {
        with!(_mm512_add_ps(a, b))
    }
    #[inline(always)]
    fn sub(self, a: Self::F, b: Self::F) -> Self::F {
        with!(_mm512_sub_ps(a, b))
    }
    #[inline(always)]
    fn mul(self, a: Self::F, b: Self::F) -> Self::F {
        with!(_mm512_mul_ps(a, b))
    }
    #[inline(always)]
    fn div(self, a: Self::F, b: Self::F) -> Self::F {
        with!(_mm512_div_ps(a, b))
    }
    #[inline(always)]
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        with!(_mm512_fmadd_ps(a, b, c))
    }
    #[inline(always)]
    fn max(self, a: Self::F, b: Self::F) -> Self::F {
        with!(_mm512_max_ps(a, b))
    }
    #[inline(always)]
    fn min(self, a: Self::F, b: Self::F) -> Self::F {
        with!(_mm512_min_ps(a, b))
    }
    #[inline(always)]
    fn sqrt(self, v: Self::F) -> Self::F {
        with!(_mm512_sqrt_ps(v))
    }
    #[inline(always)]
    fn round(self, v: Self::F) -> Self::F {
        with!(_mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(v))
    }
    #[inline(always)]
    fn abs(self, v: Self::F) -> Self::F {
        with!(_mm512_abs_ps(v))
    }
    #[inline(always)]
    fn copysign(self, v: Self::F, sign: Self::F) -> Self::F {
        // Truth table of `mask ? sign : v`, bit by bit.
        with!(_mm512_castsi512_ps(_mm512_ternarylogic_epi32::<0xca>(
            _mm512_set1_epi32(i32::MIN),
            _mm512_castps_si512(sign),
            _mm512_castps_si512(v)
        )))
    }
    #[inline(always)]
    fn select_gt(self, a: Self::F, b: Self::F, yes: Self::F, no: Self::F) -> Self::F {
        with!(_mm512_mask_blend_ps(_mm512_cmp_ps_mask::<_CMP_GT_OQ>(a, b), no, yes))
    }
    #[inline(always)]
    fn exp2i(self, n: Self::F) -> Self::F {
        with!({
            let biased = _mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127));
            _mm512_castsi512_ps(_mm512_slli_epi32::<23>(biased))
        })
    }
    #[inline(always)]
    fn reduce_add(self, v: Self::F) -> f32 {
        with!({
            let eight = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps::<1>(v));
            let four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
            let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
        })
    }
    #[inline(always)]
    fn reduce_add_each<const N: usize>(self, vs: &[Self::F; N]) -> [f32; N] {
        let mut out = [0.0; N];
        let (eights, rest) = vs.as_chunks::<8>();
        let (out_eights, out_rest) = out.as_chunks_mut::<8>();
        for (o, v) in out_eights.iter_mut().zip(eights) {
            with!({
                // Halves, quarters, eighths and sixteenths of eight vectors at a time, in the order `reduce_add` has.
                let halves =
                    |a, b| _mm512_add_ps(_mm512_shuffle_f32x4::<0x44>(a, b), _mm512_shuffle_f32x4::<0xee>(a, b));
                let quarters =
                    |a, b| _mm512_add_ps(_mm512_shuffle_f32x4::<0x88>(a, b), _mm512_shuffle_f32x4::<0xdd>(a, b));
                let first = quarters(halves(v[0], v[1]), halves(v[2], v[3]));
                let second = quarters(halves(v[4], v[5]), halves(v[6], v[7]));
                let (first, second) = (_mm512_castps_pd(first), _mm512_castps_pd(second));
                let (low, high) = (_mm512_unpacklo_pd(first, second), _mm512_unpackhi_pd(first, second));
                let eighths = _mm512_add_ps(_mm512_castpd_ps(low), _mm512_castpd_ps(high));
                let sums = _mm512_add_ps(eighths, _mm512_movehdup_ps(eighths));
                let order = _mm512_setr_epi32(0, 4, 8, 12, 2, 6, 10, 14, 0, 0, 0, 0, 0, 0, 0, 0);
                let sums = _mm512_castps512_ps256(_mm512_permutexvar_ps(order, sums));
                _mm256_storeu_ps(o.as_mut_ptr(), sums);
            });
        }
        for (o, &v) in out_rest.iter_mut().zip(rest) {
            *o = self.reduce_add(v);
        }
        out
    }
    #[inline(always)]
    fn to_f32(self, v: Self::I) -> Self::F {
        with!(_mm512_cvtepi32_ps(v))
    }
    #[inline(always)]
    fn store_i8(self, v: Self::F, out: &mut [i8; 16]) {
        with!(_mm_storeu_si128(out.as_mut_ptr().cast(), _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(v))))
    }
    #[inline(always)]
    fn dot4<const M: usize>(self, start: [i32; M], lines: &[Line], a: &[[Step; M]]) -> [Self::I; M] {
        with!({
            let nibble = _mm512_set1_epi8(15);
            let mut sums = [_mm512_setzero_si512(); M];
            for m in 0..M {
                sums[m] = _mm512_set1_epi32(start[m]);
            }
            if M <= 2 {
                // Few rows: the chain of dependent adds is the limit, so high nibbles get sums of their own, 16 times too large.
                let mut high_sums = [_mm512_setzero_si512(); M];
                for (line, rows) in lines.iter().zip(a) {
                    let w = _mm512_load_si512(line.0.as_ptr().cast());
                    let (low, high) = (_mm512_and_si512(w, nibble), _mm512_andnot_si512(nibble, w));
                    for m in 0..M {
                        sums[m] = _mm512_dpbusd_epi32(sums[m], low, _mm512_set1_epi32(rows[m][0]));
                        high_sums[m] = _mm512_dpbusd_epi32(high_sums[m], high, _mm512_set1_epi32(rows[m][1]));
                    }
                }
                for m in 0..M {
                    sums[m] = _mm512_add_epi32(sums[m], _mm512_srai_epi32::<4>(high_sums[m]));
                }
            } else {
                for (line, rows) in lines.iter().zip(a) {
                    let w = _mm512_load_si512(line.0.as_ptr().cast());
                    let low = _mm512_and_si512(w, nibble);
                    let high = _mm512_and_si512(_mm512_srli_epi16::<4>(w), nibble);
                    for m in 0..M {
                        sums[m] = _mm512_dpbusd_epi32(sums[m], low, _mm512_set1_epi32(rows[m][0]));
                    }
                    for m in 0..M {
                        sums[m] = _mm512_dpbusd_epi32(sums[m], high, _mm512_set1_epi32(rows[m][1]));
                    }
                }
            }
            sums
        })
    }
    #[inline(always)]
    fn dot8<const M: usize>(self, start: [i32; M], lines: &[[Line; 2]], a: &[[Step; M]]) -> [Self::I; M] {
        with!({
            let mut sums = [_mm512_setzero_si512(); M];
            let mut odd = [_mm512_setzero_si512(); M];
            for m in 0..M {
                sums[m] = _mm512_set1_epi32(start[m]);
            }
            for (pair, rows) in lines.iter().zip(a) {
                let first = _mm512_load_si512(pair[0].0.as_ptr().cast());
                let second = _mm512_load_si512(pair[1].0.as_ptr().cast());
                for m in 0..M {
                    sums[m] = _mm512_dpbusd_epi32(sums[m], first, _mm512_set1_epi32(rows[m][0]));
                }
                for m in 0..M {
                    if M <= 2 {
                        odd[m] = _mm512_dpbusd_epi32(odd[m], second, _mm512_set1_epi32(rows[m][1]));
                    } else {
                        sums[m] = _mm512_dpbusd_epi32(sums[m], second, _mm512_set1_epi32(rows[m][1]));
                    }
                }
            }
            if M <= 2 {
                for m in 0..M {
                    sums[m] = _mm512_add_epi32(sums[m], odd[m]);
                }
            }
            sums
        })
    }
}
