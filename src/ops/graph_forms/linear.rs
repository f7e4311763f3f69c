//! Matrix products: linear, mm, bmm, addmm.

use super::call::{Call, Number};
use super::sizes::{broadcast, equal};
use super::{Fit, Form, Unfit};
use crate::graph::{BinaryOp, Int, Op, ValueId};
use crate::tensor::DType;

pub(super) const FORMS: &[(&str, Form)] = &[
    ("aten::linear.out", linear),
    ("aten::mm.out", |call| product(call, 2)),
    ("aten::bmm.out", |call| product(call, 3)),
    ("aten::addmm.out", addmm),
];

fn check_types(call: &Call<'_, '_>, operands: &[ValueId]) -> Fit {
    let dtype = call.dtype(operands[0]);
    let real = matches!(dtype, DType::F32 | DType::F16 | DType::BF16);
    if real && operands.iter().all(|&operand| call.dtype(operand) == dtype) {
        return Ok(());
    }
    Unfit::why(format!("a product of {dtype}, or of several types"))
}

/// (x, weights, bias or null, out)
fn linear(call: &mut Call<'_, '_>) -> Fit {
    let (x, weights, bias) = (call.tensor(0)?, call.tensor(1)?, call.optional_tensor(2)?);
    let operands: Vec<ValueId> = [x, weights].into_iter().chain(bias).collect();
    check_types(call, &operands)?;
    let (mut shape, of_weights) = (call.shape(x), call.shape(weights));
    let (Some(last), &[out, inner]) = (shape.last_mut(), &of_weights[..]) else {
        return Unfit::why("a linear layer without two dimensions of weights");
    };
    equal(std::mem::replace(last, out), inner)?;
    if let Some(bias) = bias {
        match call.shape(bias)[..] {
            [size] => equal(size, out)?,
            _ => return Unfit::why("a bias of several dimensions"),
        }
    }
    let value = call.like(Op::FullyConnected, &operands, shape);
    call.set(3, value)
}

/// (a, b, out), both of `rank` dimensions.
fn product(call: &mut Call<'_, '_>, rank: usize) -> Fit {
    let (a, b) = (call.tensor(0)?, call.tensor(1)?);
    let value = multiplied(call, a, b, rank)?;
    call.set(2, value)
}

fn multiplied(call: &mut Call<'_, '_>, a: ValueId, b: ValueId, rank: usize) -> Fit<ValueId> {
    check_types(call, &[a, b])?;
    let (mut shape, other) = (call.shape(a), call.shape(b));
    if shape.len() != rank || other.len() != rank {
        return Unfit::why(format!("factors that have not {rank} dimensions"));
    }
    for axis in 0..rank - 2 {
        equal(shape[axis], other[axis])?;
    }
    equal(shape[rank - 1], other[rank - 2])?;
    shape[rank - 1] = other[rank - 1];
    Ok(call.like(Op::MatMul { transpose_b: false }, &[a, b], shape))
}

/// (x, a, b, beta, alpha, out): `beta · x + alpha · a·b`, with factors of 1.
fn addmm(call: &mut Call<'_, '_>) -> Fit {
    for factor in [3, 4] {
        if !matches!(call.number(factor)?, Number::Int(Int::Const(1)) | Number::Double(1.0)) {
            return Unfit::why("a factor other than 1");
        }
    }
    let (x, a, b) = (call.tensor(0)?, call.tensor(1)?, call.tensor(2)?);
    let product = multiplied(call, a, b, 2)?;
    check_types(call, &[x, product])?;
    let shape = broadcast(&call.shape(x), &call.shape(product))?;
    let value = call.like(Op::Binary(BinaryOp::Add), &[x, product], shape);
    call.set(5, value)
}
