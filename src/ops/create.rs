//! `aten::` operators that make tensors out of numbers: full, zeros, ones, scalar_tensor, arange, empty.

use super::error::OpError;
use super::layout::{Sizes, check_order};
use super::number::{Number, write};
use super::promote::{Compute, Scalar};
use crate::error::Result;
use crate::runtime::{Inputs, KernelArgs, KernelRegistry, Tensor};
use crate::tensor::{DType, MAX_ELEMENTS};

pub(super) fn register(registry: &mut KernelRegistry) {
    registry.register("aten::full.out", |args| {
        let (inputs, out) = args.split(2)?;
        out.resize(&sizes(&inputs)?)?;
        fill(Scalar::of(&inputs, 1)?, out)
    });
    registry.register("aten::full_like.out", |args| {
        let (inputs, out) = args.split(3)?;
        out.resize(&inputs.tensor(0)?.dims)?;
        fill(Scalar::of(&inputs, 1)?, out)
    });
    registry.register("aten::scalar_tensor.out", |args| {
        let (inputs, out) = args.split(1)?;
        out.resize(&[])?;
        fill(Scalar::of(&inputs, 0)?, out)
    });
    registry.register("aten::zeros.out", |args| constant(args, 1, 0));
    registry.register("aten::ones.out", |args| constant(args, 1, 1));
    registry.register("aten::empty.out", |args| {
        let (inputs, out) = args.split(2)?;
        out.resize(&sizes(&inputs)?)
    });
    registry.register("aten::arange.out", |args| {
        let (inputs, out) = args.split(1)?;
        count([Scalar::Int(0), Scalar::of(&inputs, 0)?, Scalar::Int(1)], out)
    });
    registry.register("aten::arange.start_out", |args| {
        let (inputs, out) = args.split(3)?;
        count([Scalar::of(&inputs, 0)?, Scalar::of(&inputs, 1)?, Scalar::of(&inputs, 2)?], out)
    });
}

/// The sizes in the first argument.
fn sizes(inputs: &Inputs<'_>) -> Result<Sizes> {
    let mut sizes = Sizes::EMPTY;
    for size in inputs.ints(0)? {
        let size = size?;
        sizes.push(usize::try_from(size).map_err(|_| OpError::ViewSizes(vec![size]))?)?;
    }
    Ok(sizes)
}

/// Every element becomes `value`.
fn fill(value: Scalar, out: &mut Tensor) -> Result<()> {
    match Compute::of(out.dtype)? {
        Compute::F32 => write(out, |out| out.fill(value.to_f64() as f32)),
        Compute::F64 => write(out, |out| out.fill(value.to_f64())),
        // A fraction is false only when it is zero.
        Compute::I64 if out.dtype == DType::Bool => write(out, |out| out.fill(i64::from(value.to_f64() != 0.0))),
        Compute::I64 => write(out, |out| out.fill(value.to_i64())),
    }
}

/// (sizes, out)
fn constant(args: &mut KernelArgs<'_>, place: usize, value: i64) -> Result<()> {
    let (inputs, out) = args.split(place)?;
    out.resize(&sizes(&inputs)?)?;
    fill(Scalar::Int(value), out)
}

