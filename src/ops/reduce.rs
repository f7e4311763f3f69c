//! `aten::` reductions over dimensions: mean, sum, amax, amin, any, argmax.

use super::error::OpError;
use super::layout::{Loops, Sizes, check_order, dimension, row_major, strides};
use super::number::{Number, load, load_truth, write, write_truth};
use super::promote::{Compute, check_cast, check_dtype_arg, check_float};
use crate::error::Result;
use crate::runtime::{Inputs, KernelArgs, KernelRegistry, Tensor, Value};
use crate::tensor::{DType, MAX_RANK};

pub(super) fn register(registry: &mut KernelRegistry) {
    registry.register("aten::mean.out", mean);
    registry.register("aten::sum.IntList_out", sum);
    registry.register("aten::amax.out", |args| extreme(args, |new, old| new > old));
    registry.register("aten::amin.out", |args| extreme(args, |new, old| new < old));
    registry.register("aten::any.out", |args| any(args, Dims::One));
    registry.register("aten::any.dims_out", |args| any(args, Dims::List));
    registry.register("aten::any.all_out", |args| any(args, Dims::None));
    registry.register("aten::argmax.out", argmax);
}

/// How a reduction's dimensions are given.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Dims {
    None,
    One,
    List,
}

/// Which elements of an input become which of the output.
struct Reduction {
    /// Over the output in logical order, and the input.
    around: Loops<2>,
    /// Over what becomes one element.
    within: Loops<1>,
    /// How many elements become one.
    count: usize,
    /// Sizes of the output.
    dims: Sizes,
}

impl Reduction {
    /// Over argument `arg`, with whether dimensions are kept in the next; both are absent for `Dims::None`.
    fn new(input: &Tensor, inputs: &Inputs<'_>, arg: usize, dims: Dims) -> Result<Self> {
        let rank = input.dims.len();
        let mut reduced = [false; MAX_RANK];
        let mut name = |dim: i64| -> Result<()> {
            let dim = dimension(dim, rank)?;
            if std::mem::replace(&mut reduced[dim], true) {
                return Err(OpError::DimensionTwice(dim).into());
            }
            Ok(())
        };
        let mut all = dims == Dims::None || matches!(inputs.value(arg)?, Value::Null);
        match dims {
            _ if all => {}
            Dims::One => name(inputs.int(arg)?)?,
            _ => {
                let list = inputs.ints(arg)?;
                all = list.len() == 0;
                for dim in list {
                    name(dim?)?;
                }
            }
        }
        let keep = dims != Dims::None && inputs.bool(arg + 1)?;
        let strides = strides(input)?;
        let (mut kept, mut kept_strides) = (Sizes::EMPTY, Sizes::EMPTY);
        let (mut folded, mut folded_strides, mut out) = (Sizes::EMPTY, Sizes::EMPTY, Sizes::EMPTY);
        for (dim, (&size, &stride)) in input.dims.iter().zip(strides.iter()).enumerate() {
            if all || reduced[dim] {
                folded.push(size)?;
                folded_strides.push(stride)?;
                if keep {
                    out.push(1)?;
                }
            } else {
                kept.push(size)?;
                kept_strides.push(stride)?;
                out.push(size)?;
            }
        }
        Ok(Self {
            around: Loops::new(&kept, [&row_major(&kept)?, &kept_strides]),
            within: Loops::new(&folded, [&folded_strides]),
            count: folded.iter().fold(1, |count, &size| count.saturating_mul(size)),
            dims: out,
        })
    }

    /// Calls `fold` with the place of each element of the output and the first input element that goes into it.
    #[inline]
    fn each(&self, mut fold: impl FnMut(usize, usize)) {
        let (len, [step, far]) = (self.around.len, self.around.steps);
        self.around.each(|[o, i]| (0..len).for_each(|n| fold(o + n * step, i + n * far)));
    }

    /// Calls `visit` with each element that goes into the output whose first one is at `start`, in logical order.
    #[inline]
    fn elements<T: Copy>(&self, input: &[T], start: usize, mut visit: impl FnMut(T)) {
        let (len, [step]) = (self.within.len, self.within.steps);
        self.within.each(|[at]| (0..len).for_each(|n| visit(input[start + at + n * step])));
    }

    /// Added one by one in logical order, as ExecuTorch does: the last bit of a norm's mean decides codes of activations.
    fn sum<C: Number>(&self, input: &[C], start: usize) -> C {
        let mut sum = C::ZERO;
        self.elements(input, start, |value| sum = sum.plus(value));
        sum
    }
}

