//! What a context binary says about one tensor: name, element type, shape, quantization.

use super::sys;
use crate::tensor::{DType, Dims, Encoding};
use std::fmt;

/// QNN's number of an element type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QnnType(pub u32);

impl QnnType {
    /// The element type of this library that has the same bytes; `None` when there is none (4-bit types).
    pub fn dtype(self) -> Option<DType> {
        Some(match self.0 {
            sys::QNN_DATATYPE_INT_8 | sys::QNN_DATATYPE_SFIXED_POINT_8 => DType::I8,
            sys::QNN_DATATYPE_INT_16 | sys::QNN_DATATYPE_SFIXED_POINT_16 => DType::I16,
            sys::QNN_DATATYPE_INT_32 | sys::QNN_DATATYPE_SFIXED_POINT_32 => DType::I32,
            sys::QNN_DATATYPE_INT_64 => DType::I64,
            sys::QNN_DATATYPE_UINT_8 | sys::QNN_DATATYPE_UFIXED_POINT_8 => DType::U8,
            sys::QNN_DATATYPE_UINT_16 | sys::QNN_DATATYPE_UFIXED_POINT_16 => DType::U16,
            sys::QNN_DATATYPE_UINT_32 | sys::QNN_DATATYPE_UFIXED_POINT_32 => DType::U32,
            sys::QNN_DATATYPE_UINT_64 => DType::U64,
            sys::QNN_DATATYPE_FLOAT_16 => DType::F16,
            sys::QNN_DATATYPE_FLOAT_32 => DType::F32,
            sys::QNN_DATATYPE_FLOAT_64 => DType::F64,
            sys::QNN_DATATYPE_BOOL_8 => DType::Bool,
            _ => return None,
        })
    }

    /// Whether its codes stand for real numbers.
    pub fn is_quantized(self) -> bool {
        matches!(self.0 >> 8, 3 | 4)
    }
}

impl fmt::Display for QnnType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.0;
        match self.dtype() {
            Some(dtype) if self.is_quantized() => write!(f, "quantized {dtype}"),
            Some(dtype) => write!(f, "{dtype}"),
            None => write!(f, "QNN type {number:#x}"),
        }
    }
}

/// How codes stand for real numbers.
#[derive(Debug, Clone, PartialEq)]
pub enum Quantization {
    /// They do not.
    None,
    /// All alike.
    PerTensor(Encoding),
    /// Alike along every axis but one.
    PerAxis {
        /// The axis with an encoding for each index.
        axis: i32,
        /// One per index.
        encodings: Vec<Encoding>,
    },
    /// In a way that inputs and outputs do not have, by QNN's number.
    Other(u32),
}

/// One tensor.
#[derive(Debug, Clone, PartialEq)]
pub struct TensorInfo {
    /// Structure version it was described in, 1 or 2.
    pub version: u32,
    /// The number by which the library knows it.
    pub id: u32,
    /// `input_3_args_0@0`
    pub name: String,
    /// Element type.
    pub data_type: QnnType,
    /// Sizes.
    pub dims: Dims,
    /// Quantization.
    pub quantization: Quantization,
}

impl fmt::Display for TensorInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}{:?}", self.name, self.data_type, self.dims)?;
        match &self.quantization {
            Quantization::None => Ok(()),
            Quantization::PerTensor(encoding) => {
                write!(f, " scale {} zero point {}", encoding.scale, encoding.zero_point)
            }
            Quantization::PerAxis { axis, encodings } => write!(f, " {} scales along axis {axis}", encodings.len()),
            Quantization::Other(number) => write!(f, " QNN encoding {number}"),
        }
    }
}