/// From start, up to but without end, in steps.
fn count([start, end, step]: [Scalar; 3], out: &mut Tensor) -> Result<()> {
    fn apply<C: Number>(first: f64, step: f64, out: &mut Tensor) -> Result<()> {
        write(out, |out: &mut [C]| {
            for (place, out) in out.iter_mut().enumerate() {
                *out = C::from_f64(first + place as f64 * step);
            }
        })
    }
    check_order("the output", out)?;
    let by = step.to_f64();
    let len = ((end.to_f64() - start.to_f64()) / by).ceil();
    // Neither a step of zero nor one away from the end gives a length.
    if !(0.0..=MAX_ELEMENTS as f64).contains(&len) || by == 0.0 {
        return Err(OpError::Step(by).into());
    }
    out.resize(&[len as usize])?;
    if let (Scalar::Int(first), Scalar::Int(by), Compute::I64) = (start, step, Compute::of(out.dtype)?) {
        return write(out, |out| {
            for (place, out) in out.iter_mut().enumerate() {
                *out = first.plus(by.times(place as i64));
            }
        });
    }
    match Compute::of(out.dtype)? {
        Compute::F32 => apply::<f32>(start.to_f64(), by, out),
        Compute::F64 => apply::<f64>(start.to_f64(), by, out),
        Compute::I64 => apply::<i64>(start.to_f64(), by, out),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Call, elements};
    use super::*;
    use crate::pte::EValue;

    #[test]
    fn full_of_a_number() {
        let call = Call::new().ints(&[1, 2]).value(EValue::Double(f64::NEG_INFINITY)).output(DType::F32, &[2, 2]);
        let (dims, bytes) = call.run("aten::full", "out").unwrap();
        assert_eq!((dims, elements::<f32>(&bytes)), (vec![1, 2], vec![f32::NEG_INFINITY; 2]));
        let call = Call::new().constant(DType::I64, &[2], &[5i64; 2]).value(EValue::Double(0.5)).int(1);
        let call = call.output(DType::F32, &[3]);
        let (dims, bytes) = call.run("aten::full_like", "out").unwrap();
        assert_eq!((dims, elements::<f32>(&bytes)), (vec![2], vec![0.5; 2]));
        let call = Call::new().int(-3).output(DType::I32, &[]);
        assert_eq!(elements::<i32>(&call.run("aten::scalar_tensor", "out").unwrap().1), [-3]);
        let call = Call::new().value(EValue::Double(0.5)).output(DType::Bool, &[]);
        assert_eq!(call.run("aten::scalar_tensor", "out").unwrap().1, [1]);
        for (name, want) in [("aten::zeros", [0, 0]), ("aten::ones", [1, 1])] {
            let call = Call::new().ints(&[2]).output(DType::I16, &[2]);
            assert_eq!(elements::<i16>(&call.run(name, "out").unwrap().1), want);
        }
        let call = Call::new().ints(&[2]).value(EValue::Null).output(DType::I16, &[3]);
        assert_eq!(call.run("aten::empty", "out").unwrap().0, [2]);
        let text = Call::new().ints(&[-1]).output(DType::I16, &[2]).run("aten::ones", "out").unwrap_err().chain();
        assert!(text.ends_with("a view cannot have the sizes [-1]"), "{text}");
    }

    #[test]
    fn arange_counts() {
        let run = |bounds: [EValue; 3], dtype| {
            let call = bounds.into_iter().fold(Call::new(), Call::value).output(dtype, &[5]);
            call.run("aten::arange", "start_out")
        };
        let int = EValue::Int;
        let (dims, bytes) = run([int(0), int(3), int(1)], DType::I64).unwrap();
        assert_eq!((dims, elements::<i64>(&bytes)), (vec![3], vec![0, 1, 2]));
        let (_, bytes) = run([int(5), int(-4), int(-3)], DType::I32).unwrap();
        assert_eq!(elements::<i32>(&bytes), [5, 2, -1]);
        let (_, bytes) = run([EValue::Double(0.0), int(1), EValue::Double(0.3)], DType::F32).unwrap();
        assert_eq!(elements::<f32>(&bytes), [0.0, 0.3, 0.6, 0.9]);
        assert_eq!(run([int(2), int(2), int(1)], DType::I64).unwrap().0, [0]);
        let call = Call::new().int(2).output(DType::I64, &[2]);
        assert_eq!(elements::<i64>(&call.run("aten::arange", "out").unwrap().1), [0, 1]);
        for (bounds, want) in [
            ([int(0), int(3), int(0)], "a step of 0"),
            ([int(0), int(3), int(-1)], "a step of -1"),
            ([int(0), EValue::Double(f64::INFINITY), int(1)], "a step of 1"),
            ([int(0), int(6), int(1)], "sizes [6] do not fit the upper bounds [5]"),
        ] {
            let text = run(bounds, DType::I64).unwrap_err().chain();
            assert!(text.ends_with(want), "{text}");
        }
    }
}
