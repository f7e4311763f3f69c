//! `aten::` comparisons and logic, whose results are truth values, and the choice by them: eq to lt, logical_*,
//! bitwise_* on truth values and integers, where, masked_fill.

use super::error::OpError;
use super::layout::{Loops, broadcast, spread_tensor, strides};
use super::number::{Number, load, load_truth, write, write_truth};
use super::promote::{Compute, Scalar, check_cast, is_float, promote, promote_scalar};
use crate::error::Result;
use crate::runtime::{KernelArgs, KernelRegistry, Tensor};
use crate::tensor::DType;
use std::cmp::Ordering;

/// A comparison, of values that may not be ordered.
trait Test: Copy {
    const TENSORS: &'static str;
    const SCALAR: &'static str;
    fn holds(order: Option<Ordering>) -> bool;
}

macro_rules! test {
    ($test:ident, $name:literal, $pattern:pat) => {
        #[derive(Clone, Copy)]
        struct $test;
        impl Test for $test {
            const TENSORS: &'static str = concat!("aten::", $name, ".Tensor_out");
            const SCALAR: &'static str = concat!("aten::", $name, ".Scalar_out");
            fn holds(order: Option<Ordering>) -> bool {
                matches!(order, $pattern)
            }
        }
    };
}

test!(Equal, "eq", Some(Ordering::Equal));
test!(Unequal, "ne", None | Some(Ordering::Less | Ordering::Greater));
test!(AtLeast, "ge", Some(Ordering::Greater | Ordering::Equal));
test!(Above, "gt", Some(Ordering::Greater));
test!(AtMost, "le", Some(Ordering::Less | Ordering::Equal));
test!(Below, "lt", Some(Ordering::Less));

pub(super) fn register(registry: &mut KernelRegistry) {
    fn both<T: Test>(registry: &mut KernelRegistry) {
        registry.register(T::TENSORS, compare::<T>);
        registry.register(T::SCALAR, compare_scalar::<T>);
    }
    both::<Equal>(registry);
    both::<Unequal>(registry);
    both::<AtLeast>(registry);
    both::<Above>(registry);
    both::<AtMost>(registry);
    both::<Below>(registry);
    registry.register("aten::logical_not.out", not);
    registry.register("aten::logical_and.out", |args| logic(args, |a, b| a & b));
    registry.register("aten::logical_or.out", |args| logic(args, |a, b| a | b));
    registry.register("aten::logical_xor.out", |args| logic(args, |a, b| a ^ b));
    registry.register("aten::bitwise_not.out", bitwise_not);
    registry.register("aten::bitwise_and.Tensor_out", |args| bitwise(args, |a, b| a & b));
    registry.register("aten::bitwise_or.Tensor_out", |args| bitwise(args, |a, b| a | b));
    registry.register("aten::bitwise_xor.Tensor_out", |args| bitwise(args, |a, b| a ^ b));
    registry.register("aten::where.self_out", choose);
    registry.register("aten::masked_fill.Scalar_out", masked_fill);
}

fn loops2(a: &Tensor, out: &Tensor) -> Result<Loops<2>> {
    Ok(Loops::new(&out.dims, [&strides(out)?, &spread_tensor(a, &out.dims)?]))
}

fn loops3(a: &Tensor, b: &Tensor, out: &Tensor) -> Result<Loops<3>> {
    let dims = &out.dims;
    Ok(Loops::new(dims, [&strides(out)?, &spread_tensor(a, dims)?, &spread_tensor(b, dims)?]))
}

/// (a, b, out)
fn compare<T: Test>(args: &mut KernelArgs<'_>) -> Result<()> {
    fn apply<C: Number, T: Test>(a: &Tensor, b: &Tensor, out: &mut Tensor) -> Result<()> {
        let loops = loops3(a, b, out)?;
        let (a, b) = (load::<C>(a)?, load::<C>(b)?);
        write_truth(out, |out| loops.map(&a, &b, out, |a, b| T::holds(a.partial_cmp(&b)).into()))
    }
    let (inputs, out) = args.split(2)?;
    let (a, b) = (inputs.tensor(0)?, inputs.tensor(1)?);
    out.resize(&broadcast(&a.dims, &b.dims)?)?;
    match Compute::of(promote(a.dtype, b.dtype))? {
        Compute::F32 => apply::<f32, T>(a, b, out),
        Compute::F64 => apply::<f64, T>(a, b, out),
        Compute::I64 => apply::<i64, T>(a, b, out),
    }
}

