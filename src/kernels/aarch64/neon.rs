//! NEON with the dot-product extension, and with the int8 matrix-multiply extension where the processor has it: a vector
//! is four registers.
#![allow(unsafe_code)]
#![allow(clippy::needless_range_loop, reason = "tiles of registers are indexed alike")]

use crate::kernels::line::Line;
use crate::kernels::simd::{Op, Simd, Step};
use std::arch::aarch64::*;
use std::arch::asm;
use std::arch::is_aarch64_feature_detected;

/// Proof that the machine has NEON and `dotprod`, and `i8mm` too when `I8MM`.
#[derive(Debug, Clone, Copy)]
pub struct Neon<const I8MM: bool>(());

impl<const I8MM: bool> Neon<I8MM> {
    /// The proof, if the machine and its operating system support the set.
    pub fn new() -> Option<Self> {
        (is_aarch64_feature_detected!("neon")
            && is_aarch64_feature_detected!("dotprod")
            && (!I8MM || is_aarch64_feature_detected!("i8mm")))
        .then_some(Self(()))
    }
}

#[target_feature(enable = "neon,dotprod")]
fn run_dotprod<O: Op, const I8MM: bool>(simd: Neon<I8MM>, op: O) -> O::Out {
    op.eval(simd)
}

#[target_feature(enable = "neon,dotprod,i8mm")]
fn run_i8mm<O: Op, const I8MM: bool>(simd: Neon<I8MM>, op: O) -> O::Out {
    op.eval(simd)
}

/// Calls an intrinsic; the caller holds a [`Neon`].
macro_rules! with {
    ($call:expr) => {{
        // SAFETY: a value of `Neon` exists only if the machine has every feature these instructions need, and memory
        // operands are references to arrays of at least the size that is read or written.
        unsafe { $call }
    }};
}

type F = [float32x4_t; 4];
type I = [int32x4_t; 4];

#[inline(always)]
fn each(f: impl Fn(usize) -> float32x4_t) -> F {
    [f(0), f(1), f(2), f(3)]
}

