//! Operators that move elements or give them another shape: views, copies, slices, permutations, concatenation.

use super::call::Call;
use super::sizes::{axis, difference, equal, floor_quotient, reshape, restrict, sum};
use super::{Fit, Form, Unfit};
use crate::graph::{Int, Op, ValueId};
use crate::tensor::DType;

pub(super) const FORMS: &[(&str, Form)] = &[
    ("executorch_prim::et_view.default", view),
    ("aten::view_copy.out", |call| resized(call, |call, _| call.ints(1), 2)),
    ("aten::_reshape_copy.out", |call| resized(call, |call, _| call.ints(1), 2)),
    ("aten::squeeze_copy.dim_out", |call| resized(call, |call, shape| squeezed(shape, &[call.known_int(1)?]), 2)),
    ("aten::squeeze_copy.dims_out", |call| resized(call, |call, shape| squeezed(shape, &call.known_ints(1)?), 2)),
    ("aten::unsqueeze_copy.out", |call| resized(call, unsqueezed, 2)),
    ("aten::expand_copy.out", expand),
    ("aten::permute_copy.out", permute),
    ("aten::transpose_copy.int_out", |call| {
        let (a, b) = (call.known_int(1)?, call.known_int(2)?);
        transpose(call, a, b, 3)
    }),
    ("aten::t_copy.out", |call| {
        let x = call.tensor(0)?;
        match call.shape(x).len() {
            2 => transpose(call, 0, 1, 1),
            _ => Unfit::why("a transposition of no matrix"),
        }
    }),
    ("aten::clone.out", |call| copied(call, 2)),
    ("aten::alias_copy.out", |call| copied(call, 1)),
    ("aten::detach_copy.out", |call| copied(call, 1)),
    ("aten::lift_fresh_copy.out", |call| copied(call, 1)),
    ("dim_order_ops::_clone_dim_order.out", |call| copied(call, 3)),
    ("llama::fallback.out", |call| copied(call, 1)),
    ("aten::_to_copy.out", |call| converted(call, 3)),
    ("dim_order_ops::_to_dim_order_copy.out", |call| converted(call, 3)),
    ("aten::copy.out", |call| filled(call, 3)),
    ("aten::copy_", |call| filled(call, 0)),
    ("aten::slice_copy.Tensor_out", slice),
    ("aten::select_copy.int_out", select),
    ("aten::cat.out", concat),
];

/// (x, sizes, out): no copy; what is written to one is seen in the other.
fn view(call: &mut Call<'_, '_>) -> Fit {
    let x = call.tensor(0)?;
    let (from, asked) = (call.shape(x), call.ints(1)?);
    let shape = reshape(call.graph(), &from, &asked)?;
    let (of, value) = (call.arg(0)?, call.arg(2)?);
    call.method().view(value, of, shape)
}

/// (x, …, out): the elements of x in the shape that `shape` finds from its own.
fn resized(call: &mut Call<'_, '_>, shape: fn(&mut Call<'_, '_>, &[Int]) -> Fit<Vec<Int>>, out: usize) -> Fit {
    let x = call.tensor(0)?;
    let from = call.shape(x);
    let asked = shape(call, &from)?;
    let shape = reshape(call.graph(), &from, &asked)?;
    let value = call.reshaped(x, shape);
    call.set(out, value)
}

fn squeezed(shape: &[Int], dims: &[i64]) -> Fit<Vec<Int>> {
    let gone = dims.iter().map(|&dim| axis(dim, shape.len())).collect::<Fit<Vec<_>>>()?;
    if gone.iter().any(|&axis| matches!(shape[axis], Int::Symbol(_))) {
        return Unfit::why("a dimension that is dropped when it is 1, which is known only at run time");
    }
    let stays = |&axis: &usize| !gone.contains(&axis) || shape[axis] != Int::Const(1);
    Ok((0..shape.len()).filter(stays).map(|axis| shape[axis]).collect())
}

fn unsqueezed(call: &mut Call<'_, '_>, shape: &[Int]) -> Fit<Vec<Int>> {
    let at = axis(call.known_int(1)?, shape.len() + 1)?;
    let mut shape = shape.to_vec();
    shape.insert(at, Int::Const(1));
    Ok(shape)
}

