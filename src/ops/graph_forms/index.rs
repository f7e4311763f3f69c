//! Rows by number, and writes along a range of one dimension: embedding, index, index_put.

use super::call::Call;
use super::integers::range;
use super::sizes::{broadcast, equal, restrict, sum};
use super::{Fit, Form, Unfit};
use crate::graph::{Int, Op, ValueId};
use crate::tensor::DType;

pub(super) const FORMS: &[(&str, Form)] = &[
    ("aten::embedding.out", embedding),
    ("aten::index.Tensor_out", index),
    ("aten::index_put.out", |call| index_put(call, 4)),
    ("aten::index_put_", |call| index_put(call, 0)),
];

/// (table, ids, padding, …, …, out)
fn embedding(call: &mut Call<'_, '_>) -> Fit {
    let (table, ids) = (call.tensor(0)?, call.tensor(1)?);
    if call.shape(table).len() != 2 {
        return Unfit::why("a table that is no matrix");
    }
    rows(call, table, ids, 5)
}

/// The rows of `table` that `ids` name.
fn rows(call: &mut Call<'_, '_>, table: ValueId, ids: ValueId, out: usize) -> Fit {
    let (real, integer) = (call.dtype(table), call.dtype(ids));
    if !matches!(real, DType::F32 | DType::F16 | DType::BF16) || !matches!(integer, DType::I64 | DType::I32) {
        return Unfit::why(format!("rows of {real} by {integer}"));
    }
    let (mut shape, row) = (call.shape(ids), call.shape(table));
    shape.extend(&row[1..]);
    let value = call.like(Op::Embedding, &[table, ids], shape);
    call.set(out, value)
}

/// The one dimension that is indexed, and the index.
fn one_index(call: &mut Call<'_, '_>, arg: usize) -> Fit<(usize, ValueId)> {
    let indices = call.optional_tensors(arg)?;
    let mut there = indices.into_iter().enumerate().filter_map(|(axis, index)| Some((axis, index?)));
    match (there.next(), there.next()) {
        (Some(one), None) => Ok(one),
        _ => Unfit::why("several indices, or none"),
    }
}

/// (x, indices, out): a range of one dimension, or rows by number.
fn index(call: &mut Call<'_, '_>) -> Fit {
    let x = call.tensor(0)?;
    let (axis, index) = one_index(call, 1)?;
    let mut shape = call.shape(x);
    if axis >= shape.len() {
        return Unfit::why("an index of a dimension that is not there");
    }
    if let Some((start, length)) = range(call, index)? {
        within(call, start, length, shape[axis])?;
        shape[axis] = length;
        let value = call.like(Op::Slice { axis, start, step: 1 }, &[x], shape);
        return call.set(2, value);
    }
    // A negative number would count from the end.
    Unfit::why("rows by numbers that are known only at run time")
}

/// (x, indices, values, accumulate, [out]): the values along a range of one dimension.
fn index_put(call: &mut Call<'_, '_>, out: usize) -> Fit {
    let (x, values) = (call.tensor(0)?, call.tensor(2)?);
    let (axis, index) = one_index(call, 1)?;
    if call.bool(3)? {
        return Unfit::why("values that are added");
    }
    let shape = call.shape(x);
    if axis >= shape.len() || call.dtype(x) != call.dtype(values) {
        return Unfit::why("an index of a dimension that is not there, or values of another type");
    }
    let Some((start, length)) = range(call, index)? else {
        return Unfit::why("places that do not follow each other");
    };
    within(call, start, length, shape[axis])?;
    let mut target = shape.clone();
    target[axis] = length;
    let mut values = values;
    if call.shape(values) != target {
        let common = broadcast(&call.shape(values), &target)?;
        if common.len() != target.len() {
            return Unfit::why("values of more dimensions than their places have");
        }
        common.iter().zip(&target).try_for_each(|(&a, &b)| equal(a, b))?;
        values = call.like(Op::Expand, &[values], target);
    }
    let value = call.like(Op::SliceUpdate { axis, start }, &[x, values], shape);
    call.set(out, value)
}

/// Demands that `length` places from `start` on lie within `size`. What counts from the end is refused at run time.
pub(super) fn within(call: &mut Call<'_, '_>, start: Int, length: Int, size: Int) -> Fit {
    let Int::Const(size) = size else { return Unfit::why("places in a dimension that is known only at run time") };
    restrict(call.graph(), start, (0, size))?;
    let end = sum(call.graph(), start, length)?;
    restrict(call.graph(), end, (0, size))
}
