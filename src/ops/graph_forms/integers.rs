//! Integers that a method computes: sizes, positions, and arithmetic on them.

use super::call::Call;
use super::sizes::{axis, difference, floor_quotient, product, sum};
use super::{Fit, Form, Unfit};
use crate::graph::{BinaryOp, Graph, Int, Op, SymbolSource, ValueId, ValueKind};
use crate::tensor::DType;

pub(super) const FORMS: &[(&str, Form)] = &[
    ("aten::sym_size.int", sym_size),
    ("aten::sym_numel", sym_numel),
    ("aten::_local_scalar_dense", local_scalar),
    ("executorch_prim::add.Scalar", |call| arithmetic(call, sum)),
    ("executorch_prim::sub.Scalar", |call| arithmetic(call, difference)),
    ("executorch_prim::mul.Scalar", |call| arithmetic(call, product)),
    ("executorch_prim::floordiv.Scalar", |call| {
        let (a, b) = (call.int(0)?, call.known_int(1)?);
        let quotient = floor_quotient(call.graph(), a, b)?;
        call.set_int(2, quotient)
    }),
];

/// (tensor, dimension, out)
fn sym_size(call: &mut Call<'_, '_>) -> Fit {
    let value = call.arg(0)?;
    let shape = call.method().shape(value)?;
    let axis = axis(call.known_int(1)?, shape.len())?;
    call.set_int(2, shape[axis])
}

/// (tensor, out)
fn sym_numel(call: &mut Call<'_, '_>) -> Fit {
    let value = call.arg(0)?;
    let shape = call.method().shape(value)?;
    let mut count = Int::Const(1);
    for size in shape {
        count = product(call.graph(), count, size)?;
    }
    call.set_int(1, count)
}

/// (tensor of one integer, out)
fn local_scalar(call: &mut Call<'_, '_>) -> Fit {
    let x = call.tensor(0)?;
    if call.shape(x).iter().any(|&size| size != Int::Const(1)) {
        return Unfit::why("the one element of a tensor that has several");
    }
    match item(call, x, 0)? {
        Some(int) => call.set_int(1, int),
        None => Unfit::why("a number that the method computes from its data"),
    }
}

/// (a, b, out), integers.
fn arithmetic(call: &mut Call<'_, '_>, apply: fn(&mut Graph, Int, Int) -> Fit<Int>) -> Fit {
    let (a, b) = (call.int(0)?, call.int(1)?);
    let result = apply(call.graph(), a, b)?;
    call.set_int(2, result)
}

fn is_integer(dtype: DType) -> bool {
    matches!(dtype, DType::I64 | DType::I32 | DType::I16 | DType::I8 | DType::U8)
}

/// Element `index` of an integer tensor, if it is known before anything runs: an element of an input or of a constant,
/// perhaps moved.
pub(super) fn item(call: &mut Call<'_, '_>, value: ValueId, index: usize) -> Fit<Option<Int>> {
    let found = call.graph().value(value).clone();
    if !is_integer(found.dtype) || found.quantization.is_some() {
        return Ok(None);
    }
    let dims: Option<Vec<usize>> = found.shape.iter().map(|&dim| known(dim)).collect();
    match found.kind {
        ValueKind::Input(input) if dims.is_some() => {
            let source = SymbolSource::InputItem { input, index };
            let (low, high) = range_of(found.dtype);
            return Ok(Some(call.graph().symbol(format!("input{input}[{index}]"), source, low, high)));
        }
        ValueKind::Constant(constant) => {
            let size = found.dtype.size();
            let bytes = constant.data.get(index * size..(index + 1) * size);
            return Ok(bytes.map(|bytes| Int::Const(number(found.dtype, bytes))));
        }
        _ => {}
    }
    let Some(node) = call.producer(value).cloned() else { return Ok(None) };
    match node.op {
        Op::Scalar { value } => Ok(Some(value)),
        Op::Reshape | Op::Convert => item(call, node.inputs[0], index),
        Op::Slice { axis, start: Int::Const(start), step } => {
            let from: Option<Vec<usize>> = call.shape(node.inputs[0]).into_iter().map(known).collect();
            let (Some(from), Some(to), Ok(start)) = (from, dims, usize::try_from(start)) else { return Ok(None) };
            item(call, node.inputs[0], index_before(&from, &to, [axis, start, step], index))
        }
        Op::Arange { start, step } => {
            let Some(offset) = i64::try_from(index).ok().and_then(|index| index.checked_mul(step)) else {
                return Ok(None);
            };
            sum(call.graph(), start, Int::Const(offset)).map(Some)
        }
        Op::Binary(BinaryOp::Add) if index == 0 => {
            let one = |call: &mut Call<'_, '_>, value| call.shape(value).iter().all(|&size| size == Int::Const(1));
            let (a, b) = (node.inputs[0], node.inputs[1]);
            if !one(call, a) || !one(call, b) {
                return Ok(None);
            }
            match (item(call, a, 0)?, item(call, b, 0)?) {
                (Some(a), Some(b)) => sum(call.graph(), a, b).map(Some),
                _ => Ok(None),
            }
        }
        _ => Ok(None),
    }
}

