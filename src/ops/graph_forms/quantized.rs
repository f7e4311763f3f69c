//! `quantized_decomposed::`: rows of quantized tables, linear layers over quantized weights, rows quantized with scales of their own, and back.

use super::call::{Call, Number};
use super::sizes::equal;
use super::{Fit, Form, Unfit};
use crate::base::storage::Blob;
use crate::graph::{BinaryOp, CodeOrder, Constant, Int, Op, Quantization, ValueId};
use crate::pte::EValue;
use crate::tensor::DType;

pub(super) const FORMS: &[(&str, Form)] = &[
    ("quantized_decomposed::embedding_byte.out", |call| embedding(call, 8, 6)),
    ("quantized_decomposed::embedding_byte.dtype_out", |call| embedding(call, 8, 7)),
    ("quantized_decomposed::embedding_4bit.out", |call| embedding(call, 4, 6)),
    ("quantized_decomposed::embedding_4bit.dtype_out", |call| embedding(call, 4, 7)),
    ("quantized_decomposed::embedding_2bit.out", |call| embedding(call, 2, 6)),
    ("quantized_decomposed::embedding_2bit.dtype_out", |call| embedding(call, 2, 7)),
    ("quantized_decomposed::mixed_linear.out", mixed_linear),
    ("quantized_decomposed::quantize_per_tensor.out", quantize_whole),
    ("quantized_decomposed::dequantize_per_tensor.out", dequantize_whole),
    ("quantized_decomposed::choose_qparams_per_token_asymmetric.out", choose),
    ("quantized_decomposed::quantize_per_token.out", quantize),
    ("quantized_decomposed::dequantize_per_token.out", dequantize),
];

/// (table, scales, zero points or null, smallest code, largest code, ids, [element type,] out)
fn embedding(call: &mut Call<'_, '_>, bits: u8, out: usize) -> Fit {
    let dtype = call.stated_dtype(out)?;
    if out == 7 {
        call.check_dtype_arg(6, dtype)?;
    }
    let (min, max) = (call.known_int(3)?, call.known_int(4)?);
    if min > max {
        return Unfit::why(format!("codes of {min}..={max}"));
    }
    let ids = call.tensor(5)?;
    if dtype != DType::F32 || !matches!(call.dtype(ids), DType::I64 | DType::I32) {
        return Unfit::why(format!("rows of {dtype} by {}", call.dtype(ids)));
    }
    let table = table(call, bits, 0)?;
    let mut shape = call.shape(ids);
    shape.push(call.shape(table)[1]);
    let value = call.emit(Op::Embedding, &[table, ids], DType::F32, shape);
    call.set(out, value)
}

/// (x, codes, scales, zero points or null, element type or null, out)
fn mixed_linear(call: &mut Call<'_, '_>) -> Fit {
    let dtype = call.stated_dtype(5)?;
    call.check_dtype_arg(4, dtype)?;
    let x = call.tensor(0)?;
    let weights = table(call, 8, 1)?;
    let types = [dtype, call.dtype(x), call.dtype(weights)];
    if types != [DType::F32, DType::F32, DType::I8] || !call.is_null(3)? {
        return Unfit::why(format!("rows of {} over weights of {}, or zero points", types[1], types[2]));
    }
    let &[rows, depth] = &call.shape(x)[..] else { return Unfit::why("an operand that is no matrix") };
    let of_weights = call.shape(weights);
    equal(depth, of_weights[1])?;
    let value = call.emit(Op::FullyConnected, &[x, weights], DType::F32, vec![rows, of_weights[0]]);
    call.set(5, value)
}

/// Codes, scales and zero points or null, which are the arguments from `first` on, as one constant.
fn table(call: &mut Call<'_, '_>, bits: u8, first: usize) -> Fit<ValueId> {
    let (codes, scales) = (constant(call, first)?, constant(call, first + 1)?);
    let per_byte = usize::from(8 / bits);
    let &[rows, bytes] = &codes.dims[..] else { return Unfit::why("a table that is no matrix") };
    let columns = bytes * per_byte;
    let groups = match scales.dims[..] {
        [n] if n == rows => 1,
        [n, groups] if n == rows && groups > 0 && columns > 0 && columns.is_multiple_of(groups) => groups,
        _ => return Unfit::why("scales that do not fit the table"),
    };
    let known_codes = codes.dtype == DType::U8 || (bits == 8 && codes.dtype == DType::I8);
    if !known_codes || !matches!(scales.dtype, DType::F32 | DType::BF16) || columns == 0 {
        return Unfit::why(format!("codes of {} with scales of {}", codes.dtype, scales.dtype));
    }
    let zero_points = match call.is_null(first + 2)? {
        true => None,
        false => Some(zero_points(constant(call, first + 2)?, bits, &scales.dims)?),
    };
    let order = if bits == 4 { CodeOrder::HighFirst } else { CodeOrder::LowFirst };
    let quantization = Quantization::Blockwise {
        bits,
        block: columns / groups,
        scales: Constant { data: scales.data },
        scale_dtype: scales.dtype,
        zero_points,
        order,
    };
    let shape = [rows, columns];
    Ok(call.graph().add_constant("table", codes.dtype, &shape, Some(quantization), codes.data))
}