/// `acc` lane i += Σ of four products of the bytes of `w` lane i and `a` lane `LANE`.
///
/// # Safety
/// The machine must have `dotprod`.
#[inline(always)]
unsafe fn sdot<const LANE: i32>(mut acc: int32x4_t, w: int8x16_t, a: int8x16_t) -> int32x4_t {
    // The intrinsic is not stable; the directive makes the text assemble whatever the surrounding function is compiled for.
    // SAFETY: the caller's promise; registers only, no memory, no flags.
    unsafe {
        asm!(
            ".arch_extension dotprod",
            "sdot {acc:v}.4s, {w:v}.16b, {a:v}.4b[{lane}]",
            acc = inout(vreg) acc,
            w = in(vreg) w,
            a = in(vreg_low16) a,
            lane = const LANE,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    acc
}

/// `acc` (2×2, row major) += `a` (2 rows of 8) · `w` (2 columns of 8).
///
/// # Safety
/// The machine must have `i8mm`.
#[inline(always)]
unsafe fn smmla(mut acc: int32x4_t, a: int8x16_t, w: int8x16_t) -> int32x4_t {
    // SAFETY: the caller's promise; registers only, no memory, no flags.
    unsafe {
        asm!(
            ".arch_extension i8mm",
            "smmla {acc:v}.4s, {a:v}.16b, {w:v}.16b",
            acc = inout(vreg) acc,
            a = in(vreg) a,
            w = in(vreg) w,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    acc
}

/// The steps of rows `m` and `m + 1` (or of `m` alone, then zeros) as 16 bytes.
#[inline(always)]
fn two_rows<const M: usize>(rows: &[Step; M], m: usize) -> int8x16_t {
    let bytes: [i32; 4] = if m + 1 < M {
        [rows[m][0], rows[m][1], rows[m + 1][0], rows[m + 1][1]]
    } else {
        [rows[m][0], rows[m][1], 0, 0]
    };
    with!(vreinterpretq_s8_s32(vld1q_s32(bytes.as_ptr())))
}

/// The integer dot products of both weight widths. `load(step, quarter)` gives the weights of four columns as signed
/// bytes: `[k 0..4, k 4..8]`.
///
/// # Safety
/// The machine must have `dotprod`, and `i8mm` when `I8MM`.
#[inline(always)]
unsafe fn dot<const M: usize, const I8MM: bool>(
    start: [i32; M],
    a: &[[Step; M]],
    load: impl Fn(usize, usize) -> [int8x16_t; 2],
) -> [I; M] {
    // SAFETY: the caller's promise covers every instruction below; they work on registers.
    unsafe {
        let mut sums = [[vdupq_n_s32(0); 4]; M];
        for m in 0..M {
            sums[m] = [vdupq_n_s32(start[m]); 4];
        }
        if I8MM && M >= 2 {
            // While it runs, the tile of rows m, m+1 holds 2×2 blocks: sums[m][q] the columns 4q, 4q+1, sums[m+1][q] the next two.
            for m in (0..M - M % 2).step_by(2) {
                for q in 0..4 {
                    let block = vcombine_s32(vdup_n_s32(start[m]), vdup_n_s32(start[m + 1]));
                    (sums[m][q], sums[m + 1][q]) = (block, block);
                }
            }
            for (step, rows) in a.iter().enumerate() {
                for q in 0..4 {
                    let [low, high] = load(step, q).map(|w| vreinterpretq_s32_s8(w));
                    let (left, right) =
                        (vreinterpretq_s8_s32(vzip1q_s32(low, high)), vreinterpretq_s8_s32(vzip2q_s32(low, high)));
                    for m in (0..M - M % 2).step_by(2) {
                        let x = two_rows(rows, m);
                        sums[m][q] = smmla(sums[m][q], x, left);
                        sums[m + 1][q] = smmla(sums[m + 1][q], x, right);
                    }
                }
            }
            for m in (0..M - M % 2).step_by(2) {
                for q in 0..4 {
                    let (left, right) = (vreinterpretq_s64_s32(sums[m][q]), vreinterpretq_s64_s32(sums[m + 1][q]));
                    sums[m][q] = vreinterpretq_s32_s64(vzip1q_s64(left, right));
                    sums[m + 1][q] = vreinterpretq_s32_s64(vzip2q_s64(left, right));
                }
            }
        } else {
            for (step, rows) in a.iter().enumerate() {
                for q in 0..4 {
                    let [low, high] = load(step, q);
                    for m in (0..M).step_by(2) {
                        let x = two_rows(rows, m);
                        sums[m][q] = sdot::<1>(sdot::<0>(sums[m][q], low, x), high, x);
                        if m + 1 < M {
                            sums[m + 1][q] = sdot::<3>(sdot::<2>(sums[m + 1][q], low, x), high, x);
                        }
                    }
                }
            }
        }
        sums
    }
}

impl<const I8MM: bool> Simd for Neon<I8MM> {
    type F = F;
    type I = I;
    const NAME: &'static str = if I8MM { "neoni8mm" } else { "neondot" };
    const ROWS: usize = 4;
    const WIDE: bool = false;

    #[inline(always)]
    fn run<O: Op>(self, op: O) -> O::Out {
        // SAFETY: `self` proves that the machine has the features the chosen function is compiled for.
        unsafe { if I8MM { run_i8mm(self, op) } else { run_dotprod(self, op) } }
    }
    #[inline(always)]
    fn prefetch<T>(self, at: &T) {
        with!(
            asm!("prfm pldl1keep, [{at}]", at = in(reg) std::ptr::from_ref(at), options(nostack, preserves_flags, readonly))
        );
    }
    #[inline(always)]
    fn splat(self, x: f32) -> F {
        with!([vdupq_n_f32(x); 4])
    }
    #[inline(always)]
    fn load(self, xs: &[f32; 16]) -> F {
        each(|i| with!(vld1q_f32(xs.as_ptr().add(4 * i))))
    }
    #[inline(always)]
    fn store(self, v: F, out: &mut [f32; 16]) {
        for (i, v) in v.into_iter().enumerate() {
            with!(vst1q_f32(out.as_mut_ptr().add(4 * i), v));
        }
    }
    #[inline(always)]
    fn load_bf16(self, xs: &[u16; 16]) -> F {
        each(|i| with!(vreinterpretq_f32_u32(vshll_n_u16::<16>(vld1_u16(xs.as_ptr().add(4 * i))))))
    }
    #[inline(always)]
    fn load_f16(self, xs: &[u16; 16]) -> F {
        each(|i| {
            with!({
                let out: float32x4_t;
                // Base NEON; the intrinsic is not stable.
                asm!("fcvtl {out:v}.4s, {x:v}.4h", out = out(vreg) out, x = in(vreg) vld1_u16(xs.as_ptr().add(4 * i)),
                     options(pure, nomem, nostack, preserves_flags));
                out
            })
        })
    }
    #[inline(always)]
    fn load_i8(self, xs: &[i8; 16]) -> F {
        with!({
            let bytes = vld1q_s8(xs.as_ptr());
            let (low, high) = (vmovl_s8(vget_low_s8(bytes)), vmovl_high_s8(bytes));
            [
                vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))),
                vcvtq_f32_s32(vmovl_high_s16(low)),
                vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))),
                vcvtq_f32_s32(vmovl_high_s16(high)),
            ]
        })
    }
    #[inline(always)]
    fn add(self, a: F, b: F) -> F {
        each(|i| with!(vaddq_f32(a[i], b[i])))
    }
    #[inline(always)]
    fn sub(self, a: F, b: F) -> F {
        each(|i| with!(vsubq_f32(a[i], b[i])))
    }
    #[inline(always)]
    fn mul(self, a: F, b: F) -> F {
        each(|i| with!(vmulq_f32(a[i], b[i])))
    }
    #[inline(always)]
    fn div(self, a: F, b: F) -> F {
        each(|i| with!(vdivq_f32(a[i], b[i])))
    }
    #[inline(always)]
    fn fma(self, a: F, b: F, c: F) -> F {
        each(|i| with!(vfmaq_f32(c[i], a[i], b[i])))
    }
    #[inline(always)]
    fn max(self, a: F, b: F) -> F {
        self.select_gt(a, b, a, b)
    }
    #[inline(always)]
    fn min(self, a: F, b: F) -> F {
        self.select_gt(b, a, a, b)
    }
    #[inline(always)]
    fn sqrt(self, v: F) -> F {
        each(|i| with!(vsqrtq_f32(v[i])))
    }
    #[inline(always)]
    fn round(self, v: F) -> F {
        each(|i| with!(vrndnq_f32(v[i])))
    }
    #[inline(always)]
    fn abs(self, v: F) -> F {
        each(|i| with!(vabsq_f32(v[i])))
    }
    #[inline(always)]
    fn copysign(self, v: F, sign: F) -> F {
        each(|i| with!(vbslq_f32(vdupq_n_u32(1 << 31), sign[i], v[i])))
    }
    #[inline(always)]
    fn select_gt(self, a: F, b: F, yes: F, no: F) -> F {
        each(|i| with!(vbslq_f32(vcgtq_f32(a[i], b[i]), yes[i], no[i])))
    }
    #[inline(always)]
    fn exp2i(self, n: F) -> F {
        each(|i| {
            with!({
                let biased = vaddq_s32(vcvtnq_s32_f32(n[i]), vdupq_n_s32(127));
                vreinterpretq_f32_s32(vshlq_n_s32::<23>(biased))
            })
        })
    }
    #[inline(always)]
    fn reduce_add(self, v: F) -> f32 {
        with!({
            let four = vaddq_f32(vaddq_f32(v[0], v[2]), vaddq_f32(v[1], v[3]));
            let two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
            vget_lane_f32::<0>(two) + vget_lane_f32::<1>(two)
        })
    }
    #[inline(always)]
    fn to_f32(self, v: I) -> F {
        each(|i| with!(vcvtq_f32_s32(v[i])))
    }
    #[inline(always)]
    fn store_i8(self, v: F, out: &mut [i8; 16]) {
        with!({
            let words = v.map(|x| vmovn_s32(vcvtnq_s32_f32(x)));
            let low = vmovn_s16(vcombine_s16(words[0], words[1]));
            let high = vmovn_s16(vcombine_s16(words[2], words[3]));
            vst1q_s8(out.as_mut_ptr(), vcombine_s8(low, high));
        })
    }
    #[inline(always)]
    fn dot4<const M: usize>(self, start: [i32; M], lines: &[Line], a: &[[Step; M]]) -> [I; M] {
        let lines = &lines[..a.len()];
        with!(dot::<M, I8MM>(start, a, |step, quarter| {
            let w = vld1q_u8(lines[step].0.as_ptr().add(16 * quarter));
            [vreinterpretq_s8_u8(vandq_u8(w, vdupq_n_u8(15))), vreinterpretq_s8_u8(vshrq_n_u8::<4>(w))]
        }))
    }
    #[inline(always)]
    fn dot8<const M: usize>(self, _: [i32; M], lines: &[[Line; 2]], a: &[[Step; M]]) -> [I; M] {
        // Signed × signed is what the instructions do, and w − 128 fits a signed byte: nothing to correct.
        let lines = &lines[..a.len()];
        with!(dot::<M, I8MM>([0; M], a, |step, quarter| {
            [0, 1].map(|word| {
                let w = vld1q_u8(lines[step][word].0.as_ptr().add(16 * quarter));
                vreinterpretq_s8_u8(veorq_u8(w, vdupq_n_u8(128)))
            })
        }))
    }
}
