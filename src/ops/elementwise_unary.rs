//! `aten::` functions of each element by itself: rsqrt, sigmoid, exp and the like, gelu, neg, abs, relu.

use super::error::OpError;
use super::layout::{Loops, spread_tensor, strides};
use super::number::{Number, load, write};
use super::promote::{Compute, check_cast, check_float};
use crate::error::Result;
use crate::runtime::{KernelArgs, KernelRegistry, Tensor};
use crate::tensor::DType;
use std::f64::consts::{FRAC_2_SQRT_PI, PI, SQRT_2};

pub(super) fn register(registry: &mut KernelRegistry) {
    registry.register("aten::rsqrt.out", |args| real(args, |x| x.sqrt().recip(), |x| x.sqrt().recip()));
    registry.register("aten::sqrt.out", |args| real(args, f32::sqrt, f64::sqrt));
    registry.register("aten::reciprocal.out", |args| real(args, f32::recip, f64::recip));
    registry.register("aten::exp.out", |args| real(args, f32::exp, f64::exp));
    registry.register("aten::log.out", |args| real(args, f32::ln, f64::ln));
    registry.register("aten::cos.out", |args| real(args, f32::cos, f64::cos));
    registry.register("aten::sin.out", |args| real(args, f32::sin, f64::sin));
    registry.register("aten::tanh.out", |args| real(args, f32::tanh, f64::tanh));
    registry.register("aten::erf.out", |args| real(args, |x| erf(x.into()) as f32, erf));
    registry
        .register("aten::sigmoid.out", |args| real(args, |x| 1.0 / (1.0 + (-x).exp()), |x| 1.0 / (1.0 + (-x).exp())));
    registry.register("aten::gelu.out", gelu);
    registry.register("aten::neg.out", |args| same(args, |x| -x, |x| -x, i64::wrapping_neg));
    registry.register("aten::abs.out", |args| same(args, f32::abs, f64::abs, i64::wrapping_abs));
    registry.register("aten::relu.out", |args| {
        same(args, |x| if x <= 0.0 { 0.0 } else { x }, |x| if x <= 0.0 { 0.0 } else { x }, |x| x.max(0))
    });
}

fn apply<C: Number>(a: &Tensor, out: &mut Tensor, f: impl Fn(C) -> C) -> Result<()> {
    let loops = Loops::<2>::new(&out.dims, [&strides(out)?, &spread_tensor(a, &out.dims)?]);
    let a = load::<C>(a)?;
    write(out, |out| loops.map(&a, out, f))
}

/// (a, …, out): any numbers to real ones.
fn real_to(
    args: &mut KernelArgs<'_>,
    place: usize,
    single: impl Fn(f32) -> f32,
    double: impl Fn(f64) -> f64,
) -> Result<()> {
    let (inputs, out) = args.split(place)?;
    let a = inputs.tensor(0)?;
    check_float("the output", out.dtype)?;
    out.resize(&a.dims)?;
    match Compute::of(a.dtype)? {
        Compute::F64 => apply(a, out, double),
        _ if out.dtype == DType::F64 => apply(a, out, double),
        _ => apply(a, out, single),
    }
}

fn real(args: &mut KernelArgs<'_>, single: impl Fn(f32) -> f32, double: impl Fn(f64) -> f64) -> Result<()> {
    real_to(args, 1, single, double)
}

/// (a, out): numbers to numbers of the same type.
fn same(
    args: &mut KernelArgs<'_>,
    single: impl Fn(f32) -> f32,
    double: impl Fn(f64) -> f64,
    integer: impl Fn(i64) -> i64,
) -> Result<()> {
    let (inputs, out) = args.split(1)?;
    let a = inputs.tensor(0)?;
    if a.dtype == DType::Bool {
        return Err(OpError::Type { what: "an operand", dtype: a.dtype }.into());
    }
    check_cast(a.dtype, out.dtype)?;
    out.resize(&a.dims)?;
    match Compute::of(a.dtype)? {
        Compute::F32 => apply(a, out, single),
        Compute::F64 => apply(a, out, double),
        Compute::I64 => apply(a, out, integer),
    }
}

