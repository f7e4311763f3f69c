//! `aten::` arithmetic of two tensors, or of a tensor and a number: add, sub, mul, div, minimum, maximum, pow.

use super::error::OpError;
use super::layout::{Loops, broadcast, spread_tensor, strides};
use super::number::{Number, load, write};
use super::promote::{Compute, Scalar, check_cast, check_float, is_float, promote, promote_scalar};
use crate::error::Result;
use crate::runtime::{Inputs, KernelArgs, KernelRegistry, Tensor};
use crate::tensor::DType;

pub(super) fn register(registry: &mut KernelRegistry) {
    registry.register("aten::add.out", |args| scaled(args, 1));
    registry.register("aten::sub.out", |args| scaled(args, -1));
    registry.register("aten::add.Scalar_out", |args| scaled_scalar(args, 1));
    registry.register("aten::sub.Scalar_out", |args| scaled_scalar(args, -1));
    registry.register("aten::mul.out", |args| tensors(args, |a, b| a * b, |a, b| a * b, i64::wrapping_mul));
    registry.register("aten::mul.Scalar_out", |args| with_scalar(args, |a, b| a * b, |a, b| a * b, i64::wrapping_mul));
    registry.register("aten::minimum.out", |args| tensors(args, smaller, smaller, i64::min));
    registry.register("aten::maximum.out", |args| tensors(args, larger, larger, i64::max));
    registry.register("aten::div.out", divide);
    registry.register("aten::div.Scalar_out", divide_scalar);
    registry.register("aten::pow.Tensor_Scalar_out", power);
}

fn smaller<C: Number>(a: C, b: C) -> C {
    if a.is_unordered() || a < b { a } else { b }
}

fn larger<C: Number>(a: C, b: C) -> C {
    if a.is_unordered() || a > b { a } else { b }
}

fn apply<C: Number>(a: &Tensor, b: &Tensor, out: &mut Tensor, f: impl Fn(C, C) -> C) -> Result<()> {
    let dims = &out.dims;
    let loops = Loops::<3>::new(dims, [&strides(out)?, &spread_tensor(a, dims)?, &spread_tensor(b, dims)?]);
    let (a, b) = (load::<C>(a)?, load::<C>(b)?);
    write(out, |out| loops.map(&a, &b, out, f))
}

fn apply_scalar<C: Number>(a: &Tensor, out: &mut Tensor, f: impl Fn(C) -> C) -> Result<()> {
    let loops = Loops::<2>::new(&out.dims, [&strides(out)?, &spread_tensor(a, &out.dims)?]);
    let a = load::<C>(a)?;
    write(out, |out| loops.map(&a, out, f))
}

/// The first two arguments, at whose common sizes the output now is.
fn meet<'a>(inputs: &Inputs<'a>, out: &mut Tensor) -> Result<(&'a Tensor, &'a Tensor)> {
    let (a, b) = (inputs.tensor(0)?, inputs.tensor(1)?);
    out.resize(&broadcast(&a.dims, &b.dims)?)?;
    Ok((a, b))
}

/// (a, b, out)
fn tensors(
    args: &mut KernelArgs<'_>,
    single: impl Fn(f32, f32) -> f32,
    double: impl Fn(f64, f64) -> f64,
    integer: impl Fn(i64, i64) -> i64,
) -> Result<()> {
    let (inputs, out) = args.split(2)?;
    let (a, b) = meet(&inputs, out)?;
    let common = promote(a.dtype, b.dtype);
    check_cast(common, out.dtype)?;
    match Compute::of(common)? {
        Compute::F32 => apply(a, b, out, single),
        Compute::F64 => apply(a, b, out, double),
        Compute::I64 => apply(a, b, out, integer),
    }
}

/// (a, number, out)
fn with_scalar(
    args: &mut KernelArgs<'_>,
    single: impl Fn(f32, f32) -> f32,
    double: impl Fn(f64, f64) -> f64,
    integer: impl Fn(i64, i64) -> i64,
) -> Result<()> {
    let (inputs, out) = args.split(2)?;
    let (a, b) = (inputs.tensor(0)?, Scalar::of(&inputs, 1)?);
    let common = promote_scalar(a.dtype, b);
    check_cast(common, out.dtype)?;
    out.resize(&a.dims)?;
    match Compute::of(common)? {
        Compute::F32 => {
            let b = b.to_f64() as f32;
            apply_scalar(a, out, |a| single(a, b))
        }
        Compute::F64 => apply_scalar(a, out, |a| double(a, b.to_f64())),
        Compute::I64 => apply_scalar(a, out, |a| integer(a, b.to_i64())),
    }
}

