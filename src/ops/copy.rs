//! Copying elements between tensors that lie in memory in different ways, and the `aten::` operators that only copy:
//! clone, _to_copy, copy_, and their forms that name an order of dimensions.

use super::error::OpError;
use super::layout::{Loops, Sizes, spread_tensor, strides};
use super::number::{Number, load, write};
use super::promote::Compute;
use crate::error::Result;
use crate::runtime::{KernelArgs, KernelRegistry, Tensor, Value};
use crate::tensor::{DType, Element};

pub(super) fn register(registry: &mut KernelRegistry) {
    registry.register("aten::clone.out", |args| duplicate(args, 2, Order::Format(1)));
    registry.register("aten::_to_copy.out", |args| convert(args, 3, Order::Format(2)));
    registry.register("aten::copy_", |args| fill(args, 0));
    registry.register("aten::copy.out", copy);
    registry.register("aten::alias_copy.out", |args| duplicate(args, 1, Order::Any));
    registry.register("aten::detach_copy.out", |args| duplicate(args, 1, Order::Any));
    registry.register("aten::lift_fresh_copy.out", |args| duplicate(args, 1, Order::Any));
    registry.register("dim_order_ops::_clone_dim_order.out", |args| duplicate(args, 3, Order::Dims(2)));
    registry.register("dim_order_ops::_to_dim_order_copy.out", |args| convert(args, 3, Order::Dims(2)));
}

/// Elements of a source from `start` on, at `strides`.
#[derive(Clone, Copy)]
pub(super) struct Part<'a> {
    pub(super) tensor: &'a Tensor,
    pub(super) start: usize,
    pub(super) strides: Sizes,
}

impl<'a> Part<'a> {
    /// The whole tensor, seen at sizes `to`.
    pub(super) fn spread(tensor: &'a Tensor, to: &[usize]) -> Result<Self> {
        Ok(Self { tensor, start: 0, strides: spread_tensor(tensor, to)? })
    }
}

/// Where elements go: sizes and strides in an output, from `start` on.
#[derive(Clone, Copy)]
pub(super) struct Target {
    pub(super) start: usize,
    pub(super) dims: Sizes,
    pub(super) strides: Sizes,
}

impl Target {
    /// The whole output.
    pub(super) fn whole(out: &Tensor) -> Result<Self> {
        Ok(Self { start: 0, dims: Sizes::new(&out.dims)?, strides: strides(out)? })
    }
}

fn move_as<T: Element>(from: Part<'_>, target: Target, out: &mut Tensor) -> Result<()> {
    let loops = Loops::<2>::new(&target.dims, [&target.strides, &from.strides]);
    loops.copy(&from.tensor.view::<T>()?[from.start..], &mut out.view_mut::<T>()?[target.start..]);
    Ok(())
}

/// Copies elements of one type.
pub(super) fn move_elements(from: Part<'_>, target: Target, out: &mut Tensor) -> Result<()> {
    if from.tensor.dtype != out.dtype {
        return Err(OpError::TypesDiffer { what: "the input", have: from.tensor.dtype, want: out.dtype }.into());
    }
    if target.dims.contains(&0) {
        return Ok(());
    }
    match out.dtype {
        DType::U8 | DType::QU8 | DType::Bool => move_as::<u8>(from, target, out),
        DType::I8 | DType::QI8 => move_as::<i8>(from, target, out),
        DType::U16 | DType::Bits16 | DType::F16 | DType::BF16 => move_as::<u16>(from, target, out),
        DType::I16 => move_as::<i16>(from, target, out),
        DType::U32 => move_as::<u32>(from, target, out),
        DType::I32 | DType::QI32 => move_as::<i32>(from, target, out),
        DType::U64 => move_as::<u64>(from, target, out),
        DType::I64 => move_as::<i64>(from, target, out),
        DType::F32 => move_as::<f32>(from, target, out),
        DType::F64 => move_as::<f64>(from, target, out),
    }
}