/// (a, number, out)
fn compare_scalar<T: Test>(args: &mut KernelArgs<'_>) -> Result<()> {
    fn apply<C: Number, T: Test>(a: &Tensor, b: C, out: &mut Tensor) -> Result<()> {
        let loops = loops2(a, out)?;
        let a = load::<C>(a)?;
        write_truth(out, |out| loops.map(&a, out, |a| T::holds(a.partial_cmp(&b)).into()))
    }
    let (inputs, out) = args.split(2)?;
    let (a, b) = (inputs.tensor(0)?, Scalar::of(&inputs, 1)?);
    out.resize(&a.dims)?;
    match Compute::of(promote_scalar(a.dtype, b))? {
        Compute::F32 => apply::<f32, T>(a, b.to_f64() as f32, out),
        Compute::F64 => apply::<f64, T>(a, b.to_f64(), out),
        Compute::I64 => apply::<i64, T>(a, b.to_i64(), out),
    }
}

/// (a, out)
fn not(args: &mut KernelArgs<'_>) -> Result<()> {
    let (inputs, out) = args.split(1)?;
    let a = inputs.tensor(0)?;
    out.resize(&a.dims)?;
    let (loops, a) = (loops2(a, out)?, load_truth(a)?);
    write_truth(out, |out| loops.map(&a, out, |a| a ^ 1))
}

/// (a, b, out): of truth values, which numbers other than zero are.
fn logic(args: &mut KernelArgs<'_>, f: impl Fn(u8, u8) -> u8) -> Result<()> {
    let (inputs, out) = args.split(2)?;
    let (a, b) = (inputs.tensor(0)?, inputs.tensor(1)?);
    out.resize(&broadcast(&a.dims, &b.dims)?)?;
    let loops = loops3(a, b, out)?;
    let (a, b) = (load_truth(a)?, load_truth(b)?);
    write_truth(out, |out| loops.map(&a, &b, out, f))
}

fn check_bits(dtype: DType) -> Result<()> {
    if is_float(dtype) { Err(OpError::Type { what: "an operand", dtype }.into()) } else { Ok(()) }
}

/// (a, out): of bits, or of truth values.
fn bitwise_not(args: &mut KernelArgs<'_>) -> Result<()> {
    let (inputs, out) = args.split(1)?;
    let a = inputs.tensor(0)?;
    if a.dtype == DType::Bool {
        return not(args);
    }
    check_bits(a.dtype)?;
    check_cast(a.dtype, out.dtype)?;
    out.resize(&a.dims)?;
    let (loops, a) = (loops2(a, out)?, load::<i64>(a)?);
    write(out, |out| loops.map(&a, out, |a: i64| !a))
}

/// (a, b, out)
fn bitwise(args: &mut KernelArgs<'_>, f: impl Fn(i64, i64) -> i64) -> Result<()> {
    let (inputs, out) = args.split(2)?;
    let (a, b) = (inputs.tensor(0)?, inputs.tensor(1)?);
    let common = promote(a.dtype, b.dtype);
    check_bits(common)?;
    check_cast(common, out.dtype)?;
    out.resize(&broadcast(&a.dims, &b.dims)?)?;
    let loops = loops3(a, b, out)?;
    let (a, b) = (load::<i64>(a)?, load::<i64>(b)?);
    write(out, |out| loops.map(&a, &b, out, f))
}

fn check_condition(tensor: &Tensor) -> Result<()> {
    match tensor.dtype {
        DType::Bool | DType::U8 => Ok(()),
        dtype => Err(OpError::Type { what: "a condition", dtype }.into()),
    }
}

/// (condition, a, b, out)
fn choose(args: &mut KernelArgs<'_>) -> Result<()> {
    fn apply<C: Number>(condition: &Tensor, a: &Tensor, b: &Tensor, out: &mut Tensor) -> Result<()> {
        let dims = &out.dims;
        let far = [strides(out)?, spread_tensor(condition, dims)?, spread_tensor(a, dims)?, spread_tensor(b, dims)?];
        let loops = Loops::<4>::new(dims, far.each_ref().map(|strides| &strides[..]));
        let (a, b, condition) = (load::<C>(a)?, load::<C>(b)?, condition.view::<u8>()?);
        let (len, steps) = (loops.len, loops.steps);
        write(out, |out| {
            loops.each(|[o, c, i, j]| {
                for n in 0..len {
                    let chosen = condition[c + n * steps[1]] != 0;
                    out[o + n * steps[0]] = if chosen { a[i + n * steps[2]] } else { b[j + n * steps[3]] };
                }
            });
        })
    }
    let (inputs, out) = args.split(3)?;
    let (condition, a, b) = (inputs.tensor(0)?, inputs.tensor(1)?, inputs.tensor(2)?);
    check_condition(condition)?;
    let common = promote(a.dtype, b.dtype);
    check_cast(common, out.dtype)?;
    out.resize(&broadcast(&broadcast(&a.dims, &b.dims)?, &condition.dims)?)?;
    match Compute::of(common)? {
        Compute::F32 => apply::<f32>(condition, a, b, out),
        Compute::F64 => apply::<f64>(condition, a, b, out),
        Compute::I64 => apply::<i64>(condition, a, b, out),
    }
}