/// The factor of the second operand in a sum of `common`; of a difference it is the negative.
fn alpha(inputs: &Inputs<'_>, common: DType, sign: i64) -> Result<Scalar> {
    let alpha = Scalar::of(inputs, 2)?;
    match alpha {
        Scalar::Bool(_) if common != DType::Bool => Err(OpError::Operands("a truth value as factor".into()).into()),
        Scalar::Double(_) if !is_float(common) => Err(OpError::Cast { from: DType::F64, to: common }.into()),
        Scalar::Double(alpha) => Ok(Scalar::Double(alpha * sign as f64)),
        Scalar::Int(_) | Scalar::Bool(_) => Ok(Scalar::Int(alpha.to_i64().wrapping_mul(sign))),
    }
}

/// Refuses differences of truth values.
fn check_difference(common: DType, sign: i64) -> Result<()> {
    if sign < 0 && common == DType::Bool {
        return Err(OpError::Type { what: "a difference", dtype: common }.into());
    }
    Ok(())
}

fn add<C: Number>(a: &Tensor, b: &Tensor, alpha: C, out: &mut Tensor) -> Result<()> {
    if alpha == C::from_i64(1) {
        return apply::<C>(a, b, out, C::plus);
    }
    apply::<C>(a, b, out, |a, b| a.plus(alpha.times(b)))
}

/// (a, b, alpha, out): `a ± alpha · b`.
fn scaled(args: &mut KernelArgs<'_>, sign: i64) -> Result<()> {
    let (inputs, out) = args.split(3)?;
    let (a, b) = meet(&inputs, out)?;
    let common = promote(a.dtype, b.dtype);
    check_difference(common, sign)?;
    check_cast(common, out.dtype)?;
    let alpha = alpha(&inputs, common, sign)?;
    match Compute::of(common)? {
        Compute::F32 => add(a, b, alpha.to_f64() as f32, out),
        Compute::F64 => add(a, b, alpha.to_f64(), out),
        Compute::I64 => add(a, b, alpha.to_i64(), out),
    }
}

/// (a, number, alpha, out): `a ± alpha · number`.
fn scaled_scalar(args: &mut KernelArgs<'_>, sign: i64) -> Result<()> {
    let (inputs, out) = args.split(3)?;
    let (a, b) = (inputs.tensor(0)?, Scalar::of(&inputs, 1)?);
    let common = promote_scalar(a.dtype, b);
    check_difference(common, sign)?;
    check_cast(common, out.dtype)?;
    let alpha = alpha(&inputs, common, sign)?;
    out.resize(&a.dims)?;
    match Compute::of(common)? {
        Compute::F32 => {
            let b = alpha.to_f64() as f32 * b.to_f64() as f32;
            apply_scalar(a, out, |a: f32| a + b)
        }
        Compute::F64 => {
            let b = alpha.to_f64() * b.to_f64();
            apply_scalar(a, out, |a: f64| a + b)
        }
        Compute::I64 => {
            let b = alpha.to_i64().wrapping_mul(b.to_i64());
            apply_scalar(a, out, |a: i64| a.wrapping_add(b))
        }
    }
}

/// (a, b, out): in reals, even of integers.
fn divide(args: &mut KernelArgs<'_>) -> Result<()> {
    let (inputs, out) = args.split(2)?;
    let (a, b) = meet(&inputs, out)?;
    check_float("the output", out.dtype)?;
    match Compute::of(promote(a.dtype, b.dtype))? {
        Compute::F64 => apply(a, b, out, |a: f64, b| a / b),
        _ => apply(a, b, out, |a: f32, b| a / b),
    }
}

/// (a, number, out)
fn divide_scalar(args: &mut KernelArgs<'_>) -> Result<()> {
    let (inputs, out) = args.split(2)?;
    let (a, b) = (inputs.tensor(0)?, Scalar::of(&inputs, 1)?.to_f64());
    check_float("the output", out.dtype)?;
    out.resize(&a.dims)?;
    match Compute::of(a.dtype)? {
        Compute::F64 => apply_scalar(a, out, |a: f64| a / b),
        _ => {
            let b = b as f32;
            apply_scalar(a, out, |a: f32| a / b)
        }
    }
}