/// Copies all of `from`, broadcast, to the whole output and converts on the way.
pub(super) fn assign(from: &Tensor, out: &mut Tensor) -> Result<()> {
    fn apply<C: Number>(from: &Tensor, out: &mut Tensor) -> Result<()> {
        let loops = Loops::<2>::new(&out.dims, [&strides(out)?, &spread_tensor(from, &out.dims)?]);
        let from = load::<C>(from)?;
        write(out, |out| loops.copy(&from, out))
    }
    if from.dtype == out.dtype {
        return move_elements(Part::spread(from, &out.dims)?, Target::whole(out)?, out);
    }
    match Compute::of(from.dtype)? {
        Compute::F32 => apply::<f32>(from, out),
        Compute::F64 => apply::<f64>(from, out),
        Compute::I64 => apply::<i64>(from, out),
    }
}

/// What an operator says about the output's order in memory. The program has laid the output out by it already.
#[derive(Clone, Copy)]
enum Order {
    Any,
    /// The argument with PyTorch's number of a memory format, or null.
    Format(usize),
    /// The argument with the dimensions in order, or null.
    Dims(usize),
}

impl Order {
    fn check(self, args: &KernelArgs<'_>, out: &Tensor) -> Result<()> {
        let inputs = args.inputs();
        let fits = match self {
            Self::Any => true,
            Self::Format(arg) => match inputs.value(arg)? {
                Value::Null => true,
                // Contiguous, preserve. Channels last are not for language models.
                _ => match inputs.int(arg)? {
                    0 => out.is_contiguous(),
                    1 => true,
                    other => return Err(OpError::Operands(format!("memory format {other}")).into()),
                },
            },
            Self::Dims(arg) => match inputs.value(arg)? {
                Value::Null => true,
                _ => {
                    let dims = inputs.ints(arg)?;
                    let mut fits = dims.len() == out.dim_order.len();
                    for (dim, &want) in dims.zip(&out.dim_order) {
                        fits &= dim? == i64::from(want);
                    }
                    fits
                }
            },
        };
        if fits { Ok(()) } else { Err(OpError::Order { what: "the output" }.into()) }
    }
}

/// (a, …, out), of one type.
fn duplicate(args: &mut KernelArgs<'_>, place: usize, order: Order) -> Result<()> {
    order.check(args, args.tensor(place)?)?;
    let (inputs, out) = args.split(place)?;
    let a = inputs.tensor(0)?;
    out.resize(&a.dims)?;
    move_elements(Part::spread(a, &a.dims)?, Target::whole(out)?, out)
}

/// (a, …, out), of any types.
fn convert(args: &mut KernelArgs<'_>, place: usize, order: Order) -> Result<()> {
    order.check(args, args.tensor(place)?)?;
    let (inputs, out) = args.split(place)?;
    let a = inputs.tensor(0)?;
    out.resize(&a.dims)?;
    assign(a, out)
}

/// (a, from, …): a becomes what it is given, at its own sizes.
fn fill(args: &mut KernelArgs<'_>, place: usize) -> Result<()> {
    let (inputs, a) = args.split(place)?;
    assign(inputs.tensor(1)?, a)
}

