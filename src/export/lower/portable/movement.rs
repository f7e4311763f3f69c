//! Operations that move elements or make numbers out of nothing.

use super::{Call, Result};
use crate::graph::{Int, SymbolSource};
use crate::tensor::DType;

pub(super) fn reshape(call: &mut Call<'_, '_, '_>) -> Result {
    let x = call.operand(0)?;
    call.finish_as(x)
}

pub(super) fn permute(call: &mut Call<'_, '_, '_>, perm: &[usize]) -> Result {
    let perm: Vec<i64> = perm.iter().map(|&axis| axis as i64).collect();
    let perm = call.plan.ints(&perm);
    call.with_args("aten::permute_copy.out", &[perm])
}

pub(super) fn slice(call: &mut Call<'_, '_, '_>, axis: usize, start: Int, step: usize) -> Result {
    if is_last(call, axis, start) {
        return last(call, axis);
    }
    let count = call.graph.value(call.output()).shape[axis];
    let end = end(call, start, count, step as i64)?;
    let args = [call.plan.int(axis as i64), call.plan.integer(start), end, call.plan.int(step as i64)];
    call.with_args("aten::slice_copy.Tensor_out", &args)
}

/// True for the last element of an axis whose size is known only at run time.
fn is_last(call: &Call<'_, '_, '_>, axis: usize, start: Int) -> bool {
    let size = call.graph.value(call.input(0)).shape[axis];
    let Int::Symbol(start) = start else { return false };
    let source = call.graph.symbols[start.0 as usize].source;
    let one = call.graph.value(call.output()).shape[axis] == Int::Const(1);
    one && source == SymbolSource::Difference(size, Int::Const(1))
}

/// Counted from the end, as upstream's exports have it.
fn last(call: &mut Call<'_, '_, '_>, axis: usize) -> Result {
    let x = call.operand(0)?;
    let value = call.graph.value(call.output());
    let mut shape = value.shape.clone();
    shape.remove(axis);
    let args = [x, call.plan.int(axis as i64), call.plan.int(-1)];
    let row = call.plan.temporary(value.dtype, &shape);
    call.plan.call("aten::select_copy.int_out", &args, row);
    call.finish_as(row)
}

/// `start + count · step`, as the plan's integer.
pub(super) fn end(call: &mut Call<'_, '_, '_>, start: Int, count: Int, step: i64) -> Result<u32> {
    match (start, count) {
        (Int::Const(start), Int::Const(count)) => Ok(call.plan.int(start + count * step)),
        (start, Int::Const(count)) => Ok(call.plan.derived(SymbolSource::Sum(start, Int::Const(count * step)))),
        (Int::Const(0), count) if step == 1 => Ok(call.plan.integer(count)),
        (start, count) if step == 1 => Ok(call.plan.derived(SymbolSource::Sum(start, count))),
        _ => call.unsupported("steps over a number of elements that is known only at run time"),
    }
}

pub(super) fn concat(call: &mut Call<'_, '_, '_>, axis: usize) -> Result {
    let parts = (0..call.node.inputs.len()).map(|index| call.operand(index)).collect::<Result<Vec<_>>>()?;
    let args = [call.plan.tensors(parts), call.plan.int(axis as i64)];
    let out = call.result()?;
    call.plan.call("aten::cat.out", &args, out);
    Ok(())
}

pub(super) fn expand(call: &mut Call<'_, '_, '_>) -> Result {
    let args = [call.plan.sizes(&call.graph.value(call.output()).shape), call.plan.bool(false)];
    call.with_args("aten::expand_copy.out", &args)
}

pub(super) fn arange(call: &mut Call<'_, '_, '_>, start: Int, step: i64) -> Result {
    let &[count] = &call.graph.value(call.output()).shape[..] else {
        return call.unsupported("numbers in several dimensions");
    };
    let args = [call.plan.integer(start), end(call, start, count, step)?, call.plan.int(step)];
    let out = call.result()?;
    call.plan.call("aten::arange.start_out", &args, out);
    Ok(())
}

pub(super) fn fill(call: &mut Call<'_, '_, '_>, value: f64) -> Result {
    let filled = call.graph.value(call.output());
    let number = match filled.dtype {
        DType::F32 | DType::F16 | DType::BF16 | DType::F64 => call.plan.double(value),
        DType::Bool => call.plan.bool(value != 0.0),
        _ => call.plan.int(value as i64),
    };
    let args = [call.plan.sizes(&filled.shape), number];
    let out = call.result()?;
    call.plan.call("aten::full.out", &args, out);
    Ok(())
}

pub(super) fn scalar(call: &mut Call<'_, '_, '_>, value: Int) -> Result {
    let args = [call.plan.sizes(&call.graph.value(call.output()).shape), call.plan.integer(value)];
    let out = call.result()?;
    call.plan.call("aten::full.out", &args, out);
    Ok(())
}