/// (a, exponent, out)
fn power(args: &mut KernelArgs<'_>) -> Result<()> {
    let exponent = Scalar::of(&args.inputs(), 1)?;
    if exponent.to_f64() == 2.0 {
        return with_scalar(args, |a, _| a * a, |a, _| a * a, |a, _| a.wrapping_mul(a));
    }
    if let Scalar::Int(exponent) = exponent
        && exponent < 0
        && !is_float(args.tensor(0)?.dtype)
    {
        return Err(OpError::Operands(format!("the exponent {exponent} of integers")).into());
    }
    let integer = |a: i64, b: i64| (a as f64).powf(b as f64) as i64;
    with_scalar(args, |a, b| f64::from(a).powf(b.into()) as f32, f64::powf, integer)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Call, close, elements};
    use super::*;
    use crate::pte::EValue;
    use half::{bf16, f16};

    fn floats(a: (&[usize], &[f32]), b: (&[usize], &[f32])) -> Call {
        Call::new().constant(DType::F32, a.0, a.1).constant(DType::F32, b.0, b.1)
    }

    #[test]
    fn shapes_broadcast_both_ways() {
        let six = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        for (a, b, bounds, dims, want) in [
            ((&[2, 3][..], &six[..]), (&[2, 3][..], &six[..]), [2, 3], [2, 3], [1., 4., 9., 16., 25., 36.]),
            ((&[2, 3], &six), (&[3], &[1., 10., 100.]), [2, 3], [2, 3], [1., 20., 300., 4., 50., 600.]),
            ((&[2, 3], &six), (&[2, 1], &[1., 10.]), [4, 3], [2, 3], [1., 2., 3., 40., 50., 60.]),
            ((&[2, 1], &[1., 10.]), (&[2, 3], &six), [2, 5], [2, 3], [1., 2., 3., 40., 50., 60.]),
            ((&[], &[2.]), (&[2, 3], &six), [2, 3], [2, 3], [2., 4., 6., 8., 10., 12.]),
            ((&[2, 1], &[1., 10.]), (&[1, 3], &[1., 2., 3.]), [2, 3], [2, 3], [1., 2., 3., 10., 20., 30.]),
        ] {
            let call = floats(a, b).output(DType::F32, &bounds);
            let (got, bytes) = call.run("aten::mul", "out").unwrap();
            assert_eq!((&got[..], elements::<f32>(&bytes)), (&dims[..], want.to_vec()), "{a:?} {b:?}");
        }
    }

    #[test]
    fn a_sum_scales_its_second_operand() {
        let run = |name: &str, alpha: EValue| {
            let call = floats((&[2], &[1.0, 2.0]), (&[2], &[10.0, 20.0])).value(alpha);
            elements::<f32>(&call.output(DType::F32, &[2]).run(name, "out").unwrap().1)
        };
        assert_eq!(run("aten::add", EValue::Int(1)), [11.0, 22.0]);
        assert_eq!(run("aten::sub", EValue::Int(1)), [-9.0, -18.0]);
        assert_eq!(run("aten::add", EValue::Double(0.5)), [6.0, 12.0]);
        assert_eq!(run("aten::sub", EValue::Int(2)), [-19.0, -38.0]);
    }

    #[test]
    fn numbers_as_second_operand() {
        let run = |name: &str, values: &[EValue]| {
            let call = Call::new().constant(DType::F32, &[2], &[3.0f32, -2.0]);
            let call = values.iter().cloned().fold(call, Call::value);
            elements::<f32>(&call.output(DType::F32, &[2]).run(name, "Scalar_out").unwrap().1)
        };
        assert_eq!(run("aten::mul", &[EValue::Double(0.5)]), [1.5, -1.0]);
        assert_eq!(run("aten::div", &[EValue::Int(2)]), [1.5, -1.0]);
        assert_eq!(run("aten::add", &[EValue::Int(1), EValue::Int(3)]), [6.0, 1.0]);
        assert_eq!(run("aten::sub", &[EValue::Int(1), EValue::Int(1)]), [2.0, -3.0]);
    }

    #[test]
    fn types_meet() {
        let long = Call::new().constant(DType::I64, &[3], &[0i64, 1, 2]).constant(DType::I64, &[], &[40i64]);
        let (_, bytes) = long.int(1).output(DType::I64, &[3]).run("aten::add", "out").unwrap();
        assert_eq!(elements::<i64>(&bytes), [40, 41, 42]);
        let mixed = Call::new().constant(DType::I32, &[2], &[1i32, 2]).constant(DType::F32, &[2], &[0.5f32, 0.25]);
        let (_, bytes) = mixed.output(DType::F32, &[2]).run("aten::mul", "out").unwrap();
        assert_eq!(elements::<f32>(&bytes), [0.5, 0.5]);
        let narrow = Call::new().constant(DType::I8, &[2], &[100i8, -100]).constant(DType::I8, &[2], &[100i8, -100]);
        let (_, bytes) = narrow.int(1).output(DType::I8, &[2]).run("aten::add", "out").unwrap();
        assert_eq!(elements::<i8>(&bytes), [-56, 56], "wraps around");
        let half = Call::new().constant(DType::F16, &[1], &[f16::from_f32(1.5).to_bits()]);
        let half = half.constant(DType::BF16, &[1], &[bf16::from_f32(2.0).to_bits()]);
        let (_, bytes) = half.output(DType::F32, &[1]).run("aten::mul", "out").unwrap();
        assert_eq!(elements::<f32>(&bytes), [3.0]);
        let whole = Call::new().constant(DType::I64, &[2], &[1i64, -7]).constant(DType::I64, &[2], &[2i64, 2]);
        let (_, bytes) = whole.output(DType::F32, &[2]).run("aten::div", "out").unwrap();
        assert_eq!(elements::<f32>(&bytes), [0.5, -3.5]);
        let double = Call::new().constant(DType::F64, &[1], &[0.1f64]).constant(DType::F32, &[1], &[1.0f32]);
        let (_, bytes) = double.int(1).output(DType::F64, &[1]).run("aten::add", "out").unwrap();
        assert_eq!(elements::<f64>(&bytes), [1.1]);
    }

    #[test]
    fn smaller_and_larger_keep_what_is_no_number() {
        for (name, want) in [("aten::minimum", [-1.0, 2.0]), ("aten::maximum", [1.0, 5.0])] {
            let call = floats((&[4], &[1.0, 2.0, f32::NAN, 0.0]), (&[4], &[-1.0, 5.0, 0.0, f32::NAN]));
            let got: Vec<f32> = elements(&call.output(DType::F32, &[4]).run(name, "out").unwrap().1);
            assert_eq!(got[..2], want, "{name}");
            assert!(got[2].is_nan() && got[3].is_nan(), "{name}");
        }
    }

    #[test]
    fn powers() {
        let run = |exponent: EValue| {
            let call = Call::new().constant(DType::F32, &[2], &[3.0f32, 0.25]).value(exponent);
            elements::<f32>(&call.output(DType::F32, &[2]).run("aten::pow", "Tensor_Scalar_out").unwrap().1)
        };
        assert_eq!(run(EValue::Int(2)), [9.0, 0.0625]);
        close(&run(EValue::Double(-0.5)), &[0.577_350_3, 2.0], 1e-7);
        let run = |exponent: i64| {
            let call = Call::new().constant(DType::I64, &[3], &[3i64, -1, 2]).int(exponent).output(DType::I64, &[3]);
            call.run("aten::pow", "Tensor_Scalar_out").map(|(_, bytes)| elements::<i64>(&bytes))
        };
        assert_eq!(run(3).unwrap(), [27, -1, 8]);
        assert_eq!(run((1 << 40) + 1).unwrap()[1..], [-1, i64::MAX]);
        assert!(run(-1).unwrap_err().chain().ends_with("it cannot take the exponent -1 of integers"));
    }

    #[test]
    fn defects_are_named() {
        let longs = || Call::new().constant(DType::I64, &[2], &[1i64; 2]).constant(DType::I64, &[2], &[1i64; 2]);
        let truths = || Call::new().constant(DType::Bool, &[2], &[1u8; 2]).constant(DType::Bool, &[2], &[1u8; 2]);
        let pair = |a, b| floats((&[a], &[1.0; 3][..a]), (&[b], &[1.0; 3][..b]));
        for (result, want) in [
            (pair(2, 3).output(DType::F32, &[3]).run("aten::mul", "out"), "sizes [2] and [3] do not go together"),
            (pair(2, 2).output(DType::I64, &[2]).run("aten::mul", "out"), "a result of f32 cannot be stored as i64"),
            (pair(3, 3).output(DType::F32, &[2]).run("aten::mul", "out"), "sizes [3] do not fit the upper bounds [2]"),
            (longs().output(DType::I64, &[2]).run("aten::div", "out"), "the output cannot be i64"),
            (
                longs().value(EValue::Double(0.5)).output(DType::I64, &[2]).run("aten::add", "out"),
                "a result of f64 cannot be stored as i64",
            ),
            (
                longs().value(EValue::Bool(true)).output(DType::I64, &[2]).run("aten::add", "out"),
                "it cannot take a truth value as factor",
            ),
            (truths().int(1).output(DType::Bool, &[2]).run("aten::sub", "out"), "a difference cannot be bool"),
            (
                Call::new()
                    .constant(DType::Bits16, &[1], &[0u16])
                    .constant(DType::Bits16, &[1], &[0u16])
                    .output(DType::Bits16, &[1])
                    .run("aten::mul", "out"),
                "an operand cannot be bits16",
            ),
        ] {
            let text = result.unwrap_err().chain();
            assert!(text.ends_with(want), "{text}");
        }
    }
}
