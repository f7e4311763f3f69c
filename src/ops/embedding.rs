//! `quantized_decomposed::embedding_{byte,4bit,2bit}`: rows of a quantized table, dequantized: `(code - zero) * scale`.
//!
//! `.out` takes (weight, scales, zero points or null, smallest code, largest code, ids, out), `.dtype_out` has the
//! element type before out. The table is `[rows, dim]` bytes, or `[rows, dim / codes per byte]` packed bytes; scales
//! and zero points are `[rows]` or `[rows, groups]`, a group being `dim / groups` neighbouring elements.

use super::error::OpError;
use crate::error::Result;
use crate::runtime::{Inputs, KernelArgs, KernelRegistry, Tensor, Value};
use crate::tensor::{DType, MAX_RANK};
use half::{bf16, f16};

const WEIGHT: usize = 0;
const SCALES: usize = 1;
const ZERO_POINTS: usize = 2;
const CODE_MIN: usize = 3;
const CODE_MAX: usize = 4;
const IDS: usize = 5;

pub(super) fn register(registry: &mut KernelRegistry) {
    registry.register("quantized_decomposed::embedding_byte.out", |args| embedding(args, None, false));
    registry.register("quantized_decomposed::embedding_byte.dtype_out", |args| embedding(args, None, true));
    registry.register("quantized_decomposed::embedding_4bit.out", |args| embedding(args, Some(Code::Four), false));
    registry.register("quantized_decomposed::embedding_4bit.dtype_out", |args| embedding(args, Some(Code::Four), true));
    registry.register("quantized_decomposed::embedding_2bit.out", |args| embedding(args, Some(Code::Two), false));
    registry.register("quantized_decomposed::embedding_2bit.dtype_out", |args| embedding(args, Some(Code::Two), true));
}

/// How codes lie in the bytes of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Code {
    Unsigned,
    Signed,
    /// Two a byte, plus 8; the first in the high half.
    Four,
    /// Four a byte, plus 2; the first in the low bits.
    Two,
}

impl Code {
    fn per_byte(self) -> usize {
        match self {
            Self::Unsigned | Self::Signed => 1,
            Self::Four => 2,
            Self::Two => 4,
        }
    }

    #[inline]
    fn at(self, row: &[u8], index: usize) -> i32 {
        match self {
            Self::Unsigned => i32::from(row[index]),
            Self::Signed => i32::from(row[index].cast_signed()),
            Self::Four => i32::from(row[index / 2] >> (4 * (1 - index % 2)) & 0x0f) - 8,
            Self::Two => i32::from(row[index / 4] >> (2 * (index % 4)) & 0x03) - 2,
        }
    }
}