/// (a, from, non-blocking, out): at the sizes of a.
fn copy(args: &mut KernelArgs<'_>) -> Result<()> {
    let (inputs, out) = args.split(3)?;
    out.resize(&inputs.tensor(0)?.dims)?;
    assign(inputs.tensor(1)?, out)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Call, elements};
    use super::*;
    use crate::pte::EValue;
    use half::f16;

    #[test]
    fn a_clone_is_the_same_in_another_order() {
        let call = Call::new().constant(DType::I32, &[2, 3], &[1i32, 2, 3, 4, 5, 6]).value(EValue::Null);
        let (dims, bytes) = call.output_in(DType::I32, &[2, 3], &[1, 0]).run("aten::clone", "out").unwrap();
        assert_eq!((dims, elements::<i32>(&bytes)), (vec![2, 3], vec![1, 4, 2, 5, 3, 6]));
        let call = Call::new().constant_in(DType::I32, &[2, 3], &[1, 0], &[1i32, 4, 2, 5, 3, 6]).int(0);
        let (_, bytes) = call.output(DType::I32, &[2, 3]).run("aten::clone", "out").unwrap();
        assert_eq!(elements::<i32>(&bytes), [1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn to_copy_converts_as_c_does() {
        fn run<T: Element, O: Element>(from: DType, values: &[T], to: DType) -> Vec<O> {
            let call = Call::new().constant(from, &[values.len()], values).value(EValue::Bool(false));
            let call = call.value(EValue::Null).output(to, &[values.len()]);
            elements(&call.run("aten::_to_copy", "out").unwrap().1)
        }
        assert_eq!(run::<i32, i64>(DType::I32, &[-7, 5], DType::I64), [-7, 5]);
        assert_eq!(run::<i64, i8>(DType::I64, &[-128, 127, 300], DType::I8), [-128, 127, 44]);
        assert_eq!(run::<f64, f32>(DType::F64, &[0.1, -1e300], DType::F32), [0.1, f32::NEG_INFINITY]);
        assert_eq!(run::<f32, i64>(DType::F32, &[-1.9, 2.9], DType::I64), [-1, 2]);
        assert_eq!(run::<f32, u8>(DType::F32, &[0.0, 0.5, f32::NAN], DType::Bool), [0, 1, 1]);
        assert_eq!(run::<u8, f32>(DType::Bool, &[1, 0], DType::F32), [1.0, 0.0]);
        let half = |value: f32| f16::from_f32(value).to_bits();
        assert_eq!(run::<f32, u16>(DType::F32, &[1.5, 70_000.0], DType::F16), [half(1.5), half(f32::INFINITY)]);
        assert_eq!(run::<u16, u16>(DType::BF16, &[0x3fc0], DType::F16), [half(1.5)]);
    }

    #[test]
    fn copy_fills_state_in_place_and_broadcasts() {
        let call = Call::new().state(DType::F32, &[2, 2], &[9.0f32; 4]).constant(DType::I64, &[2], &[1i64, 2]);
        let (dims, bytes) = call.value(EValue::Bool(false)).again(0).run("aten::copy_", "").unwrap();
        assert_eq!((dims, elements::<f32>(&bytes)), (vec![2, 2], vec![1.0, 2.0, 1.0, 2.0]));
        let call = Call::new().constant(DType::F32, &[2, 1], &[0.0f32; 2]).constant(DType::F32, &[1], &[3.0f32]);
        let call = call.value(EValue::Bool(false)).output(DType::F32, &[4, 1]);
        let (dims, bytes) = call.run("aten::copy", "out").unwrap();
        assert_eq!((dims, elements::<f32>(&bytes)), (vec![2, 1], vec![3.0, 3.0]));
    }

    #[test]
    fn orders_that_are_named() {
        let call = |order: &[i64]| {
            let call = Call::new().constant(DType::F32, &[1, 2], &[1.0f32, 2.0]).value(EValue::Bool(false));
            call.ints(order).output(DType::F64, &[1, 2]).run("dim_order_ops::_to_dim_order_copy", "out")
        };
        assert_eq!(elements::<f64>(&call(&[0, 1]).unwrap().1), [1.0, 2.0]);
        for order in [&[1, 0][..], &[0]] {
            let text = call(order).unwrap_err().chain();
            assert!(text.ends_with("the output does not lie in memory in logical order"), "{text}");
        }
    }

    #[test]
    fn defects_are_named() {
        let float = || Call::new().constant(DType::F32, &[2], &[1.0f32; 2]);
        for (result, want) in [
            (
                float().value(EValue::Null).output(DType::F64, &[2]).run("aten::clone", "out"),
                "the input has f32 elements, its type says f64",
            ),
            (float().int(2).output(DType::F32, &[2]).run("aten::clone", "out"), "it cannot take memory format 2"),
            (
                Call::new()
                    .state(DType::F32, &[3], &[0.0f32; 3])
                    .constant(DType::F32, &[2], &[0.0f32; 2])
                    .value(EValue::Bool(false))
                    .again(0)
                    .run("aten::copy_", ""),
                "sizes [2] cannot be broadcast to [3]",
            ),
            (
                float()
                    .constant(DType::F32, &[2], &[1.0f32; 2])
                    .value(EValue::Bool(false))
                    .again(0)
                    .output(DType::F32, &[1])
                    .run("aten::copy_", ""),
                "a constant tensor is written to",
            ),
        ] {
            let text = result.unwrap_err().chain();
            assert!(text.ends_with(want), "{text}");
        }
    }
}
