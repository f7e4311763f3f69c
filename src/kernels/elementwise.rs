//! Functions of one or two tensors, element by element.

use super::math;
use super::set::KernelSet;
use super::simd::{Op, Simd};

/// A function of one number.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Unary {
    /// eˣ, within 0.7 ULP; 0 below −86.6.
    Exp,
    /// tanh, within 4 ULP.
    Tanh,
    /// 1 / (1 + e⁻ˣ), within 4 ULP.
    Sigmoid,
    /// x · sigmoid(x), within 4 ULP.
    Silu,
    /// ½x(1 + erf(x/√2)), absolute error within 2⁻²² · max(1, |x|).
    Gelu,
    /// GELU's tanh approximation, same error.
    GeluTanh,
    /// x².
    Square,
    /// √x.
    Sqrt,
    /// 1/√x: a square root and a division, each correctly rounded.
    Rsqrt,
    /// −x.
    Negate,
    /// |x|.
    Abs,
    /// x bounded by `min..=max`; a NaN stays one, as in PyTorch.
    Clamp {
        /// Lower bound.
        min: f32,
        /// Upper bound.
        max: f32,
    },
}

/// A function of two numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Binary {
    /// a + b
    Add,
    /// a − b
    Sub,
    /// a · b
    Mul,
    /// a / b
    Div,
    /// `if a > b { a } else { b }`
    Max,
    /// `if a < b { a } else { b }`
    Min,
    /// silu(a) · b
    SwiGlu,
}

/// `x` bounded by the two; NaN stays, because `max` and `min` take their second operand when they cannot compare.
#[inline(always)]
pub(crate) fn clamp<S: Simd>(s: S, x: S::F, [min, max]: [f32; 2]) -> S::F {
    s.min(s.splat(max), s.max(s.splat(min), x))
}

#[inline(always)]
fn unary<S: Simd>(s: S, f: Unary, x: S::F) -> S::F {
    match f {
        Unary::Exp => math::exp(s, x),
        Unary::Tanh => math::tanh(s, x),
        Unary::Sigmoid => math::sigmoid(s, x),
        Unary::Silu => math::silu(s, x),
        Unary::Gelu => math::gelu(s, x),
        Unary::GeluTanh => math::gelu_tanh(s, x),
        Unary::Square => s.mul(x, x),
        Unary::Sqrt => s.sqrt(x),
        Unary::Rsqrt => s.div(s.splat(1.0), s.sqrt(x)),
        Unary::Negate => s.mul(x, s.splat(-1.0)),
        Unary::Abs => s.abs(x),
        Unary::Clamp { min, max } => clamp(s, x, [min, max]),
    }
}

#[inline(always)]
fn binary<S: Simd>(s: S, f: Binary, a: S::F, b: S::F) -> S::F {
    match f {
        Binary::Add => s.add(a, b),
        Binary::Sub => s.sub(a, b),
        Binary::Mul => s.mul(a, b),
        Binary::Div => s.div(a, b),
        Binary::Max => s.max(a, b),
        Binary::Min => s.min(a, b),
        Binary::SwiGlu => s.mul(math::silu(s, a), b),
    }
}

struct MapInPlace<'a>(Unary, &'a mut [f32]);

impl Op for MapInPlace<'_> {
    type Out = ();
    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        let Self(f, x) = self;
        let (chunks, rest) = x.as_chunks_mut();
        for chunk in chunks {
            s.store(unary(s, f, s.load(chunk)), chunk);
        }
        if !rest.is_empty() {
            s.store_part(unary(s, f, s.load_part(rest, 0.0)), rest);
        }
    }
}

struct ZipInPlace<'a>(Binary, &'a mut [f32], &'a [f32]);

impl Op for ZipInPlace<'_> {
    type Out = ();
    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        let Self(f, a, b) = self;
        if let [b] = *b {
            let b = s.splat(b);
            let (chunks, rest) = a.as_chunks_mut();
            for chunk in chunks {
                s.store(binary(s, f, s.load(chunk), b), chunk);
            }
            if !rest.is_empty() {
                s.store_part(binary(s, f, s.load_part(rest, 1.0), b), rest);
            }
            return;
        }
        let (b_chunks, b_rest) = b.as_chunks();
        for row in a.chunks_exact_mut(b.len()) {
            let (chunks, rest) = row.as_chunks_mut();
            for (chunk, b) in chunks.iter_mut().zip(b_chunks) {
                s.store(binary(s, f, s.load(chunk), s.load(b)), chunk);
            }
            if !rest.is_empty() {
                s.store_part(binary(s, f, s.load_part(rest, 1.0), s.load_part(b_rest, 1.0)), rest);
            }
        }
    }
}

impl KernelSet {
    /// x ← f(x).
    pub fn map_in_place(&self, f: Unary, x: &mut [f32]) {
        self.run(MapInPlace(f, x));
    }

    /// out ← f(x).
    ///
    /// # Panics
    /// When the lengths differ.
    pub fn map(&self, f: Unary, x: &[f32], out: &mut [f32]) {
        out.copy_from_slice(x);
        self.map_in_place(f, out);
    }

    /// a ← f(a, b), where `b` is as long as `a`, or a row that is repeated, or one number.
    ///
    /// # Panics
    /// When the length of `a` is not a multiple of the length of `b`.
    pub fn zip_in_place(&self, f: Binary, a: &mut [f32], b: &[f32]) {
        assert!(!b.is_empty() && a.len().is_multiple_of(b.len()) || a.is_empty(), "operands do not broadcast");
        if !a.is_empty() {
            self.run(ZipInPlace(f, a, b));
        }
    }

    /// out ← f(a, b), with `b` as in [`zip_in_place`](Self::zip_in_place).
    ///
    /// # Panics
    /// When lengths do not fit.
    pub fn zip(&self, f: Binary, a: &[f32], b: &[f32], out: &mut [f32]) {
        out.copy_from_slice(a);
        self.zip_in_place(f, out, b);
    }
}