/// (a, dimensions or null, keep, element type or null, out)
fn mean(args: &mut KernelArgs<'_>) -> Result<()> {
    fn apply<C: Number>(a: &Tensor, reduction: &Reduction, out: &mut Tensor, by: impl Fn(C) -> C) -> Result<()> {
        let a = load::<C>(a)?;
        write(out, |out| reduction.each(|o, i| out[o] = by(reduction.sum(&a, i))))
    }
    let (inputs, out) = args.split(4)?;
    let a = inputs.tensor(0)?;
    check_dtype_arg(&inputs, 3, out.dtype)?;
    check_float("the output", out.dtype)?;
    check_order("the output", out)?;
    let reduction = Reduction::new(a, &inputs, 1, Dims::List)?;
    out.resize(&reduction.dims)?;
    let count = reduction.count;
    match Compute::of(out.dtype)? {
        Compute::F64 => apply(a, &reduction, out, |sum: f64| sum / count as f64),
        _ => apply(a, &reduction, out, |sum: f32| sum / count as f32),
    }
}

/// (a, dimensions or null, keep, element type or null, out)
fn sum(args: &mut KernelArgs<'_>) -> Result<()> {
    fn apply<C: Number>(a: &Tensor, reduction: &Reduction, out: &mut Tensor) -> Result<()> {
        let a = load::<C>(a)?;
        write(out, |out| reduction.each(|o, i| out[o] = reduction.sum(&a, i)))
    }
    let (inputs, out) = args.split(4)?;
    let a = inputs.tensor(0)?;
    check_dtype_arg(&inputs, 3, out.dtype)?;
    check_cast(a.dtype, out.dtype)?;
    check_order("the output", out)?;
    let reduction = Reduction::new(a, &inputs, 1, Dims::List)?;
    out.resize(&reduction.dims)?;
    match Compute::of(out.dtype)? {
        Compute::F32 => apply::<f32>(a, &reduction, out),
        Compute::F64 => apply::<f64>(a, &reduction, out),
        Compute::I64 => apply::<i64>(a, &reduction, out),
    }
}

/// Whether `new` takes the place of `old`, where what is no number beats all.
fn beats<C: Number>(new: C, old: C, better: impl Fn(&C, &C) -> bool) -> bool {
    !old.is_unordered() && (new.is_unordered() || better(&new, &old))
}

fn check_something(a: &Tensor, reduction: &Reduction) -> Result<()> {
    if reduction.count == 0 { Err(OpError::NothingToReduce(a.dims.clone()).into()) } else { Ok(()) }
}

/// (a, dimensions, keep, out)
fn extreme(args: &mut KernelArgs<'_>, better: impl Fn(f64, f64) -> bool + Copy) -> Result<()> {
    fn apply<C: Number>(
        a: &Tensor,
        reduction: &Reduction,
        out: &mut Tensor,
        better: impl Fn(&C, &C) -> bool,
    ) -> Result<()> {
        let a = load::<C>(a)?;
        write(out, |out| {
            reduction.each(|o, i| {
                let mut best = a[i];
                reduction.elements(&a, i, |value| {
                    if beats(value, best, &better) {
                        best = value;
                    }
                });
                out[o] = best;
            });
        })
    }
    let (inputs, out) = args.split(3)?;
    let a = inputs.tensor(0)?;
    if a.dtype != out.dtype {
        return Err(OpError::TypesDiffer { what: "the output", have: out.dtype, want: a.dtype }.into());
    }
    check_order("the output", out)?;
    let reduction = Reduction::new(a, &inputs, 1, Dims::List)?;
    check_something(a, &reduction)?;
    out.resize(&reduction.dims)?;
    match Compute::of(a.dtype)? {
        Compute::F32 => apply(a, &reduction, out, |&new: &f32, &old| better(new.into(), old.into())),
        Compute::F64 => apply(a, &reduction, out, |&new: &f64, &old| better(new, old)),
        // The order of two integers is that of their order and an equal one, whatever their size.
        Compute::I64 => apply(a, &reduction, out, |new: &i64, old| better(new.cmp(old) as i8 as f64, 0.0)),
    }
}