struct Stored {
    dtype: DType,
    dims: Vec<usize>,
    data: Blob,
}

fn constant(call: &mut Call<'_, '_>, arg: usize) -> Fit<Stored> {
    let value = call.arg(arg)?;
    if !call.method().is_constant(value)? {
        return Unfit::why(format!("argument {arg} is no constant"));
    }
    let id = call.method().constant(value)?;
    let EValue::Tensor(tensor) = call.method().value(value) else { return Unfit::why("no tensor") };
    let (dtype, dims) = (tensor.dtype, tensor.sizes.clone());
    match call.graph().constant(id) {
        Some(data) => Ok(Stored { dtype, dims, data: data.clone() }),
        None => Unfit::why(format!("argument {arg} is no constant")),
    }
}

/// Zero points of the codes as they are stored; the file's, which are reals, are of codes less half of their range.
fn zero_points(Stored { dtype, dims: own, data }: Stored, bits: u8, dims: &[usize]) -> Fit<Constant> {
    if dtype != DType::F32 || own != dims {
        return Unfit::why("zero points that do not fit the table");
    }
    let center = if bits < 8 { f32::from(1u8 << (bits - 1)) } else { 0.0 };
    let point = |bytes: &[u8; 4]| {
        let point = f32::from_le_bytes(*bytes) + center;
        let whole = point.trunc() == point && (-128.0..=127.0).contains(&point);
        if whole { Ok((point as i8).cast_unsigned()) } else { Unfit::why(format!("zero point {point}")) }
    };
    let points = data.as_chunks::<4>().0.iter().map(point).collect::<Fit<Vec<u8>>>()?;
    Ok(Constant { data: Blob::from_vec(points) })
}

/// Added to a small f32 and taken away again, it leaves the nearest integer, ties to even.
const ROUNDS: f64 = 12_582_912.0;

/// Arguments `first` and the next as the smallest and largest of codes of `dtype`, which f32 must hold exactly.
fn code_range(call: &Call<'_, '_>, first: usize, dtype: DType) -> Fit<[f32; 2]> {
    let possible = match dtype {
        DType::U8 => 0..=255,
        DType::I8 => -128..=127,
        DType::U16 => 0..=65_535,
        DType::I16 => -32_768..=32_767,
        other => return Unfit::why(format!("codes of {other}")),
    };
    let (min, max) = (call.known_int(first)?, call.known_int(first + 1)?);
    if min > max || !possible.contains(&min) || !possible.contains(&max) {
        return Unfit::why(format!("codes {min}..={max} of {dtype}"));
    }
    Ok([min as f32, max as f32])
}

/// `x` with a number, one after the other.
fn with_numbers(call: &mut Call<'_, '_>, mut x: ValueId, steps: &[(BinaryOp, f64)]) -> Fit<ValueId> {
    let shape = call.shape(x);
    for &(op, number) in steps {
        let number = call.scalar(Number::Double(number), DType::F32)?;
        x = call.like(Op::Binary(op), &[x, number], shape.clone());
    }
    Ok(x)
}

/// (x, scale, zero point, smallest code, largest code, element type, out)
fn quantize_whole(call: &mut Call<'_, '_>) -> Fit {
    let (x, dtype) = (call.tensor(0)?, call.stated_dtype(6)?);
    call.check_dtype_arg(5, dtype)?;
    let [min, max] = code_range(call, 3, dtype)?;
    if call.dtype(x) != DType::F32 {
        return Unfit::why(format!("codes of {}", call.dtype(x)));
    }
    let (inverse, zero) = (1.0 / call.real(1)? as f32, call.known_int(2)? as f64);
    let steps = [
        (BinaryOp::Multiply, inverse.into()),
        (BinaryOp::Add, ROUNDS),
        (BinaryOp::Subtract, ROUNDS),
        (BinaryOp::Add, zero),
    ];
    let codes = with_numbers(call, x, &steps)?;
    let shape = call.shape(codes);
    let limited = call.like(Op::Clamp { min, max }, &[codes], shape);
    let codes = call.converted(limited, dtype);
    call.set(6, codes)
}

