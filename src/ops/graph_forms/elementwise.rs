//! Arithmetic element by element: the larger of two element types counts, shapes are broadcast.

use super::super::promote::{is_float, promote};
use super::call::{Call, Number};
use super::sizes::broadcast;
use super::{Fit, Form, Unfit};
use crate::graph::{BinaryOp, Int, Op, UnaryOp, ValueId};
use crate::tensor::DType;

pub(super) const FORMS: &[(&str, Form)] = &[
    ("aten::add.out", |call| tensors(call, BinaryOp::Add, Some(2), 3)),
    ("aten::sub.out", |call| tensors(call, BinaryOp::Subtract, Some(2), 3)),
    ("aten::mul.out", |call| tensors(call, BinaryOp::Multiply, None, 2)),
    ("aten::div.out", |call| tensors(call, BinaryOp::Divide, None, 2)),
    ("aten::maximum.out", |call| tensors(call, BinaryOp::Maximum, None, 2)),
    ("aten::minimum.out", |call| tensors(call, BinaryOp::Minimum, None, 2)),
    ("aten::add.Scalar_out", |call| with_scalar(call, BinaryOp::Add, Some(2), 3)),
    ("aten::sub.Scalar_out", |call| with_scalar(call, BinaryOp::Subtract, Some(2), 3)),
    ("aten::mul.Scalar_out", |call| with_scalar(call, BinaryOp::Multiply, None, 2)),
    ("aten::div.Scalar_out", |call| with_scalar(call, BinaryOp::Divide, None, 2)),
    ("aten::eq.Tensor_out", |call| tensors(call, BinaryOp::Equal, None, 2)),
    ("aten::ne.Tensor_out", |call| tensors(call, BinaryOp::NotEqual, None, 2)),
    ("aten::lt.Tensor_out", |call| tensors(call, BinaryOp::Less, None, 2)),
    ("aten::le.Tensor_out", |call| tensors(call, BinaryOp::LessEqual, None, 2)),
    ("aten::gt.Tensor_out", |call| tensors(call, BinaryOp::Greater, None, 2)),
    ("aten::ge.Tensor_out", |call| tensors(call, BinaryOp::GreaterEqual, None, 2)),
    ("aten::eq.Scalar_out", |call| with_scalar(call, BinaryOp::Equal, None, 2)),
    ("aten::ne.Scalar_out", |call| with_scalar(call, BinaryOp::NotEqual, None, 2)),
    ("aten::lt.Scalar_out", |call| with_scalar(call, BinaryOp::Less, None, 2)),
    ("aten::le.Scalar_out", |call| with_scalar(call, BinaryOp::LessEqual, None, 2)),
    ("aten::gt.Scalar_out", |call| with_scalar(call, BinaryOp::Greater, None, 2)),
    ("aten::ge.Scalar_out", |call| with_scalar(call, BinaryOp::GreaterEqual, None, 2)),
    ("aten::logical_and.out", |call| truths(call, BinaryOp::LogicalAnd)),
    ("aten::logical_or.out", |call| truths(call, BinaryOp::LogicalOr)),
    ("aten::bitwise_and.Tensor_out", |call| truths(call, BinaryOp::LogicalAnd)),
    ("aten::bitwise_or.Tensor_out", |call| truths(call, BinaryOp::LogicalOr)),
    ("aten::logical_not.out", not),
    ("aten::bitwise_not.out", not),
    ("aten::cos.out", |call| unary(call, UnaryOp::Cos)),
    ("aten::exp.out", |call| unary(call, UnaryOp::Exp)),
    ("aten::log.out", |call| unary(call, UnaryOp::Log)),
    ("aten::reciprocal.out", |call| unary(call, UnaryOp::Reciprocal)),
    ("aten::rsqrt.out", |call| unary(call, UnaryOp::Rsqrt)),
    ("aten::sigmoid.out", |call| unary(call, UnaryOp::Sigmoid)),
    ("aten::sin.out", |call| unary(call, UnaryOp::Sin)),
    ("aten::sqrt.out", |call| unary(call, UnaryOp::Sqrt)),
    ("aten::tanh.out", |call| unary(call, UnaryOp::Tanh)),
    ("aten::abs.out", |call| unary(call, UnaryOp::Abs)),
    ("aten::neg.out", |call| unary(call, UnaryOp::Negate)),
    ("aten::gelu.out", gelu),
    ("aten::pow.Tensor_Scalar_out", pow),
    ("aten::where.self_out", choose),
    ("aten::masked_fill.Scalar_out", masked_fill),
];

/// Refuses reals that the engine would not keep as they are.
fn check_real(dtype: DType) -> Fit {
    if is_float(dtype) && dtype != DType::F64 { Ok(()) } else { Unfit::why(format!("operands of {dtype}")) }
}

/// Refuses operands that the graph computes otherwise than the operator does.
fn check_operands(op: BinaryOp, dtype: DType) -> Fit {
    let integers = matches!(dtype, DType::I64 | DType::I32 | DType::I16 | DType::I8 | DType::U8);
    match op {
        BinaryOp::Divide => check_real(dtype),
        _ if op.gives_bool() && dtype == DType::Bool => Ok(()),
        _ if integers => Ok(()),
        _ => check_real(dtype),
    }
}