/// (a, [dimension or dimensions, keep,] out)
fn any(args: &mut KernelArgs<'_>, dims: Dims) -> Result<()> {
    let (inputs, out) = args.split(if dims == Dims::None { 1 } else { 3 })?;
    let a = inputs.tensor(0)?;
    if !matches!(out.dtype, DType::Bool | DType::U8) {
        return Err(OpError::Type { what: "the output", dtype: out.dtype }.into());
    }
    check_order("the output", out)?;
    let reduction = Reduction::new(a, &inputs, 1, dims)?;
    out.resize(&reduction.dims)?;
    let a = load_truth(a)?;
    write_truth(out, |out| {
        reduction.each(|o, i| {
            out[o] = 0;
            reduction.elements(&a, i, |value| out[o] |= value);
        });
    })
}

/// (a, dimension or null, keep, out): the first place of the largest.
fn argmax(args: &mut KernelArgs<'_>) -> Result<()> {
    fn apply<C: Number>(a: &Tensor, reduction: &Reduction, out: &mut Tensor) -> Result<()> {
        let a = load::<C>(a)?;
        let out = out.view_mut::<i64>()?;
        reduction.each(|o, i| {
            let (mut best, mut place, mut at) = (a[i], 0, 0);
            reduction.elements(&a, i, |value| {
                if beats(value, best, |new, old| new > old) {
                    (best, place) = (value, at);
                }
                at += 1;
            });
            out[o] = place;
        });
        Ok(())
    }
    let (inputs, out) = args.split(3)?;
    let a = inputs.tensor(0)?;
    for (what, tensor) in [("the input", a), ("the output", &*out)] {
        check_order(what, tensor)?;
    }
    let reduction = Reduction::new(a, &inputs, 1, Dims::One)?;
    check_something(a, &reduction)?;
    out.resize(&reduction.dims)?;
    match Compute::of(a.dtype)? {
        Compute::F32 => apply::<f32>(a, &reduction, out),
        Compute::F64 => apply::<f64>(a, &reduction, out),
        Compute::I64 => apply::<i64>(a, &reduction, out),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Call, elements};
    use super::*;
    use crate::pte::EValue;

    const NAN: f32 = f32::NAN;

    fn cube() -> Call {
        Call::new().constant(DType::F32, &[2, 2, 3], &[1.0f32, 2., 3., 4., 5., 6., 7., 8., 9., 10., 11., 12.])
    }

    #[test]
    fn mean_over_any_dimensions() {
        for (dims, keep, bounds, want_dims, want) in [
            (&[-1][..], true, &[2, 2, 1][..], &[2, 2, 1][..], &[2.0f32, 5.0, 8.0, 11.0][..]),
            (&[2], false, &[2, 5], &[2, 2], &[2.0, 5.0, 8.0, 11.0]),
            (&[0], false, &[2, 3], &[2, 3], &[4.0, 5.0, 6.0, 7.0, 8.0, 9.0]),
            (&[1], true, &[2, 1, 3], &[2, 1, 3], &[2.5, 3.5, 4.5, 8.5, 9.5, 10.5]),
            (&[0, 2], false, &[2], &[2], &[5.0, 8.0]),
            (&[], false, &[], &[], &[6.5]),
        ] {
            let call = cube().ints(dims).value(EValue::Bool(keep)).value(EValue::Null);
            let (got_dims, bytes) = call.output(DType::F32, bounds).run("aten::mean", "out").unwrap();
            assert_eq!((&got_dims[..], &elements::<f32>(&bytes)[..]), (want_dims, want), "{dims:?}");
        }
        let call = cube().value(EValue::Null).value(EValue::Bool(true)).int(6);
        let (dims, bytes) = call.output(DType::F32, &[1, 1, 1]).run("aten::mean", "out").unwrap();
        assert_eq!((dims, elements::<f32>(&bytes)), (vec![1, 1, 1], vec![6.5]));
    }

    #[test]
    fn mean_of_long_rows_of_integers_and_of_nothing() {
        let row: Vec<i32> = (0..101).collect();
        let call = Call::new().constant(DType::I32, &[101], &row).ints(&[0]).value(EValue::Bool(false));
        let call = call.value(EValue::Null).output(DType::F32, &[]);
        assert_eq!(elements::<f32>(&call.run("aten::mean", "out").unwrap().1), [50.0]);
        let call = Call::new().constant::<f32>(DType::F32, &[2, 0], &[]).ints(&[1]).value(EValue::Bool(false));
        let call = call.value(EValue::Null).output(DType::F32, &[2]);
        assert!(elements::<f32>(&call.run("aten::mean", "out").unwrap().1).iter().all(|mean| mean.is_nan()));
    }

    #[test]
    fn sums_stay_integers() {
        let call = Call::new().constant(DType::Bool, &[2, 3], &[1u8, 1, 0, 1, 1, 1]).ints(&[1]);
        let call = call.value(EValue::Bool(false)).value(EValue::Null).output(DType::I64, &[2]);
        assert_eq!(elements::<i64>(&call.run("aten::sum", "IntList_out").unwrap().1), [2, 3]);
    }

    #[test]
    fn extremes_and_their_place() {
        let table = || Call::new().constant(DType::F32, &[3, 3], &[1.0f32, 3., 3., -1., NAN, 2., -5., -4., -6.]);
        let run = |name: &str| {
            let call = table().ints(&[1]).value(EValue::Bool(false)).output(DType::F32, &[3]);
            elements::<f32>(&call.run(name, "out").unwrap().1)
        };
        let (large, small) = (run("aten::amax"), run("aten::amin"));
        assert_eq!([large[0], large[2], small[0], small[2]], [3.0, -4.0, 1.0, -6.0]);
        assert!(large[1].is_nan() && small[1].is_nan());
        let call = table().int(-1).value(EValue::Bool(true)).output(DType::I64, &[3, 1]);
        let (dims, bytes) = call.run("aten::argmax", "out").unwrap();
        assert_eq!((dims, elements::<i64>(&bytes)), (vec![3, 1], vec![1, 1, 1]));
        let call = table().value(EValue::Null).value(EValue::Bool(false)).output(DType::I64, &[]);
        assert_eq!(elements::<i64>(&call.run("aten::argmax", "out").unwrap().1), [4]);
        let call = Call::new().constant(DType::I64, &[2], &[i64::MAX - 1, i64::MAX]).ints(&[]);
        let call = call.value(EValue::Bool(false)).output(DType::I64, &[]);
        assert_eq!(elements::<i64>(&call.run("aten::amax", "out").unwrap().1), [i64::MAX]);
    }

    #[test]
    fn any_of_a_row_of_some_rows_of_all() {
        let table = || Call::new().constant(DType::F32, &[2, 3], &[0.0f32, 0.0, 0.0, 0.0, NAN, 0.0]);
        let call = table().int(-1).value(EValue::Bool(true)).output(DType::Bool, &[2, 1]);
        assert_eq!(call.run("aten::any", "out").unwrap(), (vec![2, 1], vec![0, 1]));
        let call = table().ints(&[0]).value(EValue::Bool(false)).output(DType::Bool, &[3]);
        assert_eq!(call.run("aten::any", "dims_out").unwrap(), (vec![3], vec![0, 1, 0]));
        let call = table().output(DType::U8, &[]);
        assert_eq!(call.run("aten::any", "all_out").unwrap(), (vec![], vec![1]));
    }

    #[test]
    fn defects_are_named() {
        let mean = |dims: &[i64], out: DType| {
            let call = cube().ints(dims).value(EValue::Bool(true)).value(EValue::Null);
            call.output(out, &[2, 2, 3]).run("aten::mean", "out")
        };
        let nothing = Call::new().constant::<f32>(DType::F32, &[2, 0], &[]);
        for (result, want) in [
            (mean(&[3], DType::F32), "dimension 3 of a tensor with 3"),
            (mean(&[1, -2], DType::F32), "dimension 1 is named twice"),
            (mean(&[1], DType::I32), "the output cannot be i32"),
            (
                cube()
                    .ints(&[1])
                    .value(EValue::Bool(true))
                    .int(7)
                    .output(DType::F32, &[2, 1, 3])
                    .run("aten::mean", "out"),
                "a tensor has f32 elements, its type says f64",
            ),
            (
                nothing.ints(&[1]).value(EValue::Bool(false)).output(DType::F32, &[2]).run("aten::amax", "out"),
                "nothing to reduce in sizes [2, 0]",
            ),
            (
                cube().int(0).value(EValue::Bool(false)).output(DType::F32, &[2, 3]).run("aten::any", "out"),
                "the output cannot be f32",
            ),
            (
                cube().int(0).value(EValue::Bool(false)).output(DType::I32, &[2, 3]).run("aten::argmax", "out"),
                "a tensor of i32 is read as i64",
            ),
        ] {
            let text = result.unwrap_err().chain();
            assert!(text.ends_with(want), "{text}");
        }
    }
}