/// Scales or zero points.
enum Reals<'a> {
    F32(&'a [f32]),
    F16(&'a [u16]),
    BF16(&'a [u16]),
}

impl<'a> Reals<'a> {
    fn new(tensor: &'a Tensor, what: &'static str) -> Result<Self> {
        Ok(match tensor.dtype {
            DType::F32 => Self::F32(tensor.view()?),
            DType::F16 => Self::F16(tensor.view()?),
            DType::BF16 => Self::BF16(tensor.view()?),
            dtype => return Err(OpError::Type { what, dtype }.into()),
        })
    }

    fn at(&self, index: usize) -> f32 {
        match self {
            Self::F32(reals) => reals[index],
            Self::F16(bits) => f16::from_bits(bits[index]).to_f32(),
            Self::BF16(bits) => bf16::from_bits(bits[index]).to_f32(),
        }
    }
}

/// A quantized table, all sizes checked.
struct Table<'a> {
    code: Code,
    rows: usize,
    dim: usize,
    groups: usize,
    codes: &'a [u8],                // (rows, dim / codes per byte)
    scales: Reals<'a>,              // (rows, groups)
    zero_points: Option<Reals<'a>>, // (rows, groups)
}

impl<'a> Table<'a> {
    fn new(args: &Inputs<'a>, packed: Option<Code>) -> Result<Self> {
        let (weight, scales) = (args.tensor(WEIGHT)?, args.tensor(SCALES)?);
        let code = match (packed, weight.dtype) {
            (Some(code), DType::U8) => code,
            (None, DType::U8) => Code::Unsigned,
            (None, DType::I8) => Code::Signed,
            (_, dtype) => return Err(OpError::Type { what: "the table", dtype }.into()),
        };
        let &[rows, bytes] = &weight.dims[..] else {
            return Err(OpError::Shape { what: "the table", dims: weight.dims.clone() }.into());
        };
        let dim = bytes.saturating_mul(code.per_byte());
        let groups = match scales.dims[..] {
            [n] if n == rows => 1,
            [n, groups] if n == rows && groups > 0 && dim.is_multiple_of(groups) => groups,
            _ => return Err(OpError::Shape { what: "the scales", dims: scales.dims.clone() }.into()),
        };
        let zero_points = args.optional_tensor(ZERO_POINTS)?;
        if let Some(zero_points) = zero_points
            && zero_points.dims != scales.dims
        {
            return Err(OpError::Shape { what: "the zero points", dims: zero_points.dims.clone() }.into());
        }
        for (what, tensor) in
            [("the table", Some(weight)), ("the scales", Some(scales)), ("the zero points", zero_points)]
        {
            if tensor.is_some_and(|tensor| !tensor.is_contiguous()) {
                return Err(OpError::Order { what }.into());
            }
        }
        let scales = Reals::new(scales, "the scales")?;
        let zero_points = zero_points.map(|tensor| Reals::new(tensor, "the zero points")).transpose()?;
        Ok(Self { code, rows, dim, groups, codes: weight.bytes()?, scales, zero_points })
    }

    /// Writes the rows `ids` to `out`, which has room for all of them.
    fn gather<T>(&self, ids: impl Iterator<Item = i64>, out: &mut [T], store: impl Fn(f32) -> T) -> Result<()> {
        if self.dim == 0 {
            return Ok(());
        }
        let group_len = self.dim / self.groups;
        for (place, (id, out)) in ids.zip(out.chunks_exact_mut(self.dim)).enumerate() {
            let row = usize::try_from(id).ok().filter(|&row| row < self.rows);
            let row = row.ok_or(OpError::Id { id, place, rows: self.rows })?;
            let bytes = self.dim / self.code.per_byte();
            let codes = &self.codes[row * bytes..][..bytes];
            for (group, out) in out.chunks_exact_mut(group_len).enumerate() {
                let parameter = row * self.groups + group;
                let scale = self.scales.at(parameter);
                let zero_point = self.zero_points.as_ref().map_or(0.0, |reals| reals.at(parameter));
                for (index, out) in out.iter_mut().enumerate() {
                    let code = self.code.at(codes, group * group_len + index);
                    *out = store((code as f32 - zero_point) * scale);
                }
            }
        }
        Ok(())
    }
}

fn embedding(args: &mut KernelArgs<'_>, packed: Option<Code>, with_dtype: bool) -> Result<()> {
    let place = IDS + 1 + usize::from(with_dtype);
    if with_dtype && !matches!(args.value(IDS + 1)?, Value::Null) {
        let (code, out) = (args.int(IDS + 1)?, args.tensor(place)?.dtype);
        if code != i64::from(out as i8) {
            let want = i8::try_from(code).ok().and_then(DType::from_code).unwrap_or(out);
            return Err(OpError::TypesDiffer { what: "the output", have: out, want }.into());
        }
    }
    let (min, max) = (args.int(CODE_MIN)?, args.int(CODE_MAX)?);
    if min > max {
        return Err(OpError::CodeRange { min, max }.into());
    }
    let (inputs, out) = args.split(place)?;
    let table = Table::new(&inputs, packed)?;
    let ids = inputs.tensor(IDS)?;
    for (what, tensor) in [("the ids", ids), ("the output", &*out)] {
        if !tensor.is_contiguous() {
            return Err(OpError::Order { what }.into());
        }
    }
    let mut dims = [0; MAX_RANK];
    let rank = ids.dims.len() + 1;
    let Some(dims) = dims.get_mut(..rank) else {
        return Err(OpError::Shape { what: "the ids", dims: ids.dims.clone() }.into());
    };
    dims[..rank - 1].copy_from_slice(&ids.dims);
    dims[rank - 1] = table.dim;
    out.resize(dims)?;
    match ids.dtype {
        DType::I64 => store(&table, ids.view::<i64>()?.iter().copied(), out),
        DType::I32 => store(&table, ids.view::<i32>()?.iter().map(|&id| id.into()), out),
        dtype => Err(OpError::Type { what: "an id", dtype }.into()),
    }
}

fn store(table: &Table<'_>, ids: impl Iterator<Item = i64>, out: &mut Tensor) -> Result<()> {
    match out.dtype {
        DType::F32 => table.gather(ids, out.view_mut()?, |real| real),
        DType::F16 => table.gather(ids, out.view_mut()?, |real| f16::from_f32(real).to_bits()),
        dtype => Err(OpError::Type { what: "the output", dtype }.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Call, elements};
    use super::*;
    use crate::pte::EValue;

    const NAME: &str = "quantized_decomposed::embedding_4bit";

    fn floats(bytes: &[u8]) -> Vec<f32> {
        elements(bytes)
    }

    /// A call up to the ids.
    fn table(weight: &[u8], scales: &[f32], zero_points: Option<&[f32]>) -> Call {
        let call = Call::new().constant(DType::U8, &[2, weight.len() / 2], weight);
        let dims = [2, scales.len() / 2];
        let call = call.constant(DType::F32, &dims, scales);
        match zero_points {
            Some(zero_points) => call.constant(DType::F32, &dims, zero_points),
            None => call.value(EValue::Null),
        }
    }

    #[test]
    fn four_bits_high_half_first_group_by_group() {
        let call = table(&[0x0f, 0x87, 0x98, 0xf0], &[1.0, 2.0, 0.5, 0.25], None).int(-8).int(7);
        let call = call.constant(DType::I64, &[1, 2], &[1i64, 0]).output(DType::F32, &[1, 2, 4]);
        let (dims, bytes) = call.run(NAME, "out").unwrap();
        assert_eq!(dims, [1, 2, 4]);
        assert_eq!(floats(&bytes), [0.5, 0.0, 1.75, -2.0, -8.0, 7.0, 0.0, -2.0]);
    }

    #[test]
    fn two_bits_low_bits_first_with_zero_points() {
        let call = table(&[0b11_10_01_00, 0b00_01_10_11], &[1.0, 2.0], Some(&[0.0, -1.0])).int(-2).int(1);
        let call = call.constant(DType::I32, &[2], &[0i32, 1]).output(DType::F32, &[2, 4]);
        let (_, bytes) = call.run("quantized_decomposed::embedding_2bit", "out").unwrap();
        assert_eq!(floats(&bytes), [-2.0, -1.0, 0.0, 1.0, 4.0, 2.0, 0.0, -2.0]);
    }

    #[test]
    fn bytes_signed_and_unsigned_in_halves() {
        let half = |real: f32| f16::from_f32(real).to_bits();
        for (dtype, want) in [(DType::U8, [0.0, 127.5]), (DType::I8, [0.0, -0.5])] {
            let weight = [9u8, 9, 0, 255];
            let call = match dtype {
                DType::U8 => Call::new().constant(dtype, &[2, 2], &weight),
                _ => Call::new().constant(dtype, &[2, 2], &weight.map(u8::cast_signed)),
            };
            let call = call.constant(DType::F16, &[2], &[half(1.0), half(0.5)]).value(EValue::Null).int(-128).int(127);
            let call = call.constant(DType::I64, &[1], &[1i64]).int(5).output(DType::F16, &[3, 2]);
            let (dims, bytes) = call.run("quantized_decomposed::embedding_byte", "dtype_out").unwrap();
            assert_eq!((dims, elements::<u16>(&bytes)), (vec![1, 2], want.map(half).to_vec()));
        }
    }

    #[test]
    fn defects_are_named() {
        let good = || table(&[0; 4], &[1.0; 2], None);
        let ids = |call: Call, id: i64| call.int(-8).int(7).constant(DType::I64, &[1], &[id]);
        let out = |call: Call| call.output(DType::F32, &[1, 4]).run(NAME, "out");
        let scales = |dims: &[usize]| {
            let call = Call::new().constant(DType::U8, &[2, 2], &[0u8; 4]).constant(DType::F32, dims, &[1.0f32; 6]);
            out(ids(call.value(EValue::Null), 0))
        };
        for (result, want) in [
            (out(ids(good(), 2)), "id 2 at place 0 is not in the table of 2 rows"),
            (out(ids(good(), -1)), "id -1 at place 0 is not in the table of 2 rows"),
            (scales(&[3]), "the scales cannot have the sizes [3]"),
            (scales(&[2, 3]), "the scales cannot have the sizes [2, 3]"),
            (scales(&[2, 0]), "the scales cannot have the sizes [2, 0]"),
            (out(good().int(7).int(-8).constant(DType::I64, &[1], &[0i64])), "smallest code 7 is above the largest -8"),
            (out(good().int(-8).int(7).constant(DType::U8, &[1], &[0u8])), "an id cannot be u8"),
            (
                ids(good(), 0).int(5).output(DType::F32, &[1, 4]).run(NAME, "dtype_out"),
                "the output has f32 elements, its type says f16",
            ),
            (ids(good(), 0).output(DType::I32, &[1, 4]).run(NAME, "out"), "the output cannot be i32"),
            (ids(good(), 0).output(DType::F32, &[1, 2]).run(NAME, "out"), "do not fit the upper bounds [1, 2]"),
        ] {
            let text = result.unwrap_err().chain();
            assert!(text.contains(want), "{text}");
            assert!(text.starts_with("method forward, instruction 0: quantized_decomposed::embedding_4bit."), "{text}");
        }
    }
}