/// (a, approximation, out)
fn gelu(args: &mut KernelArgs<'_>) -> Result<()> {
    match args.inputs().string(1)? {
        "none" => {
            let exact = |x: f64| 0.5 * x * (1.0 + erf(x / SQRT_2));
            real_to(args, 2, |x| exact(x.into()) as f32, exact)
        }
        "tanh" => {
            let near = |x: f64| 0.5 * x * (1.0 + (FRAC_2_SQRT_PI / SQRT_2 * (x + 0.044_715 * x * x * x)).tanh());
            real_to(args, 2, |x| near(x.into()) as f32, near)
        }
        other => Err(OpError::Approximation(other.to_owned()).into()),
    }
}

/// The error function, to about the precision of f64.
fn erf(x: f64) -> f64 {
    let size = x.abs();
    if x.is_nan() {
        return x;
    }
    if size >= 6.0 {
        return 1f64.copysign(x);
    }
    let square = x * x;
    if size < 2.5 {
        // x · Σ (2x²)ⁿ / (1·3·5…(2n+1)), all terms positive.
        let (mut term, mut sum, mut n) = (1.0, 1.0, 1.0);
        while term > sum * f64::EPSILON * 0.25 {
            term *= 2.0 * square / (2.0 * n + 1.0);
            sum += term;
            n += 1.0;
        }
        return FRAC_2_SQRT_PI * x * (-square).exp() * sum;
    }
    // The continued fraction of the complement, from its tail.
    let mut tail = size;
    for n in (1..=60).rev() {
        tail = size + f64::from(n) * 0.5 / tail;
    }
    (1.0 - (-square).exp() / (PI.sqrt() * tail)).copysign(x)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Call, close, elements};
    use super::*;
    use crate::pte::EValue;
    use half::f16;

    const INPUT: [f32; 4] = [0.25, 1.0, 4.0, 0.01];

    fn run(name: &str, input: &[f32]) -> Vec<f32> {
        let call = Call::new().constant(DType::F32, &[1, input.len()], input).output(DType::F32, &[1, input.len()]);
        elements(&call.run(name, "out").unwrap().1)
    }

    #[test]
    fn real_functions() {
        for (name, want) in [
            ("aten::rsqrt", [2.0, 1.0, 0.5, 10.0]),
            ("aten::sqrt", [0.5, 1.0, 2.0, 0.1]),
            ("aten::reciprocal", [4.0, 1.0, 0.25, 100.0]),
            ("aten::exp", [1.284_025_4, std::f32::consts::E, 54.598_15, 1.010_050_2]),
            ("aten::log", [-1.386_294_4, 0.0, 1.386_294_4, -4.605_170_2]),
            ("aten::cos", [0.968_912_4, 0.540_302_3, -0.653_643_6, 0.999_95]),
            ("aten::sin", [0.247_403_96, 0.841_470_96, -0.756_802_5, 0.009_999_833]),
            ("aten::tanh", [0.244_918_66, 0.761_594_2, 0.999_329_3, 0.009_999_667]),
            ("aten::erf", [0.276_326_4, 0.842_700_8, 1.0, 0.011_283_416]),
            ("aten::sigmoid", [0.562_176_5, 0.731_058_6, 0.982_013_8, 0.502_499_94]),
        ] {
            close(&run(name, &INPUT), &want, 3e-7);
        }
    }

    #[test]
    fn ends_of_the_range() {
        let infinity = f32::INFINITY;
        assert_eq!(run("aten::sigmoid", &[-infinity, infinity, -200.0]), [0.0, 1.0, 0.0]);
        assert_eq!(run("aten::rsqrt", &[0.0, infinity]), [infinity, 0.0]);
        assert!(run("aten::rsqrt", &[-1.0])[0].is_nan() && run("aten::relu", &[f32::NAN])[0].is_nan());
        assert_eq!(run("aten::erf", &[-infinity, 7.0, -0.0]), [-1.0, 1.0, 0.0]);
    }

    #[test]
    fn erf_is_as_precise_as_its_type_in_both_branches() {
        for (x, want) in [
            (0.1, 0.112_462_916_018_284_9),
            (1.0, 0.842_700_792_949_714_9),
            (2.0, 0.995_322_265_018_952_7),
            (2.5, 0.999_593_047_982_555),
            (3.0, 0.999_977_909_503_001_4),
            (-4.0, -0.999_999_984_582_742_1),
        ] {
            assert!((erf(x) - want).abs() < 4e-16, "{x}: {:e}", erf(x) - want);
        }
    }

    #[test]
    fn gelu_exact_near_and_unknown() {
        let run = |approximation: &str| {
            let call = Call::new().constant(DType::F32, &[3], &[-1.0f32, 0.5, 3.0]);
            call.value(EValue::String(approximation.into())).output(DType::F32, &[3]).run("aten::gelu", "out")
        };
        close(&elements(&run("none").unwrap().1), &[-0.158_655_26, 0.345_731_23, 2.995_950_5], 2e-7);
        close(&elements(&run("tanh").unwrap().1), &[-0.158_808_01, 0.345_714, 2.996_362_7], 2e-7);
        let text = run("cubic").unwrap_err().chain();
        assert!(text.ends_with("there is no \"cubic\" approximation"), "{text}");
    }

    #[test]
    fn types_and_sizes_follow_the_input() {
        let half = |x: f32| f16::from_f32(x).to_bits();
        let call = Call::new().constant(DType::F16, &[2], &[half(4.0), half(16.0)]).output(DType::F16, &[5]);
        let (dims, bytes) = call.run("aten::rsqrt", "out").unwrap();
        assert_eq!((dims, elements::<u16>(&bytes)), (vec![2], vec![half(0.5), half(0.25)]));
        let call = Call::new().constant(DType::I64, &[2], &[1i64, 4]).output(DType::F32, &[2]);
        assert_eq!(elements::<f32>(&call.run("aten::sqrt", "out").unwrap().1), [1.0, 2.0]);
        let call = Call::new().constant(DType::F64, &[1], &[0.1f64]).output(DType::F64, &[1]);
        assert_eq!(elements::<f64>(&call.run("aten::exp", "out").unwrap().1), [0.1f64.exp()]);
        let call = Call::new().constant(DType::I8, &[3], &[-128i8, 0, 5]).output(DType::I8, &[3]);
        assert_eq!(elements::<i8>(&call.run("aten::neg", "out").unwrap().1), [-128, 0, -5]);
        let call = Call::new().constant(DType::I32, &[3], &[-7i32, 0, 5]).output(DType::I32, &[3]);
        assert_eq!(elements::<i32>(&call.run("aten::relu", "out").unwrap().1), [0, 0, 5]);
    }

    #[test]
    fn defects_are_named() {
        let call = Call::new().constant(DType::F32, &[2], &[1.0f32; 2]);
        let error = call.output(DType::I32, &[2]).run("aten::exp", "out").unwrap_err();
        assert!(error.chain().ends_with("the output cannot be i32"), "{}", error.chain());
        let call = Call::new().constant(DType::F32, &[2], &[1.0f32; 2]);
        let error = call.output(DType::I32, &[2]).run("aten::neg", "out").unwrap_err();
        assert!(error.chain().ends_with("a result of f32 cannot be stored as i32"), "{}", error.chain());
        let call = Call::new().constant(DType::Bool, &[2], &[1u8; 2]);
        let error = call.output(DType::Bool, &[2]).run("aten::neg", "out").unwrap_err();
        assert!(error.chain().ends_with("an operand cannot be bool"), "{}", error.chain());
        let call = Call::new().constant(DType::F32, &[3], &[1.0f32; 3]);
        let error = call.output(DType::F32, &[2]).run("aten::exp", "out").unwrap_err();
        assert!(error.chain().ends_with("sizes [3] do not fit the upper bounds [2]"), "{}", error.chain());
    }
}
