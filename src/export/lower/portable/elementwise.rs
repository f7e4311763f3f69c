//! Element-wise operations and reductions.

use super::{Call, Result};
use crate::base::storage::Blob;
use crate::graph::{BinaryOp, UnaryOp};
use crate::tensor::DType;

pub(super) fn unary(call: &mut Call<'_, '_, '_>, op: UnaryOp) -> Result {
    let name = match op {
        UnaryOp::Abs => "aten::abs.out",
        UnaryOp::Ceil => "aten::ceil.out",
        UnaryOp::Cos => "aten::cos.out",
        UnaryOp::Exp => "aten::exp.out",
        UnaryOp::Floor => "aten::floor.out",
        UnaryOp::Gelu | UnaryOp::GeluTanh => {
            let approximation = call.plan.text(if op == UnaryOp::Gelu { "none" } else { "tanh" });
            return call.with_args("aten::gelu.out", &[approximation]);
        }
        UnaryOp::HardSwish => return call.unsupported("no operator does this"),
        UnaryOp::Log => "aten::log.out",
        UnaryOp::LogicalNot => "aten::logical_not.out",
        UnaryOp::Negate => "aten::neg.out",
        UnaryOp::Reciprocal => "aten::reciprocal.out",
        UnaryOp::Rsqrt => "aten::rsqrt.out",
        UnaryOp::Sigmoid => "aten::sigmoid.out",
        UnaryOp::Silu => return silu(call),
        UnaryOp::Sin => "aten::sin.out",
        UnaryOp::Sqrt => "aten::sqrt.out",
        UnaryOp::Square => {
            let x = call.operand(0)?;
            let out = call.result()?;
            call.plan.call("aten::mul.out", &[x, x], out);
            return Ok(());
        }
        UnaryOp::Tanh => "aten::tanh.out",
    };
    call.simple(name)
}

fn silu(call: &mut Call<'_, '_, '_>) -> Result {
    let x = call.operand(0)?;
    let value = call.graph.value(call.output());
    let sigmoid = call.plan.temporary(value.dtype, &value.shape);
    call.plan.call("aten::sigmoid.out", &[x], sigmoid);
    let out = call.result()?;
    call.plan.call("aten::mul.out", &[x, sigmoid], out);
    Ok(())
}

pub(super) fn binary(call: &mut Call<'_, '_, '_>, op: BinaryOp) -> Result {
    let name = match op {
        BinaryOp::Add | BinaryOp::Subtract => {
            let alpha = call.plan.int(1);
            return call.with_args(if op == BinaryOp::Add { "aten::add.out" } else { "aten::sub.out" }, &[alpha]);
        }
        BinaryOp::Multiply => "aten::mul.out",
        BinaryOp::Divide => {
            let real = matches!(call.dtype(call.output()), DType::F32 | DType::F16 | DType::BF16);
            if !real {
                return call.unsupported("a quotient of integers");
            }
            "aten::div.out"
        }
        BinaryOp::Maximum => "aten::maximum.out",
        BinaryOp::Minimum => "aten::minimum.out",
        BinaryOp::Equal => "aten::eq.Tensor_out",
        BinaryOp::NotEqual => "aten::ne.Tensor_out",
        BinaryOp::Less => "aten::lt.Tensor_out",
        BinaryOp::LessEqual => "aten::le.Tensor_out",
        BinaryOp::Greater => "aten::gt.Tensor_out",
        BinaryOp::GreaterEqual => "aten::ge.Tensor_out",
        BinaryOp::LogicalAnd => "aten::logical_and.out",
        BinaryOp::LogicalOr => "aten::logical_or.out",
    };
    call.simple(name)
}

/// As the larger of `min` and the smaller of `max`: this library has no `aten::clamp`.
pub(super) fn clamp(call: &mut Call<'_, '_, '_>, min: f32, max: f32) -> Result {
    let x = call.operand(0)?;
    let value = call.graph.value(call.output());
    if value.dtype != DType::F32 {
        return call.unsupported("bounds of reals other than f32");
    }
    let [min, max] = [min, max].map(|bound| {
        let blob = Blob::from_vec(bound.to_le_bytes().to_vec());
        call.plan.constant(DType::F32, Vec::new(), &blob)
    });
    let limited = call.plan.temporary(value.dtype, &value.shape);
    call.plan.call("aten::maximum.out", &[x, min], limited);
    let out = call.result()?;
    call.plan.call("aten::minimum.out", &[limited, max], out);
    Ok(())
}

pub(super) fn mean(call: &mut Call<'_, '_, '_>, axes: &[usize]) -> Result {
    let axes: Vec<i64> = axes.iter().map(|&axis| axis as i64).collect();
    let args = [call.plan.ints(&axes), call.plan.bool(true), call.plan.null()];
    call.with_args("aten::mean.out", &args)
}

pub(super) fn any(call: &mut Call<'_, '_, '_>, axis: usize) -> Result {
    let args = [call.plan.int(axis as i64), call.plan.bool(true)];
    call.with_args("aten::any.out", &args)
}

pub(super) fn softmax(call: &mut Call<'_, '_, '_>, axis: usize) -> Result {
    let args = [call.plan.int(axis as i64), call.plan.bool(false)];
    call.with_args("aten::_softmax.out", &args)
}