/// (a, mask, number, out): the number where the mask holds.
fn masked_fill(args: &mut KernelArgs<'_>) -> Result<()> {
    fn apply<C: Number>(a: &Tensor, mask: &Tensor, value: C, out: &mut Tensor) -> Result<()> {
        let loops = loops3(a, mask, out)?;
        let (a, mask) = (load::<C>(a)?, mask.view::<u8>()?);
        write(out, |out| loops.map(&a, mask, out, |a, mask| if mask != 0 { value } else { a }))
    }
    let (inputs, out) = args.split(3)?;
    let (a, mask, value) = (inputs.tensor(0)?, inputs.tensor(1)?, Scalar::of(&inputs, 2)?);
    check_condition(mask)?;
    if a.dtype != out.dtype {
        return Err(OpError::TypesDiffer { what: "the output", have: out.dtype, want: a.dtype }.into());
    }
    check_cast(promote_scalar(a.dtype, value), a.dtype)?;
    out.resize(&broadcast(&a.dims, &mask.dims)?)?;
    match Compute::of(a.dtype)? {
        Compute::F32 => apply(a, mask, value.to_f64() as f32, out),
        Compute::F64 => apply(a, mask, value.to_f64(), out),
        Compute::I64 => apply(a, mask, value.to_i64(), out),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Call, elements};
    use super::*;
    use crate::pte::EValue;

    const NAMES: [&str; 6] = ["eq", "ne", "ge", "gt", "le", "lt"];

    #[test]
    fn every_comparison_of_tensors_and_numbers() {
        let wants: [[u8; 4]; 6] = [[0, 1, 0, 0], [1, 0, 1, 1], [0, 1, 1, 0], [0, 0, 1, 0], [1, 1, 0, 0], [1, 0, 0, 0]];
        let a = || Call::new().constant(DType::F32, &[2, 2], &[1.0f32, 2.0, 3.0, f32::NAN]);
        for (name, want) in NAMES.iter().zip(wants) {
            let call = a().constant(DType::I64, &[2, 1], &[2i64, 2]).output(DType::Bool, &[2, 2]);
            let got = call.run(&format!("aten::{name}"), "Tensor_out").unwrap();
            assert_eq!(got, (vec![2, 2], want.to_vec()), "{name}");
            let call = a().value(EValue::Double(2.0)).output(DType::Bool, &[2, 2]);
            assert_eq!(call.run(&format!("aten::{name}"), "Scalar_out").unwrap().1, want, "{name}");
        }
    }

    #[test]
    fn minus_infinity_is_found_and_results_may_be_numbers() {
        let call = Call::new().constant(DType::F32, &[3], &[f32::NEG_INFINITY, 0.0, f32::INFINITY]);
        let call = call.value(EValue::Double(f64::NEG_INFINITY)).output(DType::Bool, &[3]);
        assert_eq!(call.run("aten::eq", "Scalar_out").unwrap().1, [1, 0, 0]);
        let call = Call::new().constant(DType::I64, &[2], &[i64::MAX, i64::MAX - 1]).int(i64::MAX);
        let (_, bytes) = call.output(DType::F32, &[2]).run("aten::eq", "Scalar_out").unwrap();
        assert_eq!(elements::<f32>(&bytes), [1.0, 0.0]);
    }

    #[test]
    fn logic_of_truth_values_and_numbers() {
        for (name, want) in [("logical_and", [1, 0, 0, 0]), ("logical_or", [1, 1, 1, 0]), ("logical_xor", [0, 1, 1, 0])]
        {
            let call = Call::new().constant(DType::Bool, &[2, 1], &[1u8, 0]);
            let call = call.constant(DType::F32, &[2], &[-0.5f32, 0.0]).output(DType::Bool, &[2, 2]);
            assert_eq!(call.run(&format!("aten::{name}"), "out").unwrap().1, want, "{name}");
        }
        let call = Call::new().constant(DType::Bool, &[3], &[1u8, 0, 1]).output(DType::Bool, &[3]);
        assert_eq!(call.run("aten::logical_not", "out").unwrap().1, [0, 1, 0]);
        let call = Call::new().constant(DType::F32, &[3], &[f32::NAN, 0.0, 2.0]).output(DType::Bool, &[3]);
        assert_eq!(call.run("aten::logical_not", "out").unwrap().1, [0, 1, 0]);
    }

    #[test]
    fn bits() {
        for (name, want) in [("and", [0b0100i8, -8]), ("or", [0b0111, -1]), ("xor", [0b0011, 7])] {
            let call = Call::new().constant(DType::I8, &[2], &[0b0101i8, -1]);
            let call = call.constant(DType::I8, &[2], &[0b0110i8, -8]).output(DType::I8, &[2]);
            let (_, bytes) = call.run(&format!("aten::bitwise_{name}"), "Tensor_out").unwrap();
            assert_eq!(elements::<i8>(&bytes), want, "{name}");
        }
        let call = Call::new().constant(DType::Bool, &[2], &[1u8, 0]).output(DType::Bool, &[2]);
        assert_eq!(call.run("aten::bitwise_not", "out").unwrap().1, [0, 1]);
        let call = Call::new().constant(DType::U8, &[2], &[1u8, 0]).output(DType::U8, &[2]);
        assert_eq!(call.run("aten::bitwise_not", "out").unwrap().1, [254, 255]);
    }

    #[test]
    fn where_broadcasts_all_three() {
        let call = Call::new().constant(DType::Bool, &[2, 3], &[1u8, 0, 1, 0, 0, 1]);
        let call = call.constant(DType::F32, &[], &[7.0f32]).constant(DType::F32, &[3], &[1.0f32, 2.0, 3.0]);
        let (dims, bytes) = call.output(DType::F32, &[4, 3]).run("aten::where", "self_out").unwrap();
        assert_eq!((dims, elements::<f32>(&bytes)), (vec![2, 3], vec![7.0, 2.0, 7.0, 1.0, 2.0, 7.0]));
        let call = Call::new().constant(DType::U8, &[2, 1], &[1u8, 0]).constant(DType::I32, &[2], &[1i32, 2]);
        let call = call.constant(DType::F32, &[1], &[0.5f32]).output(DType::F32, &[2, 2]);
        assert_eq!(elements::<f32>(&call.run("aten::where", "self_out").unwrap().1), [1.0, 2.0, 0.5, 0.5]);
    }

    #[test]
    fn masked_fill_puts_a_number() {
        let call = Call::new().constant(DType::F32, &[1, 3], &[1.0f32, 2.0, 3.0]);
        let call = call.constant(DType::Bool, &[2, 1], &[0u8, 1]).value(EValue::Double(f64::NEG_INFINITY));
        let (dims, bytes) = call.output(DType::F32, &[2, 3]).run("aten::masked_fill", "Scalar_out").unwrap();
        let low = f32::NEG_INFINITY;
        assert_eq!((dims, elements::<f32>(&bytes)), (vec![2, 3], vec![1.0, 2.0, 3.0, low, low, low]));
    }

    #[test]
    fn defects_are_named() {
        let float = || Call::new().constant(DType::F32, &[2], &[1.0f32; 2]);
        let truth = || Call::new().constant(DType::Bool, &[2], &[1u8; 2]);
        for (result, want) in [
            (
                float()
                    .constant(DType::F32, &[3], &[1.0f32; 3])
                    .output(DType::Bool, &[3])
                    .run("aten::lt", "Tensor_out"),
                "sizes [2] and [3] do not go together",
            ),
            (
                float().value(EValue::Null).output(DType::Bool, &[2]).run("aten::lt", "Scalar_out"),
                "it cannot take null",
            ),
            (
                float()
                    .constant(DType::F32, &[2], &[1.0f32; 2])
                    .constant(DType::F32, &[2], &[1.0f32; 2])
                    .output(DType::F32, &[2])
                    .run("aten::where", "self_out"),
                "a condition cannot be f32",
            ),
            (
                truth()
                    .constant(DType::F32, &[2], &[1.0f32; 2])
                    .constant(DType::F32, &[2], &[1.0f32; 2])
                    .output(DType::I32, &[2])
                    .run("aten::where", "self_out"),
                "a result of f32 cannot be stored as i32",
            ),
            (float().output(DType::F32, &[2]).run("aten::bitwise_not", "out"), "an operand cannot be f32"),
            (
                float()
                    .constant(DType::F32, &[2], &[1.0f32; 2])
                    .output(DType::F32, &[2])
                    .run("aten::bitwise_and", "Tensor_out"),
                "an operand cannot be f32",
            ),
            (
                float()
                    .constant(DType::Bool, &[2], &[1u8; 2])
                    .int(1)
                    .output(DType::F64, &[2])
                    .run("aten::masked_fill", "Scalar_out"),
                "the output has f64 elements, its type says f32",
            ),
        ] {
            let text = result.unwrap_err().chain();
            assert!(text.ends_with(want), "{text}");
        }
    }
}
