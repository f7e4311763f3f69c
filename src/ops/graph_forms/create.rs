//! Operators that make tensors of numbers: full, zeros, ones, arange, scalar_tensor.

use super::call::{Call, Number};
use super::sizes::{difference, floor_quotient, restrict, sum};
use super::{Fit, Form, Unfit};
use crate::graph::{Int, Op};
use crate::tensor::DType;

pub(super) const FORMS: &[(&str, Form)] = &[
    ("aten::full.out", |call| {
        let (shape, number) = (call.ints(0)?, call.number(1)?);
        fill(call, shape, number, 2)
    }),
    ("aten::full_like.out", |call| {
        let like = call.arg(0)?;
        let (shape, number) = (call.method().shape(like)?, call.number(1)?);
        fill(call, shape, number, 3)
    }),
    ("aten::zeros.out", |call| {
        let shape = call.ints(0)?;
        fill(call, shape, Number::Int(Int::Const(0)), 1)
    }),
    ("aten::ones.out", |call| {
        let shape = call.ints(0)?;
        fill(call, shape, Number::Int(Int::Const(1)), 1)
    }),
    ("aten::scalar_tensor.out", scalar_tensor),
    ("aten::arange.out", |call| {
        let end = call.int(0)?;
        arange(call, Int::Const(0), end, 1, 1)
    }),
    ("aten::arange.start_out", |call| {
        let (start, end, step) = (call.int(0)?, call.int(1)?, call.known_int(2)?);
        arange(call, start, end, step, 3)
    }),
];

fn is_integer(dtype: DType) -> bool {
    matches!(dtype, DType::I64 | DType::I32 | DType::I16 | DType::I8 | DType::U8)
}

fn is_real(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F16 | DType::BF16)
}

fn fill(call: &mut Call<'_, '_>, shape: Vec<Int>, number: Number, out: usize) -> Fit {
    let dtype = call.stated_dtype(out)?;
    for &size in &shape {
        restrict(call.graph(), size, (0, i64::MAX))?;
    }
    let value = match number {
        Number::Double(real) if is_real(dtype) => real,
        Number::Int(Int::Const(int)) if is_real(dtype) || is_integer(dtype) => int as f64,
        Number::Bool(bool) if dtype == DType::Bool => f64::from(u8::from(bool)),
        _ => return Unfit::why(format!("{number:?} as {dtype}")),
    };
    if is_integer(dtype) && value.abs() >= 2f64.powi(8 * dtype.size() as i32 - 1).min(2f64.powi(53)) {
        return Unfit::why(format!("{value} as {dtype}"));
    }
    let filled = call.emit(Op::Fill { value }, &[], dtype, shape);
    call.set(out, filled)
}

/// (number, out)
fn scalar_tensor(call: &mut Call<'_, '_>) -> Fit {
    let (number, dtype) = (call.number(0)?, call.stated_dtype(1)?);
    match number {
        Number::Int(value) if is_integer(dtype) => {
            let scalar = call.emit(Op::Scalar { value }, &[], dtype, Vec::new());
            call.set(1, scalar)
        }
        _ => fill(call, Vec::new(), number, 1),
    }
}

/// Integers from `start` up to but without `end`.
fn arange(call: &mut Call<'_, '_>, start: Int, end: Int, step: i64, out: usize) -> Fit {
    let dtype = call.stated_dtype(out)?;
    if !is_integer(dtype) || step < 1 {
        return Unfit::why(format!("steps of {step} in {dtype}"));
    }
    let length = difference(call.graph(), end, start)?;
    restrict(call.graph(), length, (0, i64::MAX))?;
    let padded = sum(call.graph(), length, Int::Const(step - 1))?;
    let count = floor_quotient(call.graph(), padded, step)?;
    let value = call.emit(Op::Arange { start, step }, &[], dtype, vec![count]);
    call.set(out, value)
}
