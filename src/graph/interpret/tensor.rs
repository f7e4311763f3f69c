//! The tensors that go into and come out of the reference interpreter.

use crate::error::{Error, Result, Status};
use crate::tensor::{DType, element_count};
use half::{bf16, f16};

/// Elements, row by row.
#[derive(Debug, Clone, PartialEq)]
pub enum Data {
    /// Of the real types, and the reals that quantized codes stand for. F64 is held in f32.
    Real(Vec<f32>),
    /// Of the integer types and bool (0 or 1).
    Integer(Vec<i64>),
}

impl Data {
    /// Number of elements.
    pub fn len(&self) -> usize {
        match self {
            Self::Real(data) => data.len(),
            Self::Integer(data) => data.len(),
        }
    }

    /// True without elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// True for reals.
    pub fn is_real(&self) -> bool {
        matches!(self, Self::Real(_))
    }

    /// The elements at `indices`, in that order.
    pub(super) fn gather(&self, indices: &[usize]) -> Self {
        match self {
            Self::Real(data) => Self::Real(indices.iter().map(|&index| data[index]).collect()),
            Self::Integer(data) => Self::Integer(indices.iter().map(|&index| data[index]).collect()),
        }
    }

    /// Elements as reals, whatever they are.
    pub(super) fn to_reals(&self) -> Vec<f32> {
        match self {
            Self::Real(data) => data.clone(),
            Self::Integer(data) => data.iter().map(|&value| value as f32).collect(),
        }
    }
}

/// A tensor: row-major, dense.
#[derive(Debug, Clone, PartialEq)]
pub struct Tensor {
    /// Element type, as in the graph.
    pub dtype: DType,
    /// Sizes, outermost first.
    pub shape: Vec<usize>,
    /// Elements.
    pub data: Data,
}

impl Tensor {
    /// An f32 tensor.
    pub fn f32(shape: &[usize], data: impl Into<Vec<f32>>) -> Self {
        Self { dtype: DType::F32, shape: shape.to_vec(), data: Data::Real(data.into()) }
    }

    /// A tensor of an integer type or bool.
    pub fn integers(dtype: DType, shape: &[usize], data: impl Into<Vec<i64>>) -> Self {
        Self { dtype, shape: shape.to_vec(), data: Data::Integer(data.into()) }
    }

    /// All zeros.
    pub fn zeros(dtype: DType, shape: &[usize]) -> Self {
        let count = shape.iter().product();
        let data = if is_real(dtype) { Data::Real(vec![0.0; count]) } else { Data::Integer(vec![0; count]) };
        Self { dtype, shape: shape.to_vec(), data }
    }

    /// The reals; `None` for integers.
    pub fn reals(&self) -> Option<&[f32]> {
        match &self.data {
            Data::Real(data) => Some(data),
            Data::Integer(_) => None,
        }
    }

    /// Reads unquantized elements, little-endian. The error says that `bytes` do not fit `shape`.
    pub fn from_bytes(dtype: DType, shape: &[usize], bytes: &[u8]) -> Result<Self> {
        let count = element_count(shape)?;
        if count.checked_mul(dtype.size()) != Some(bytes.len()) {
            let message = format!("{} bytes for {dtype}{shape:?}", bytes.len());
            return Err(Error::new(Status::InvalidArgument, message));
        }
        Ok(Self { dtype, shape: shape.to_vec(), data: from_bytes(dtype, bytes) })
    }

    /// Unquantized elements, little-endian.
    pub fn to_bytes(&self) -> Vec<u8> {
        match &self.data {
            Data::Real(data) => data.iter().flat_map(|&value| real_bytes(self.dtype, value)).collect(),
            Data::Integer(data) => {
                let size = self.dtype.size();
                data.iter().flat_map(|value| value.to_le_bytes().into_iter().take(size)).collect()
            }
        }
    }
}

/// True for the types whose elements are reals.
pub(super) fn is_real(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::BF16 | DType::F32 | DType::F64)
}

/// Decodes as many elements as `bytes` hold.
pub(super) fn from_bytes(dtype: DType, bytes: &[u8]) -> Data {
    use DType::*;
    let pairs = || bytes.as_chunks::<2>().0.iter();
    let quads = || bytes.as_chunks::<4>().0.iter();
    let octets = || bytes.as_chunks::<8>().0.iter();
    match dtype {
        F16 => Data::Real(pairs().map(|&b| f16::from_le_bytes(b).to_f32()).collect()),
        BF16 => Data::Real(pairs().map(|&b| bf16::from_le_bytes(b).to_f32()).collect()),
        F32 => Data::Real(quads().map(|&b| f32::from_le_bytes(b)).collect()),
        F64 => Data::Real(octets().map(|&b| f64::from_le_bytes(b) as f32).collect()),
        U8 | QU8 => Data::Integer(bytes.iter().map(|&b| b.into()).collect()),
        Bool => Data::Integer(bytes.iter().map(|&b| i64::from(b != 0)).collect()),
        I8 | QI8 => Data::Integer(bytes.iter().map(|&b| (b as i8).into()).collect()),
        U16 | Bits16 => Data::Integer(pairs().map(|&b| u16::from_le_bytes(b).into()).collect()),
        I16 => Data::Integer(pairs().map(|&b| i16::from_le_bytes(b).into()).collect()),
        U32 => Data::Integer(quads().map(|&b| u32::from_le_bytes(b).into()).collect()),
        I32 | QI32 => Data::Integer(quads().map(|&b| i32::from_le_bytes(b).into()).collect()),
        I64 | U64 => Data::Integer(octets().map(|&b| i64::from_le_bytes(b)).collect()),
    }
}

fn real_bytes(dtype: DType, value: f32) -> Vec<u8> {
    match dtype {
        DType::F16 => f16::from_f32(value).to_le_bytes().to_vec(),
        DType::BF16 => bf16::from_f32(value).to_le_bytes().to_vec(),
        DType::F64 => f64::from(value).to_le_bytes().to_vec(),
        _ => value.to_le_bytes().to_vec(),
    }
}

/// `value` as the nearest number of a real type.
pub(super) fn round_real(dtype: DType, value: f32) -> f32 {
    match dtype {
        DType::F16 => f16::from_f32(value).to_f32(),
        DType::BF16 => bf16::from_f32(value).to_f32(),
        _ => value,
    }
}

/// `value` as an integer type holds it: modulo its size; bool is "not zero".
pub(super) fn wrap_integer(dtype: DType, value: i64) -> i64 {
    use DType::*;
    match dtype {
        Bool => i64::from(value != 0),
        U8 | QU8 => (value as u8).into(),
        I8 | QI8 => (value as i8).into(),
        U16 | Bits16 => (value as u16).into(),
        I16 => (value as i16).into(),
        U32 => (value as u32).into(),
        I32 | QI32 => (value as i32).into(),
        _ => value,
    }
}
