//! How the codes of a value stand for reals.

use super::value::Constant;
use crate::tensor::{DType, Encoding};

/// Where the first of the codes that share a byte is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum CodeOrder {
    /// In the lowest bits: weights of XNNPACK, and everything that names no order.
    #[default]
    LowFirst,
    /// In the highest: tables of `quantized_decomposed::embedding_4bit`.
    HighFirst,
}

/// A quantization of a whole value.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub enum Quantization {
    /// One scale and zero point. `bits` is 8, 16 or 32.
    PerTensor { bits: u8, encoding: Encoding },
    /// One scale for each index of `axis`; `scales` holds f32, the zero point is 0, or 8 for 4-bit codes, which are
    /// stored unsigned.
    PerChannel { bits: u8, axis: usize, scales: Constant },
    /// One scale for each block of `block` codes along the last axis; `scales` is `[rows, columns / block]` of
    /// `scale_dtype` (f32 or bf16). Zero point as in `PerChannel`; `zero_points`, when there, is `[rows, columns /
    /// block]` of i8.
    Blockwise {
        bits: u8,
        block: usize,
        scales: Constant,
        scale_dtype: DType,
        zero_points: Option<Constant>,
        order: CodeOrder,
    },
    /// Scale and zero point of each row of the last `nonbatch_dims` axes are found when the value is made (XNNPACK's
    /// qdint8): they travel with the value.
    DynamicPerRow { nonbatch_dims: usize },
}

impl Quantization {
    /// Where the first of the codes that share a byte is.
    pub fn order(&self) -> CodeOrder {
        match self {
            Self::Blockwise { order, .. } => *order,
            _ => CodeOrder::LowFirst,
        }
    }

    /// Bits of one code.
    pub fn bits(&self) -> u8 {
        match self {
            Self::PerTensor { bits, .. } | Self::PerChannel { bits, .. } | Self::Blockwise { bits, .. } => *bits,
            Self::DynamicPerRow { .. } => 8,
        }
    }
}