/// (a, b, [alpha,] out)
fn tensors(call: &mut Call<'_, '_>, op: BinaryOp, alpha: Option<usize>, out: usize) -> Fit {
    let (a, b) = (call.tensor(0)?, call.tensor(1)?);
    let common = promote(call.dtype(a), call.dtype(b));
    let (a, b) = (call.converted(a, common), call.converted(b, common));
    let b = scaled(call, b, alpha)?;
    combine(call, op, a, b, out)
}

/// (a, number, [alpha,] out)
fn with_scalar(call: &mut Call<'_, '_>, op: BinaryOp, alpha: Option<usize>, out: usize) -> Fit {
    let a = call.tensor(0)?;
    let number = call.number(1)?;
    let b = call.scalar(number, call.dtype(a))?;
    let b = scaled(call, b, alpha)?;
    combine(call, op, a, b, out)
}

/// `b · alpha`
fn scaled(call: &mut Call<'_, '_>, b: ValueId, alpha: Option<usize>) -> Fit<ValueId> {
    let Some(alpha) = alpha else { return Ok(b) };
    let alpha = call.number(alpha)?;
    if matches!(alpha, Number::Int(Int::Const(1)) | Number::Double(1.0)) {
        return Ok(b);
    }
    check_real(call.dtype(b))?;
    let (alpha, shape) = (call.scalar(alpha, call.dtype(b))?, call.shape(b));
    Ok(call.like(Op::Binary(BinaryOp::Multiply), &[b, alpha], shape))
}

fn combine(call: &mut Call<'_, '_>, op: BinaryOp, a: ValueId, b: ValueId, out: usize) -> Fit {
    let dtype = call.dtype(a);
    check_operands(op, dtype)?;
    let shape = broadcast(&call.shape(a), &call.shape(b))?;
    let result = if op.gives_bool() { DType::Bool } else { dtype };
    let value = call.emit(Op::Binary(op), &[a, b], result, shape);
    call.set(out, value)
}

/// (a, b, out), all truth values.
fn truths(call: &mut Call<'_, '_>, op: BinaryOp) -> Fit {
    let (a, b) = (call.tensor(0)?, call.tensor(1)?);
    if [a, b].iter().any(|&value| call.dtype(value) != DType::Bool) {
        return Unfit::why("operands that are no truth values");
    }
    combine(call, op, a, b, 2)
}

/// (a, out), truth values.
fn not(call: &mut Call<'_, '_>) -> Fit {
    let a = call.tensor(0)?;
    if call.dtype(a) != DType::Bool {
        return Unfit::why("an operand that is no truth value");
    }
    let shape = call.shape(a);
    let value = call.like(Op::Unary(UnaryOp::LogicalNot), &[a], shape);
    call.set(1, value)
}

/// (a, out)
fn unary(call: &mut Call<'_, '_>, op: UnaryOp) -> Fit {
    let a = call.tensor(0)?;
    let value = apply(call, op, a)?;
    call.set(1, value)
}

fn apply(call: &mut Call<'_, '_>, op: UnaryOp, a: ValueId) -> Fit<ValueId> {
    check_real(call.dtype(a))?;
    let shape = call.shape(a);
    Ok(call.like(Op::Unary(op), &[a], shape))
}

/// (a, approximation, out)
fn gelu(call: &mut Call<'_, '_>) -> Fit {
    let op = match call.text(1)? {
        "none" => UnaryOp::Gelu,
        "tanh" => UnaryOp::GeluTanh,
        other => return Unfit::why(format!("approximation {other:?}")),
    };
    let a = call.tensor(0)?;
    let value = apply(call, op, a)?;
    call.set(2, value)
}

/// (a, exponent, out)
fn pow(call: &mut Call<'_, '_>) -> Fit {
    let exponent = call.real(1)?;
    let op = [(2.0, UnaryOp::Square), (0.5, UnaryOp::Sqrt), (-0.5, UnaryOp::Rsqrt), (-1.0, UnaryOp::Reciprocal)]
        .into_iter()
        .find(|&(known, _)| known == exponent);
    let Some((_, op)) = op else { return Unfit::why(format!("exponent {exponent}")) };
    let a = call.tensor(0)?;
    let value = apply(call, op, a)?;
    call.set(2, value)
}

/// (condition, a, b, out)
fn choose(call: &mut Call<'_, '_>) -> Fit {
    let (condition, a, b) = (call.tensor(0)?, call.tensor(1)?, call.tensor(2)?);
    select(call, condition, a, b, 3)
}

/// (a, mask, number, out): the number where the mask is true.
fn masked_fill(call: &mut Call<'_, '_>) -> Fit {
    let (a, mask, number) = (call.tensor(0)?, call.tensor(1)?, call.number(2)?);
    let number = call.scalar(number, call.dtype(a))?;
    select(call, mask, number, a, 3)
}

fn select(call: &mut Call<'_, '_>, condition: ValueId, a: ValueId, b: ValueId, out: usize) -> Fit {
    if call.dtype(condition) != DType::Bool {
        return Unfit::why(format!("a condition of {}", call.dtype(condition)));
    }
    let common = promote(call.dtype(a), call.dtype(b));
    if common == DType::F64 {
        return Unfit::why("operands of f64");
    }
    let (a, b) = (call.converted(a, common), call.converted(b, common));
    let shape = broadcast(&call.shape(condition), &broadcast(&call.shape(a), &call.shape(b))?)?;
    let value = call.emit(Op::Where, &[condition, a, b], common, shape);
    call.set(out, value)
}
