//! Reductions along dimensions: mean, any, softmax.

use super::call::Call;
use super::sizes::axis;
use super::{Fit, Form, Unfit};
use crate::graph::{Int, Op, ValueId};
use crate::tensor::DType;

pub(super) const FORMS: &[(&str, Form)] =
    &[("aten::mean.out", mean), ("aten::any.out", any), ("aten::_softmax.out", softmax)];

fn is_real(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F16 | DType::BF16)
}

/// (x, dimensions or null, keep, element type, out)
fn mean(call: &mut Call<'_, '_>) -> Fit {
    let x = call.tensor(0)?;
    let rank = call.shape(x).len();
    let dims = if call.is_null(1)? { Vec::new() } else { call.known_ints(1)? };
    let axes = match dims.is_empty() {
        true => (0..rank).collect(),
        false => dims.into_iter().map(|dim| axis(dim, rank)).collect::<Fit<Vec<_>>>()?,
    };
    let dtype = call.stated_dtype(4)?;
    call.check_dtype_arg(3, dtype)?;
    if !is_real(dtype) || call.dtype(x) != dtype {
        return Unfit::why(format!("the mean of {} as {dtype}", call.dtype(x)));
    }
    let keep = call.bool(2)?;
    let op = Op::Mean { axes: axes.clone() };
    let value = reduced(call, op, x, &axes, keep, dtype);
    call.set(4, value)
}

/// (x, dimension, keep, out)
fn any(call: &mut Call<'_, '_>) -> Fit {
    let x = call.tensor(0)?;
    let axis = axis(call.known_int(1)?, call.shape(x).len())?;
    let keep = call.bool(2)?;
    let value = reduced(call, Op::Any { axis }, x, &[axis], keep, DType::Bool);
    call.set(3, value)
}

fn reduced(call: &mut Call<'_, '_>, op: Op, x: ValueId, axes: &[usize], keep: bool, dtype: DType) -> ValueId {
    let mut shape = call.shape(x);
    axes.iter().for_each(|&axis| shape[axis] = Int::Const(1));
    let value = call.emit(op, &[x], dtype, shape.clone());
    if keep {
        return value;
    }
    let stays = |(axis, _): &(usize, Int)| !axes.contains(axis);
    let shape = shape.into_iter().enumerate().filter(stays).map(|(_, size)| size).collect();
    call.reshaped(value, shape)
}

/// (x, dimension, half to float, out)
fn softmax(call: &mut Call<'_, '_>) -> Fit {
    let x = call.tensor(0)?;
    let shape = call.shape(x);
    let axis = axis(call.known_int(1)?, shape.len())?;
    if call.bool(2)? || !is_real(call.dtype(x)) {
        return Unfit::why(format!("softmax of {}", call.dtype(x)));
    }
    let value = call.like(Op::Softmax { axis }, &[x], shape);
    call.set(3, value)
}