/// (x, sizes, implicit, out)
fn expand(call: &mut Call<'_, '_>) -> Fit {
    let x = call.tensor(0)?;
    let (from, mut shape) = (call.shape(x), call.ints(1)?);
    let Some(new) = shape.len().checked_sub(from.len()) else { return Unfit::why("fewer dimensions than before") };
    for (axis, size) in shape.iter_mut().enumerate() {
        match axis.checked_sub(new).map(|axis| from[axis]) {
            Some(own) if *size == Int::Const(-1) => *size = own,
            Some(own) if own != Int::Const(1) => equal(own, *size)?,
            _ => restrict(call.graph(), *size, (0, i64::MAX))?,
        }
    }
    let value = if shape == from { x } else { call.like(Op::Expand, &[x], shape) };
    call.set(3, value)
}

/// (x, dimensions, out)
fn permute(call: &mut Call<'_, '_>) -> Fit {
    let x = call.tensor(0)?;
    let shape = call.shape(x);
    let perm = call.known_ints(1)?.into_iter().map(|dim| axis(dim, shape.len())).collect::<Fit<Vec<_>>>()?;
    let mut seen = vec![false; shape.len()];
    if perm.len() != shape.len() || perm.iter().any(|&axis| std::mem::replace(&mut seen[axis], true)) {
        return Unfit::why(format!("{perm:?} is no permutation"));
    }
    permuted(call, x, perm, 2)
}

fn transpose(call: &mut Call<'_, '_>, a: i64, b: i64, out: usize) -> Fit {
    let x = call.tensor(0)?;
    let rank = call.shape(x).len();
    let mut perm: Vec<usize> = (0..rank).collect();
    perm.swap(axis(a, rank)?, axis(b, rank)?);
    permuted(call, x, perm, out)
}

fn permuted(call: &mut Call<'_, '_>, x: ValueId, perm: Vec<usize>, out: usize) -> Fit {
    let shape = call.shape(x);
    let shape = perm.iter().map(|&axis| shape[axis]).collect();
    let value = call.like(Op::Permute { perm }, &[x], shape);
    call.set(out, value)
}

/// (x, …, out)
fn copied(call: &mut Call<'_, '_>, out: usize) -> Fit {
    let x = call.tensor(0)?;
    call.set(out, x)
}

/// (x, …, out): to the output's element type.
fn converted(call: &mut Call<'_, '_>, out: usize) -> Fit {
    let x = call.tensor(0)?;
    let dtype = call.stated_dtype(out)?;
    let value = convert(call, x, dtype)?;
    call.set(out, value)
}

fn convert(call: &mut Call<'_, '_>, x: ValueId, dtype: DType) -> Fit<ValueId> {
    // Truth values are made by comparing, not by rounding.
    if dtype == DType::Bool && call.dtype(x) != DType::Bool {
        return Unfit::why(format!("{} made bool", call.dtype(x)));
    }
    Ok(call.converted(x, dtype))
}

/// (x, source, …, out): the source, broadcast to the sizes of x.
fn filled(call: &mut Call<'_, '_>, out: usize) -> Fit {
    let (value, source) = (call.arg(0)?, call.tensor(1)?);
    let shape = call.method().shape(value)?;
    let dtype = call.stated_dtype(out)?;
    let mut source = convert(call, source, dtype)?;
    if call.shape(source) != shape {
        equal_shapes(&super::sizes::broadcast(&call.shape(source), &shape)?, &shape)?;
        source = call.like(Op::Expand, &[source], shape);
    }
    call.set(out, source)
}

fn equal_shapes(a: &[Int], b: &[Int]) -> Fit {
    if a.len() != b.len() {
        return Unfit::why("other dimensions than the target has");
    }
    a.iter().zip(b).try_for_each(|(&a, &b)| equal(a, b))
}

