//! `executorch_prim::*` and the `aten::sym_*` beside them: arithmetic on the sizes of a program's tensors, and views.
//!
//! Integers follow C, as in ExecuTorch: `mod` has the sign of the dividend, while `floordiv.Scalar` is Python's. What is
//! undefined there (overflow, division by zero) is an error here.

use super::error::OpError;
use crate::error::Result;
use crate::runtime::{KernelArgs, KernelRegistry, Value};
use crate::tensor::{DType, MAX_RANK};
use half::{bf16, f16};
use std::cmp::Ordering;

pub(super) fn register(registry: &mut KernelRegistry) {
    let mut prim = |name: &str, kernel| registry.register(&format!("executorch_prim::{name}"), kernel);
    prim("add.Scalar", |args| {
        arithmetic(args, |a, b| a.checked_add(b).ok_or(OpError::Overflow("a sum")), |a, b| a + b)
    });
    prim("sub.Scalar", |args| {
        arithmetic(args, |a, b| a.checked_sub(b).ok_or(OpError::Overflow("a difference")), |a, b| a - b)
    });
    prim("mul.Scalar", |args| {
        arithmetic(args, |a, b| a.checked_mul(b).ok_or(OpError::Overflow("a product")), |a, b| a * b)
    });
    prim("floordiv.Scalar", |args| arithmetic(args, floor_div_int, floor_div));
    prim("floordiv.int", |args| integers(args, divide));
    prim("mod.Scalar", |args| integers(args, modulo));
    prim("mod.int", |args| integers(args, modulo));
    prim("sym_max.Scalar", |args| integers(args, |a, b| Ok(a.max(b))));
    prim("sym_min.Scalar", |args| integers(args, |a, b| Ok(a.min(b))));
    prim("truediv.Scalar", |args| {
        let quotient = args.double(0)? / args.double(1)?;
        args.set(2, Value::Double(quotient))
    });
    prim("eq.Scalar", |args| compare(args, |order| order == Some(Ordering::Equal)));
    prim("gt.Scalar", |args| compare(args, |order| order == Some(Ordering::Greater)));
    prim("lt.Scalar", |args| compare(args, |order| order == Some(Ordering::Less)));
    prim("ge.Scalar", |args| compare(args, |order| matches!(order, Some(Ordering::Greater | Ordering::Equal))));
    prim("le.Scalar", |args| compare(args, |order| matches!(order, Some(Ordering::Less | Ordering::Equal))));
    prim("neg.Scalar", |args| {
        let value = match args.value(0)? {
            Value::Int(int) => Value::Int(int.checked_neg().ok_or(OpError::Overflow("a negation"))?),
            Value::Double(double) => Value::Double(-double),
            other => return Err(OpError::Operands(other.to_string()).into()),
        };
        args.set(1, value)
    });
    prim("sym_float.Scalar", |args| {
        let double = args.double(0)?;
        args.set(1, Value::Double(double))
    });
    prim("sym_int.Scalar", |args| match *args.value(0)? {
        Value::Int(int) => args.set(1, Value::Int(int)),
        _ => to_int(args, f64::trunc),
    });
    prim("ceil.Scalar", |args| to_int(args, f64::ceil));
    prim("round.Scalar", |args| to_int(args, f64::round_ties_even));
    prim("trunc.Scalar", |args| to_int(args, f64::trunc));
    prim("sym_not.Scalar", |args| {
        let not = !args.bool(0)?;
        args.set(1, Value::Bool(not))
    });
    prim("sym_ite.Scalar", |args| {
        let chosen = args.value(if args.bool(0)? { 1 } else { 2 })?;
        match chosen {
            Value::Int(_) | Value::Double(_) | Value::Bool(_) => {
                let chosen = chosen.clone();
                args.set(3, chosen)
            }
            other => Err(OpError::Operands(other.to_string()).into()),
        }
    });
    prim("et_copy_index.tensor", copy_index);
    prim("et_view.default", view);
    registry.register("aten::sym_size.int", sym_size);
    registry.register("aten::sym_numel", |args| {
        let len = args.tensor(0)?.len() as i64;
        args.set(1, Value::Int(len))
    });
    registry.register("aten::_local_scalar_dense", local_scalar);
}

