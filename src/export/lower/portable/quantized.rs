//! Codes and reals: embedding tables, and conversions where keys, values and masks cross the border.

use super::{Call, Result};
use crate::base::storage::Blob;
use crate::graph::{CodeOrder, Constant, Quantization, Value};
use crate::tensor::{DType, Encoding};

/// Rows of a table by number.
pub(super) fn embedding(call: &mut Call<'_, '_, '_>) -> Result {
    let table = call.graph.value(call.input(0));
    match &table.quantization {
        None => real_embedding(call),
        Some(Quantization::Blockwise { .. }) => quantized_embedding(call, table),
        Some(_) => call.unsupported("a table that is not quantized by blocks"),
    }
}

fn real_embedding(call: &mut Call<'_, '_, '_>) -> Result {
    let dtype = call.dtype(call.output());
    let table = call.as_real(call.input(0), dtype)?;
    let args = [table, call.operand(1)?, call.plan.int(-1), call.plan.bool(false), call.plan.bool(false)];
    let out = call.result()?;
    call.plan.call("aten::embedding.out", &args, out);
    Ok(())
}

fn quantized_embedding(call: &mut Call<'_, '_, '_>, table: &Value) -> Result {
    let id = call.input(0);
    let (Some(Quantization::Blockwise { bits, block, scales, scale_dtype, zero_points, order }), Some(codes)) =
        (&table.quantization, call.graph.constant(id))
    else {
        return call.unsupported("a table that is no constant");
    };
    let (name, wanted) = match bits {
        2 => ("quantized_decomposed::embedding_2bit.dtype_out", CodeOrder::LowFirst),
        4 => ("quantized_decomposed::embedding_4bit.dtype_out", CodeOrder::HighFirst),
        8 => ("quantized_decomposed::embedding_byte.dtype_out", *order),
        _ => return call.unsupported(format!("a table of {bits}-bit codes")),
    };
    if *order != wanted {
        return call.unsupported(format!("a table of {bits}-bit codes in the other order"));
    }
    let &[rows, columns] = &call.graph.max_shape(id)[..] else { return call.unsupported("a table that is no matrix") };
    let groups = columns / block;
    let bytes = vec![rows, columns * usize::from(*bits) / 8];
    let zero_points = match zero_points {
        None => call.plan.null(),
        Some(points) if *scale_dtype == DType::F32 => {
            let points = real_zero_points(points, *bits);
            call.plan.constant(DType::F32, vec![rows, groups], &points)
        }
        Some(_) => return call.unsupported(format!("zero points beside scales of {scale_dtype}")),
    };
    let codes = call.plan.constant(table.dtype, bytes, codes);
    let scales = call.plan.constant(*scale_dtype, vec![rows, groups], &scales.data);
    let half = 1i64 << (bits - 1);
    let range = if table.dtype == DType::U8 && *bits == 8 { [0, 255] } else { [-half, half - 1] };
    let [min, max] = range.map(|code| call.plan.int(code));
    let indices = indices(call)?;
    let dtype = call.dtype(call.output());
    let args = [codes, scales, zero_points, min, max, indices, call.plan.int(i64::from(dtype as i8))];
    let out = call.result()?;
    call.plan.call(name, &args, out);
    Ok(())
}

/// The operators want 64-bit numbers.
fn indices(call: &mut Call<'_, '_, '_>) -> Result<u32> {
    let indices = call.operand(1)?;
    let value = call.graph.value(call.input(1));
    if value.dtype == DType::I64 {
        return Ok(indices);
    }
    let wide = call.plan.temporary(DType::I64, &value.shape);
    let args = [indices, call.plan.bool(false), call.plan.null()];
    call.plan.call("aten::_to_copy.out", &args, wide);
    Ok(wide)
}

/// Zero points of stored, unsigned codes as the operators want them: of signed codes, as reals.
fn real_zero_points(points: &Constant, bits: u8) -> Blob {
    let center = if bits < 8 { 1i32 << (bits - 1) } else { 0 };
    let real = |&point: &u8| ((i32::from(point.cast_signed()) - center) as f32).to_le_bytes();
    Blob::from_vec(points.data.iter().flat_map(real).collect())
}

/// A quantization of whole values.
struct PerTensor {
    dtype: DType,
    encoding: Encoding,
}

impl PerTensor {
    /// `None` for reals.
    fn of(call: &Call<'_, '_, '_>, value: &Value) -> Result<Option<Self>> {
        match value.quantization {
            None => Ok(None),
            Some(Quantization::PerTensor { encoding, .. }) => Ok(Some(Self { dtype: value.dtype, encoding })),
            Some(_) => call.unsupported("codes with scales of their own; only XNNPACK delegates make them"),
        }
    }

    /// Scale, zero point, smallest and largest code, element type.
    fn args(&self, call: &mut Call<'_, '_, '_>) -> Result<[u32; 5]> {
        let range = match self.dtype {
            DType::U8 => [0, 255],
            DType::I8 => [-128, 127],
            DType::U16 => [0, 65_535],
            DType::I16 => [-32_768, 32_767],
            DType::I32 => [i64::from(i32::MIN), i64::from(i32::MAX)],
            other => return call.unsupported(format!("codes of {other}")),
        };
        let [min, max] = range.map(|code| call.plan.int(code));
        let scale = call.plan.double(self.encoding.scale.into());
        let zero_point = call.plan.int(self.encoding.zero_point.into());
        Ok([scale, zero_point, min, max, call.plan.int(i64::from(self.dtype as i8))])
    }
}

pub(super) fn convert(call: &mut Call<'_, '_, '_>) -> Result {
    let (from, to) = (call.graph.value(call.input(0)), call.graph.value(call.output()));
    match (PerTensor::of(call, from)?, PerTensor::of(call, to)?) {
        (None, None) => {
            let args = [call.plan.bool(false), call.plan.null()];
            call.with_args("aten::_to_copy.out", &args)
        }
        (None, Some(codes)) => {
            let args = codes.args(call)?;
            call.with_args("quantized_decomposed::quantize_per_tensor.out", &args)
        }
        (Some(codes), None) => {
            let [scale, zero_point, min, max, dtype] = codes.args(call)?;
            let to = call.plan.int(i64::from(to.dtype as i8));
            call.with_args("quantized_decomposed::dequantize_per_tensor.out", &[scale, zero_point, min, max, dtype, to])
        }
        (Some(old), Some(new)) => {
            let codes = call.operand(0)?;
            let [scale, zero_point, min, max, dtype] = old.args(call)?;
            let to = call.plan.int(i64::from(DType::F32 as i8));
            let reals = call.plan.temporary(DType::F32, &from.shape);
            let args = [codes, scale, zero_point, min, max, dtype, to];
            call.plan.call("quantized_decomposed::dequantize_per_tensor.out", &args, reals);
            let [scale, zero_point, min, max, dtype] = new.args(call)?;
            let out = call.result()?;
            let args = [reals, scale, zero_point, min, max, dtype];
            call.plan.call("quantized_decomposed::quantize_per_tensor.out", &args, out);
            Ok(())
        }
    }
}
