//! Transcendental functions on 16 lanes. Coefficients are minimax fits of our own; the errors given are the largest that
//! the battery finds against f64.

use super::simd::Simd;

#[inline(always)]
fn polynomial<S: Simd, const N: usize>(s: S, x: S::F, coefficients: [f32; N]) -> S::F {
    let mut y = s.splat(coefficients[0]);
    for &c in &coefficients[1..] {
        y = s.fma(y, x, s.splat(c));
    }
    y
}

/// eˣ within 0.7 ULP, so that it is nearly always what a correctly rounded function gives; 0 below −86.6, ∞ above 88.72.
#[inline(always)]
pub(crate) fn exp<S: Simd>(s: S, x: S::F) -> S::F {
    let one = s.splat(1.0);
    let n = s.round(s.mul(x, s.splat(std::f32::consts::LOG2_E)));
    // ln 2 in two parts, the first with few enough bits that n times it is exact.
    let near = s.fma(n, s.splat(-0.693_359_4), x);
    let r = s.fma(n, s.splat(2.121_944_4e-4), near);
    let r_rest = s.fma(n, s.splat(2.121_944_4e-4), s.sub(near, r));
    let q = polynomial(s, r, [1.392_625_1e-3, 8.363_233e-3, 4.166_655_4e-2, 0.166_665_77, 0.5]);
    let tail = s.fma(q, s.mul(r, r), r_rest);
    // 1 + r with what its rounding loses.
    let sum = s.add(one, r);
    let sum_rest = s.add(s.sub(one, sum), r);
    let y = s.add(sum, s.add(sum_rest, tail));
    // 2ⁿ as 2ⁿ⁻¹ · 2, since n reaches 128.
    let y = s.mul(s.mul(y, s.exp2i(s.sub(n, s.splat(1.0)))), s.splat(2.0));
    let y = s.select_gt(s.splat(-86.6), x, s.splat(0.0), y);
    s.select_gt(x, s.splat(88.722_84), s.splat(f32::INFINITY), y)
}

/// 1 / (1 + e⁻ˣ) within 4 ULP where the result is a normal number.
#[inline(always)]
pub(crate) fn sigmoid<S: Simd>(s: S, x: S::F) -> S::F {
    let one = s.splat(1.0);
    s.div(one, s.add(one, exp(s, s.sub(s.splat(0.0), x))))
}

/// x · sigmoid(x) within 4 ULP where the result is a normal number; −0 below −88.72. Rounded twice, as the two operators
/// are of which programs make it.
#[inline(always)]
pub(crate) fn silu<S: Simd>(s: S, x: S::F) -> S::F {
    s.mul(x, sigmoid(s, x))
}

/// tanh within 4 ULP.
#[inline(always)]
pub(crate) fn tanh<S: Simd>(s: S, x: S::F) -> S::F {
    let z = s.mul(x, x);
    let p = polynomial(s, z, [-6.045_165e-3, 2.096_133e-2, -5.384_326_3e-2, 0.133_327_19, -0.333_333_28]);
    let near_zero = s.fma(s.mul(p, z), x, x);
    let magnitude = s.abs(x);
    let e = exp(s, s.add(magnitude, magnitude));
    let far = s.sub(s.splat(1.0), s.div(s.splat(2.0), s.add(e, s.splat(1.0))));
    s.select_gt(magnitude, s.splat(0.625), s.copysign(far, x), near_zero)
}

/// The error function within 4 ULP.
#[inline(always)]
pub(crate) fn erf<S: Simd>(s: S, x: S::F) -> S::F {
    let z = s.mul(x, x);
    let near_zero = s.mul(
        x,
        polynomial(
            s,
            z,
            [
                7.875_875e-5,
                -8.016_864e-4,
                5.189_087_4e-3,
                -2.685_421_2e-2,
                0.112_835_95,
                -0.376_126_27,
                std::f32::consts::FRAC_2_SQRT_PI,
            ],
        ),
    );
    // log(1 − erf x) on 1..=4, beyond which the result is 1.
    let magnitude = s.min(s.abs(x), s.splat(4.0));
    let log_rest = polynomial(
        s,
        magnitude,
        [
            -7.582_682e-8,
            3.321_684_6e-6,
            -6.229_835e-5,
            6.858_367e-4,
            -5.064_947e-3,
            2.709_952_3e-2,
            -0.111_055_02,
            -0.630_953,
            -1.130_675_1,
            4.163_292_2e-4,
        ],
    );
    let far = s.sub(s.splat(1.0), exp(s, log_rest));
    s.select_gt(s.abs(x), s.splat(1.0), s.copysign(far, x), near_zero)
}

/// ½x(1 + erf(x/√2)), absolute error within 2⁻²² · max(1, |x|).
#[inline(always)]
pub(crate) fn gelu<S: Simd>(s: S, x: S::F) -> S::F {
    let half = s.mul(x, s.splat(0.5));
    s.fma(half, erf(s, s.mul(x, s.splat(std::f32::consts::FRAC_1_SQRT_2))), half)
}

/// ½x(1 + tanh(√(2/π)(x + 0.044715x³))), absolute error within 2⁻²² · max(1, |x|).
#[inline(always)]
pub(crate) fn gelu_tanh<S: Simd>(s: S, x: S::F) -> S::F {
    let half = s.mul(x, s.splat(0.5));
    let cubic = s.fma(s.mul(s.mul(x, x), x), s.splat(0.044_715), x);
    s.fma(
        half,
        tanh(s, s.mul(cubic, s.splat(std::f32::consts::FRAC_2_SQRT_PI * std::f32::consts::FRAC_1_SQRT_2))),
        half,
    )
}