fn operands(args: &KernelArgs<'_>) -> Result<OpError> {
    Ok(OpError::Operands(format!("{} and {}", args.value(0)?, args.value(1)?)))
}

/// (a, b, out): integers when both are, otherwise doubles.
fn arithmetic(
    args: &mut KernelArgs<'_>,
    int: impl Fn(i64, i64) -> Result<i64, OpError>,
    double: impl Fn(f64, f64) -> f64,
) -> Result<()> {
    let value = match (args.value(0)?, args.value(1)?) {
        (&Value::Int(a), &Value::Int(b)) => Value::Int(int(a, b)?),
        (Value::Int(_) | Value::Double(_), Value::Int(_) | Value::Double(_)) => {
            Value::Double(double(args.double(0)?, args.double(1)?))
        }
        _ => return Err(operands(args)?.into()),
    };
    args.set(2, value)
}

/// (a, b, out), integers only.
fn integers(args: &mut KernelArgs<'_>, int: impl Fn(i64, i64) -> Result<i64, OpError>) -> Result<()> {
    match (args.value(0)?, args.value(1)?) {
        (&Value::Int(a), &Value::Int(b)) => args.set(2, Value::Int(int(a, b)?)),
        _ => Err(operands(args)?.into()),
    }
}

/// (a, b, out): numbers or truth values.
fn compare(args: &mut KernelArgs<'_>, want: impl Fn(Option<Ordering>) -> bool) -> Result<()> {
    let order = match (args.value(0)?, args.value(1)?) {
        (Value::Int(a), Value::Int(b)) => Some(a.cmp(b)),
        (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
        (Value::Int(_) | Value::Double(_), Value::Int(_) | Value::Double(_)) => {
            args.double(0)?.partial_cmp(&args.double(1)?)
        }
        _ => return Err(operands(args)?.into()),
    };
    args.set(2, Value::Bool(want(order)))
}

/// (a, out): a double made an integer.
fn to_int(args: &mut KernelArgs<'_>, round: impl Fn(f64) -> f64) -> Result<()> {
    let &Value::Double(double) = args.value(0)? else {
        return Err(OpError::Operands(args.value(0)?.to_string()).into());
    };
    let rounded = round(double);
    // Both ends of the range are exact in f64; the upper one is one past the largest integer.
    if !(-(2f64.powi(63))..2f64.powi(63)).contains(&rounded) {
        return Err(OpError::NotAnInteger(double).into());
    }
    args.set(1, Value::Int(rounded as i64))
}

fn divide(a: i64, b: i64) -> Result<i64, OpError> {
    match b {
        0 => Err(OpError::DivisionByZero(a)),
        _ => a.checked_div(b).ok_or(OpError::Overflow("a quotient")),
    }
}

fn modulo(a: i64, b: i64) -> Result<i64, OpError> {
    match b {
        0 => Err(OpError::DivisionByZero(a)),
        _ => Ok(a.wrapping_rem(b)),
    }
}

fn floor_div_int(a: i64, b: i64) -> Result<i64, OpError> {
    let quotient = divide(a, b)?;
    Ok(if (a < 0) != (b < 0) && a.wrapping_rem(b) != 0 { quotient - 1 } else { quotient })
}

/// Python's `a // b`, with infinity where Python raises.
fn floor_div(a: f64, b: f64) -> f64 {
    if b == 0.0 {
        return f64::INFINITY.copysign(a);
    }
    let rest = a % b;
    let quotient = (a - rest) / b;
    if rest != 0.0 && b.is_sign_negative() != rest.is_sign_negative() { quotient - 1.0 } else { quotient }
}

/// (tensor, dim, out)
fn sym_size(args: &mut KernelArgs<'_>) -> Result<()> {
    let (tensor, dim) = (args.tensor(0)?, args.int(1)?);
    let size = usize::try_from(dim).ok().and_then(|dim| tensor.dims.get(dim));
    let size = *size.ok_or(OpError::Dimension { dim, rank: tensor.dims.len() })?;
    args.set(2, Value::Int(size as i64))
}

/// (tensor, out): its first element.
fn local_scalar(args: &mut KernelArgs<'_>) -> Result<()> {
    let tensor = args.tensor(0)?;
    let empty = || OpError::Shape { what: "a scalar", dims: tensor.dims.clone() };
    macro_rules! first {
        ($type:ty) => {
            *tensor.view::<$type>()?.first().ok_or_else(empty)?
        };
    }
    let value = match tensor.dtype {
        DType::U8 => Value::Int(first!(u8).into()),
        DType::I8 => Value::Int(first!(i8).into()),
        DType::I16 => Value::Int(first!(i16).into()),
        DType::I32 => Value::Int(first!(i32).into()),
        DType::I64 => Value::Int(first!(i64)),
        DType::Bool => Value::Bool(first!(u8) != 0),
        DType::F16 => Value::Double(f16::from_bits(first!(u16)).into()),
        DType::BF16 => Value::Double(bf16::from_bits(first!(u16)).into()),
        DType::F32 => Value::Double(first!(f32).into()),
        DType::F64 => Value::Double(first!(f64)),
        dtype => return Err(OpError::Type { what: "a scalar", dtype }.into()),
    };
    args.set(1, value)
}

/// (to, from, index): row `index` of `to` becomes `from`; `to` grows to hold it.
fn copy_index(args: &mut KernelArgs<'_>) -> Result<()> {
    let (inputs, to) = args.split(0)?;
    let (from, index) = (inputs.tensor(1)?, inputs.int(2)?);
    if from.dtype != to.dtype {
        return Err(OpError::TypesDiffer { what: "the row", have: from.dtype, want: to.dtype }.into());
    }
    let rank = from.dims.len() + 1;
    let row = usize::try_from(index).ok().filter(|&row| row < to.bounds.first().copied().unwrap_or(0));
    let row = row.ok_or(OpError::Index { index, len: to.bounds.first().copied().unwrap_or(0) })?;
    let mut dims = [0; MAX_RANK];
    if rank > MAX_RANK || to.dims.len() != rank || (row > 0 && to.dims[1..] != from.dims) {
        return Err(OpError::Shape { what: "the row", dims: from.dims.clone() }.into());
    }
    if to.dims[0] <= row {
        dims[0] = row + 1;
        dims[1..rank].copy_from_slice(&from.dims);
        to.resize(&dims[..rank])?;
    }
    let source = from.bytes()?;
    let bad = || OpError::Shape { what: "the row", dims: from.dims.clone() };
    let start = row.checked_mul(source.len()).ok_or_else(bad)?;
    let target = to.bytes_mut()?.get_mut(start..).and_then(|rest| rest.get_mut(..source.len()));
    target.ok_or_else(bad)?.copy_from_slice(source);
    Ok(())
}

/// (tensor, sizes, out): out shares the tensor's bytes; one size may be -1.
fn view(args: &mut KernelArgs<'_>) -> Result<()> {
    let inputs = args.inputs();
    let (len, sizes) = (inputs.tensor(0)?.len(), inputs.ints(1)?);
    let rank = sizes.len();
    let mut asked = [0i64; MAX_RANK];
    if rank > MAX_RANK {
        return Err(OpError::Dimension { dim: rank as i64, rank: MAX_RANK }.into());
    }
    for (asked, size) in asked.iter_mut().zip(sizes) {
        *asked = size?;
    }
    let asked = &asked[..rank];
    let bad = || OpError::ViewSizes(asked.to_vec());
    let mut dims = [0usize; MAX_RANK];
    let (mut known, mut open) = (1usize, None);
    for (place, &size) in asked.iter().enumerate() {
        if size == -1 && open.is_none() {
            open = Some(place);
        } else {
            dims[place] = usize::try_from(size).map_err(|_| bad())?;
            known = known.checked_mul(dims[place]).ok_or_else(bad)?;
        }
    }
    if let Some(place) = open {
        dims[place] = len.checked_div(known).ok_or_else(bad)?;
    }
    args.view_as(0, 2, &dims[..rank])
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Call, elements};
    use super::*;
    use crate::pte::EValue;

    fn int(int: i64) -> EValue {
        EValue::Int(int)
    }

    fn double(double: f64) -> EValue {
        EValue::Double(double)
    }

    fn scalar(name: &str, operands: &[EValue]) -> Result<Value> {
        let call = operands.iter().fold(Call::new(), |call, operand| call.value(operand.clone()));
        let (name, overload) = name.split_once('.').unwrap();
        call.scalar(&format!("executorch_prim::{name}"), overload)
    }

    #[test]
    fn scalars_follow_executorch() {
        for (name, operands, want) in [
            ("add.Scalar", &[int(2), int(3)][..], "int 5"),
            ("add.Scalar", &[int(2), double(0.5)], "double 2.5"),
            ("sub.Scalar", &[double(1.5), int(2)], "double -0.5"),
            ("mul.Scalar", &[int(-4), int(3)], "int -12"),
            ("floordiv.Scalar", &[int(-7), int(2)], "int -4"),
            ("floordiv.Scalar", &[int(7), int(-2)], "int -4"),
            ("floordiv.Scalar", &[int(-8), int(2)], "int -4"),
            ("floordiv.Scalar", &[int(0), int(-3)], "int 0"),
            ("floordiv.Scalar", &[double(-7.0), int(2)], "double -4"),
            ("floordiv.Scalar", &[double(7.5), double(2.0)], "double 3"),
            ("floordiv.Scalar", &[double(-1.0), double(0.0)], "double -inf"),
            ("floordiv.int", &[int(-7), int(2)], "int -3"),
            ("truediv.Scalar", &[int(7), int(2)], "double 3.5"),
            ("mod.Scalar", &[int(-7), int(3)], "int -1"),
            ("mod.int", &[int(7), int(-3)], "int 1"),
            ("mod.int", &[int(i64::MIN), int(-1)], "int 0"),
            ("sym_max.Scalar", &[int(7), int(-3)], "int 7"),
            ("sym_min.Scalar", &[int(7), int(-3)], "int -3"),
            ("eq.Scalar", &[int(2), double(2.0)], "bool true"),
            ("eq.Scalar", &[double(f64::NAN), double(f64::NAN)], "bool false"),
            ("eq.Scalar", &[EValue::Bool(true), EValue::Bool(true)], "bool true"),
            ("gt.Scalar", &[int(i64::MAX), int(i64::MAX - 1)], "bool true"),
            ("lt.Scalar", &[int(2), int(2)], "bool false"),
            ("ge.Scalar", &[int(2), int(2)], "bool true"),
            ("le.Scalar", &[double(2.5), int(2)], "bool false"),
            ("neg.Scalar", &[int(5)], "int -5"),
            ("neg.Scalar", &[double(5.5)], "double -5.5"),
            ("sym_float.Scalar", &[int(5)], "double 5"),
            ("sym_int.Scalar", &[double(-1.75)], "int -1"),
            ("ceil.Scalar", &[double(-1.5)], "int -1"),
            ("ceil.Scalar", &[double(9.999_999)], "int 10"),
            ("round.Scalar", &[double(0.5)], "int 0"),
            ("round.Scalar", &[double(1.5)], "int 2"),
            ("round.Scalar", &[double(-1.5)], "int -2"),
            ("trunc.Scalar", &[double(-0.5)], "int 0"),
            ("sym_not.Scalar", &[EValue::Bool(true)], "bool false"),
            ("sym_ite.Scalar", &[EValue::Bool(false), int(1), double(2.5)], "double 2.5"),
        ] {
            assert_eq!(scalar(name, operands).unwrap().to_string(), want, "{name} {operands:?}");
        }
    }

    #[test]
    fn undefined_arithmetic_is_an_error() {
        for (name, operands, want) in [
            ("add.Scalar", &[int(i64::MAX), int(1)][..], "a sum overflows"),
            ("sub.Scalar", &[int(i64::MIN), int(1)], "a difference overflows"),
            ("mul.Scalar", &[int(i64::MAX), int(2)], "a product overflows"),
            ("neg.Scalar", &[int(i64::MIN)], "a negation overflows"),
            ("floordiv.Scalar", &[int(i64::MIN), int(-1)], "a quotient overflows"),
            ("floordiv.int", &[int(1), int(0)], "division of 1 by zero"),
            ("floordiv.Scalar", &[int(1), int(0)], "division of 1 by zero"),
            ("mod.Scalar", &[int(1), int(0)], "division of 1 by zero"),
            ("ceil.Scalar", &[double(1e300)], "is no integer that 64 bits hold"),
            ("trunc.Scalar", &[double(f64::NAN)], "NaN is no integer that 64 bits hold"),
            ("round.Scalar", &[int(1)], "it cannot take int 1"),
            ("add.Scalar", &[int(1), EValue::Null], "it cannot take int 1 and null"),
            ("eq.Scalar", &[EValue::Bool(true), int(1)], "it cannot take bool true and int 1"),
            ("sym_max.Scalar", &[double(1.0), int(1)], "it cannot take double 1 and int 1"),
        ] {
            let error = scalar(name, operands).unwrap_err();
            assert!(error.find::<OpError>().is_some() && error.chain().ends_with(want), "{name}: {}", error.chain());
        }
    }

    #[test]
    fn sizes_and_first_elements() {
        let tensor = || Call::new().constant(DType::F32, &[2, 3], &[1.5f32; 6]);
        assert_eq!(tensor().int(1).scalar("aten::sym_size", "int").unwrap().to_string(), "int 3");
        assert_eq!(tensor().scalar("aten::sym_numel", "").unwrap().to_string(), "int 6");
        assert_eq!(tensor().scalar("aten::_local_scalar_dense", "").unwrap().to_string(), "double 1.5");
        let ids = Call::new().constant(DType::I64, &[1], &[-7i64]);
        assert_eq!(ids.scalar("aten::_local_scalar_dense", "").unwrap().to_string(), "int -7");
        let error = tensor().int(2).scalar("aten::sym_size", "int").unwrap_err();
        assert!(error.chain().ends_with("dimension 2 of a tensor with 2"), "{}", error.chain());
    }

    #[test]
    fn a_view_shares_bytes_and_infers_one_size() {
        let run = |sizes: &[i64], bounds: &[usize]| {
            let call = Call::new().constant(DType::I32, &[2, 3], &[1i32, 2, 3, 4, 5, 6]).ints(sizes);
            call.output(DType::I32, bounds).run("executorch_prim::et_view", "default")
        };
        let (dims, bytes) = run(&[3, -1], &[3, 2]).unwrap();
        assert_eq!((dims, elements::<i32>(&bytes)), (vec![3, 2], vec![1, 2, 3, 4, 5, 6]));
        for (sizes, want) in [
            (&[-1, -1][..], "a view cannot have the sizes [-1, -1]"),
            (&[-2, 3], "a view cannot have the sizes [-2, 3]"),
            (&[-1, 0], "a view cannot have the sizes [-1, 0]"),
            (&[-1, 4], "sizes [1, 4] do not fit the source's [2, 3]"),
            (&[6], "sizes [6] do not fit the upper bounds [3, 2]"),
        ] {
            let error = run(sizes, &[3, 2]).unwrap_err();
            assert!(error.chain().ends_with(want), "{}", error.chain());
        }
    }

    #[test]
    fn copy_index_writes_a_row_and_refuses_others() {
        let run = |index, row: &[u8]| {
            let call = Call::new().output(DType::U8, &[3, 2]).constant(DType::U8, &[row.len()], row).int(index);
            call.run("executorch_prim::et_copy_index", "tensor")
        };
        assert_eq!(run(2, &[7, 8]).unwrap(), (vec![3, 2], vec![0, 0, 0, 0, 7, 8]));
        for (index, row, want) in [
            (3, &[7, 8][..], "index 3 is outside 0..3"),
            (-1, &[7, 8], "index -1 is outside 0..3"),
            (1, &[7], "the row cannot have the sizes [1]"),
        ] {
            let error = run(index, row).unwrap_err();
            assert!(error.chain().ends_with(want), "{}", error.chain());
        }
    }
}