/// First number and length of an integer tensor of one dimension that counts up by ones.
pub(super) fn range(call: &mut Call<'_, '_>, value: ValueId) -> Fit<Option<(Int, Int)>> {
    let shape = call.shape(value);
    let &[length] = &shape[..] else { return Ok(None) };
    if length == Int::Const(1) {
        return Ok(item(call, value, 0)?.map(|start| (start, length)));
    }
    let Some(node) = call.producer(value).cloned() else { return Ok(None) };
    match node.op {
        Op::Arange { start, step: 1 } => Ok(Some((start, length))),
        Op::Convert if is_integer(call.dtype(node.inputs[0])) => range(call, node.inputs[0]),
        Op::Reshape if call.shape(node.inputs[0]).len() == 1 => range(call, node.inputs[0]),
        Op::Binary(BinaryOp::Add) => {
            for (counted, offset) in [(node.inputs[0], node.inputs[1]), (node.inputs[1], node.inputs[0])] {
                if call.shape(counted) != shape || call.shape(offset).iter().any(|&size| size != Int::Const(1)) {
                    continue;
                }
                if let (Some((start, _)), Some(offset)) = (range(call, counted)?, item(call, offset, 0)?) {
                    return Ok(Some((sum(call.graph(), start, offset)?, length)));
                }
            }
            Ok(None)
        }
        _ => Ok(None),
    }
}

/// Place in a tensor of sizes `from` of element `index` of its slice of sizes `to`.
fn index_before(from: &[usize], to: &[usize], [axis, start, step]: [usize; 3], mut index: usize) -> usize {
    let (mut place, mut stride) = (0, 1);
    for dim in (0..to.len()).rev() {
        let mut at = index % to[dim].max(1);
        index /= to[dim].max(1);
        if dim == axis {
            at = start + at * step;
        }
        place += at * stride;
        stride *= from[dim];
    }
    place
}

fn known(dim: Int) -> Option<usize> {
    match dim {
        Int::Const(size) => usize::try_from(size).ok(),
        Int::Symbol(_) => None,
    }
}

fn range_of(dtype: DType) -> (i64, i64) {
    match dtype {
        DType::U8 => (0, 255),
        _ => {
            let unused = 64 - 8 * dtype.size() as u32;
            (i64::MIN >> unused, i64::MAX >> unused)
        }
    }
}

fn number(dtype: DType, bytes: &[u8]) -> i64 {
    let mut wide = [0; 8];
    wide[..bytes.len()].copy_from_slice(bytes);
    let unused = 64 - 8 * bytes.len() as u32;
    let number = i64::from_le_bytes(wide);
    if dtype == DType::U8 { number } else { number << unused >> unused }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_before_a_slice() {
        // Rows 1 and 3 of a matrix of four by three.
        let places: Vec<usize> = (0..6).map(|index| index_before(&[4, 3], &[2, 3], [0, 1, 2], index)).collect();
        assert_eq!(places, [3, 4, 5, 9, 10, 11]);
        assert_eq!(index_before(&[4, 3], &[4, 1], [1, 2, 1], 3), 11);
    }

    #[test]
    fn numbers_of_each_type() {
        assert_eq!(
            (number(DType::U8, &[255]), number(DType::I8, &[255]), number(DType::I32, &[0, 1, 0, 0])),
            (255, -1, 256)
        );
        assert_eq!(
            (range_of(DType::I8), range_of(DType::U8), range_of(DType::I64)),
            ((-128, 127), (0, 255), (i64::MIN, i64::MAX))
        );
    }
}