/// (codes, scale, zero point, smallest code, largest code, element type, element type of the result, out)
fn dequantize_whole(call: &mut Call<'_, '_>) -> Fit {
    let codes = call.tensor(0)?;
    call.check_dtype_arg(5, call.dtype(codes))?;
    code_range(call, 3, call.dtype(codes))?;
    let dtype = call.stated_dtype(7)?;
    call.check_dtype_arg(6, dtype)?;
    if dtype != DType::F32 {
        return Unfit::why(format!("reals of {dtype}"));
    }
    let (scale, zero) = (call.real(1)?, call.known_int(2)? as f64);
    let reals = call.converted(codes, DType::F32);
    let reals = with_numbers(call, reals, &[(BinaryOp::Subtract, zero), (BinaryOp::Multiply, scale)])?;
    call.set(7, reals)
}

/// What `choose_qparams_per_token_asymmetric` came to, with the codes that `quantize_per_token` will ask for.
#[derive(Debug, Clone, Copy)]
pub(super) struct PerToken {
    x: ValueId,
    codes: ValueId,
    zero_points: ValueId,
}

/// (x, element type, scales out, zero points out)
fn choose(call: &mut Call<'_, '_>) -> Fit {
    let x = call.tensor(0)?;
    let shape = call.shape(x);
    if call.dtype(x) != DType::F32 || shape.is_empty() {
        return Unfit::why(format!("scales of {}", call.dtype(x)));
    }
    if call.known_int(1)? != i64::from(DType::I8 as i8) {
        return Unfit::why("codes other than i8");
    }
    let mut rows = shape.clone();
    rows[shape.len() - 1] = Int::Const(1);
    let (of_scales, of_points) = (call.stated_dtype(2)?, call.stated_dtype(3)?);
    if of_scales != DType::F64 || of_points != DType::I64 {
        return Unfit::why(format!("scales of {of_scales} and zero points of {of_points}"));
    }
    let codes = call.graph().add_computed("codes", DType::I8, shape);
    let scales = call.graph().add_computed("scales", DType::F32, rows.clone());
    let zero_points = call.graph().add_computed("zero points", of_points, rows);
    let op = Op::QuantizePerToken { zero_point_dtype: of_points };
    call.method().add_node(op, &[x], &[codes, scales, zero_points]);
    call.method().codes.insert(scales, PerToken { x, codes, zero_points });
    let stored = call.converted(scales, of_scales);
    call.set(2, stored)?;
    call.set(3, zero_points)
}

/// What `value` was before conversions between types that keep it.
fn unconverted(call: &Call<'_, '_>, mut value: ValueId) -> ValueId {
    while let Some(node) = call.producer(value)
        && node.op == Op::Convert
    {
        value = node.inputs[0];
    }
    value
}

/// (x, scales, zero points, smallest code, largest code, element type, out)
fn quantize(call: &mut Call<'_, '_>) -> Fit {
    let (x, scales, zero_points) = (call.tensor(0)?, call.tensor(1)?, call.tensor(2)?);
    let chosen = unconverted(call, scales);
    let found = call.method().codes.get(&chosen).copied();
    let (min, max) = (call.known_int(3)?, call.known_int(4)?);
    match found {
        Some(found)
            if found.x == x && unconverted(call, zero_points) == found.zero_points && (min, max) == (-128, 127) =>
        {
            call.check_dtype_arg(5, DType::I8)?;
            call.set(6, found.codes)
        }
        _ => Unfit::why("codes by other scales than their own"),
    }
}

/// (codes, scales, zero points, smallest code, largest code, element type, element type of the result, out)
fn dequantize(call: &mut Call<'_, '_>) -> Fit {
    let (codes, scales, zero_points) = (call.tensor(0)?, call.tensor(1)?, call.tensor(2)?);
    call.check_dtype_arg(5, call.dtype(codes))?;
    if call.stated_dtype(7)? != DType::F32 || !matches!(call.dtype(codes), DType::I8 | DType::U8) {
        return Unfit::why("codes of other types than i8 and u8, or reals other than f32");
    }
    let shape = call.shape(codes);
    let mut rows = shape.clone();
    let Some(last) = rows.last_mut() else { return Unfit::why("codes without rows") };
    *last = Int::Const(1);
    let mut operands = Vec::new();
    for operand in [codes, zero_points, scales] {
        let operand = call.converted(operand, DType::F32);
        if operands.is_empty() {
            operands.push(operand);
            continue;
        }
        let of_operand = call.shape(operand);
        if of_operand.len() != rows.len() {
            return Unfit::why("scales that are not of one row each");
        }
        of_operand.iter().zip(&rows).try_for_each(|(&a, &b)| equal(a, b))?;
        operands.push(operand);
    }
    let centered = call.like(Op::Binary(BinaryOp::Subtract), &operands[..2], shape.clone());
    let value = call.like(Op::Binary(BinaryOp::Multiply), &[centered, operands[2]], shape);
    call.set(7, value)
}