/// (x, dimension, start or null, end or null, step, out)
fn slice(call: &mut Call<'_, '_>) -> Fit {
    let x = call.tensor(0)?;
    let mut shape = call.shape(x);
    let axis = axis(call.known_int(1)?, shape.len())?;
    let size = shape[axis];
    let step = call.known_int(4)?;
    let start = match call.optional_int(2)? {
        None => Int::Const(0),
        Some(start) => bound(call, start, size)?,
    };
    let end = match call.optional_int(3)? {
        None => size,
        Some(end) => bound(call, end, size)?,
    };
    let Ok(stride @ 1..) = usize::try_from(step) else { return Unfit::why(format!("a step of {step}")) };
    let mut count = difference(call.graph(), end, start)?;
    match count {
        Int::Const(length) => count = Int::Const(length.max(0)),
        length => restrict(call.graph(), length, (0, i64::MAX))?,
    }
    if step > 1 {
        let padded = sum(call.graph(), count, Int::Const(step - 1))?;
        count = floor_quotient(call.graph(), padded, step)?;
    }
    shape[axis] = count;
    let whole = start == Int::Const(0) && count == size;
    let value = if whole { x } else { call.like(Op::Slice { axis, start, step: stride }, &[x], shape) };
    call.set(5, value)
}

/// A bound of a slice: from the end where it is negative, and within the axis. One that is known only at run time is
/// taken to be within: programs that go beyond what they cut from fail a moment later.
fn bound(call: &mut Call<'_, '_>, bound: Int, size: Int) -> Fit<Int> {
    let (smallest, largest) = call.graph().bounds(size);
    match bound {
        same if same == size => Ok(size),
        Int::Const(at) if at < 0 => {
            let from_end = sum(call.graph(), size, Int::Const(at))?;
            match from_end {
                Int::Const(at) => Ok(Int::Const(at.max(0))),
                symbol if smallest >= at.saturating_neg() => Ok(symbol),
                _ => Unfit::why(format!("position {at} of a dimension that may be as short as {smallest}")),
            }
        }
        Int::Const(at) if at >= largest => Ok(size),
        Int::Const(at) if at <= smallest => Ok(bound),
        Int::Const(at) => Unfit::why(format!("position {at} of a dimension of {smallest} to {largest}")),
        symbol => {
            if smallest != largest {
                return Unfit::why("a position in a dimension, both known only at run time");
            }
            restrict(call.graph(), symbol, (0, largest))?;
            Ok(symbol)
        }
    }
}

/// (x, dimension, index, out)
fn select(call: &mut Call<'_, '_>) -> Fit {
    let x = call.tensor(0)?;
    let mut shape = call.shape(x);
    let axis = axis(call.known_int(1)?, shape.len())?;
    let (smallest, largest) = call.graph().bounds(shape[axis]);
    let start = match call.int(2)? {
        Int::Const(index) if (0..smallest).contains(&index) => Int::Const(index),
        Int::Const(index) if index < 0 && index >= smallest.saturating_neg() => {
            sum(call.graph(), shape[axis], Int::Const(index))?
        }
        Int::Const(index) => return Unfit::why(format!("index {index} of a dimension of {smallest} to {largest}")),
        symbol if smallest == largest => {
            restrict(call.graph(), symbol, (0, largest - 1))?;
            symbol
        }
        _ => return Unfit::why("an index in a dimension, both known only at run time"),
    };
    shape[axis] = Int::Const(1);
    let row = call.like(Op::Slice { axis, start, step: 1 }, &[x], shape.clone());
    shape.remove(axis);
    let value = call.reshaped(row, shape);
    call.set(3, value)
}

/// (list, dimension, out)
fn concat(call: &mut Call<'_, '_>) -> Fit {
    let mut parts = call.tensors(0)?;
    // An empty list of numbers counts as nothing, whatever the others' dimensions.
    parts.retain(|&part| call.shape(part) != [Int::Const(0)]);
    let Some(&first) = parts.first() else { return Unfit::why("nothing to join") };
    let dtype = call.stated_dtype(2)?;
    let mut shape = call.shape(first);
    let axis = axis(call.known_int(1)?, shape.len())?;
    for (index, part) in parts.iter_mut().enumerate() {
        let other = call.shape(*part);
        if other.len() != shape.len() {
            return Unfit::why("parts of different dimensions");
        }
        for place in (0..shape.len()).filter(|&place| place != axis) {
            equal(shape[place], other[place])?;
        }
        if index > 0 {
            shape[axis] = sum(call.graph(), shape[axis], other[axis])?;
        }
        *part = convert(call, *part, dtype)?;
    }
    let value = call.like(Op::Concat { axis }, &parts, shape);
    call.set(2, value)
}
