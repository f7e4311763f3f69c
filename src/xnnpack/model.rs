//! An XNNPACK graph as plain data: what the decoder returns is what the encoder takes. Values are numbered by their
//! position; ids, buffer indices and places in the blob exist only in the bytes.

use crate::base::storage::Blob;
use crate::tensor::{Dims, element_count};
use std::collections::BTreeMap;

/// A delegate's graph.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Model {
    /// Schema version as the exporter wrote it; nothing depends on it.
    pub version: String,
    /// How many arguments a call of the delegate has, at most 4096.
    pub args: usize,
    /// Every value.
    pub values: Vec<Value>,
    /// In the order in which they run.
    pub nodes: Vec<Node>,
    /// Constants that values and scales refer to by position.
    pub constants: Vec<Constant>,
}

impl Model {
    /// The values that the caller gives, in the order of the call's arguments. An argument that no node uses has none.
    pub fn inputs(&self) -> Vec<usize> {
        self.externals(Direction::Input)
    }

    /// The values that the caller gets, in the order of the call's arguments.
    pub fn outputs(&self) -> Vec<usize> {
        self.externals(Direction::Output)
    }

    fn externals(&self, direction: Direction) -> Vec<usize> {
        let external = |value: &Value| value.external.filter(|external| external.direction == direction);
        let mut found: Vec<_> =
            (0..self.values.len()).filter(|&index| external(&self.values[index]).is_some()).collect();
        found.sort_by_key(|&index| self.values[index].external.map(|external| external.arg));
        found
    }

    /// The constants that must lie beside the blob, in the program's named data.
    pub fn named_data(&self) -> BTreeMap<&str, &Blob> {
        self.constants.iter().filter_map(|constant| Some((constant.key.as_deref()?, &constant.data))).collect()
    }
}

/// A tensor.
#[derive(Debug, Clone, PartialEq)]
pub struct Value {
    /// Element type.
    pub datatype: Datatype,
    /// Sizes, outermost first, none of them 0; upper bounds, since a run may bring smaller inputs.
    pub dims: Dims,
    /// How codes stand for reals; there exactly where the element type is a quantized one.
    pub quantization: Option<Quantization>,
    /// Position in [`Model::constants`]. The constant may be longer than the value.
    pub constant: Option<usize>,
    /// The argument of the call that it is.
    pub external: Option<External>,
    /// Old exporters' way to write an input whose rows are quantized to 8 bits before any node sees it.
    pub quantize_rows: bool,
}

impl Value {
    /// Bytes of the value at these sizes; four-bit codes share bytes within a row. `None` when the sizes are absurd.
    pub fn byte_len(&self) -> Option<usize> {
        let count = element_count(&self.dims).ok()?;
        let columns = self.dims.last().copied().unwrap_or(1);
        match self.datatype.bits() {
            4 => Some(count.checked_div(columns)? * columns.div_ceil(2)),
            bits => Some(count * (bits / 8)),
        }
    }

    /// How many scales the value's quantization needs; `None` when it has no scales, or scales that do not fit.
    pub fn scale_count(&self) -> Option<usize> {
        match &self.quantization {
            Some(Quantization::PerChannel { axis, .. }) => self.dims.get(*axis).copied(),
            Some(Quantization::Blockwise { block, .. }) => match self.dims[..] {
                [rows, columns] if *block > 0 && columns % block == 0 => rows.checked_mul(columns / block),
                _ => None,
            },
            _ => None,
        }
    }
}

/// A value of the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct External {
    /// Position in the call's arguments.
    pub arg: usize,
    /// Who writes it.
    pub direction: Direction,
}

/// Who writes a value of the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// The caller.
    Input,
    /// The delegate.
    Output,
}

/// Element types that values can have here. XNNPACK's packed types (`qpint8`, `pfp32`) never leave its run time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(i16)]
pub enum Datatype {
    /// IEEE single precision.
    Fp32 = 1,
    /// IEEE half precision.
    Fp16 = 2,
    /// Signed, one scale and zero point for the value.
    QInt8 = 3,
    /// Unsigned, one scale and zero point for the value.
    QUint8 = 4,
    /// Signed, one scale for the value.
    QInt32 = 5,
    /// Signed, one scale a channel.
    QcInt8 = 6,
    /// Signed, one scale a channel.
    QcInt32 = 7,
    /// One scale a channel. Two codes a byte, the lower nibble first, each row from a byte on; stored unsigned, so
    /// that 8 stands for zero: just as the [graph](crate::graph) has them.
    QcInt4 = 8,
    /// Signed, scale and zero point of each row found at run time.
    QdInt8 = 9,
    /// One bf16 scale a block of a row; stored as `QcInt4`.
    QbInt4 = 10,
    /// Signed integers.
    Int32 = 12,
    /// The upper half of IEEE single precision.
    Bf16 = 14,
}

impl Datatype {
    /// Every element type.
    pub const ALL: [Self; 12] = [
        Self::Fp32,
        Self::Fp16,
        Self::QInt8,
        Self::QUint8,
        Self::QInt32,
        Self::QcInt8,
        Self::QcInt32,
        Self::QcInt4,
        Self::QdInt8,
        Self::QbInt4,
        Self::Int32,
        Self::Bf16,
    ];

    /// Bits of one element.
    pub fn bits(self) -> usize {
        match self {
            Self::QcInt4 | Self::QbInt4 => 4,
            Self::QInt8 | Self::QUint8 | Self::QcInt8 | Self::QdInt8 => 8,
            Self::Fp16 | Self::Bf16 => 16,
            Self::Fp32 | Self::QInt32 | Self::QcInt32 | Self::Int32 => 32,
        }
    }

    /// Whether elements are reals, not codes or integers.
    pub fn is_real(self) -> bool {
        matches!(self, Self::Fp32 | Self::Fp16 | Self::Bf16)
    }
}

/// How codes stand for reals.
#[derive(Debug, Clone, PartialEq)]
pub enum Quantization {
    /// `QInt8`, `QUint8`, `QInt32`.
    PerTensor {
        /// Real distance of two codes.
        scale: f32,
        /// Code of zero.
        zero_point: i32,
    },
    /// `QcInt8`, `QcInt32`, `QcInt4`; stored scales are f32.
    PerChannel {
        /// The axis of the channels.
        axis: usize,
        /// One a channel.
        scales: Scales,
    },
    /// `QbInt4` of shape `[out, in]`; stored scales are bf16.
    Blockwise {
        /// Codes of a row that share a scale.
        block: usize,
        /// `[out, in / block]`
        scales: Scales,
    },
    /// `QdInt8`.
    DynamicPerRow {
        /// How many of the last axes make up a row.
        nonbatch_dims: usize,
    },
}

/// Where scales are.
#[derive(Debug, Clone, PartialEq)]
pub enum Scales {
    /// The constant at this position of [`Model::constants`].
    Stored(usize),
    /// Among the quantization parameters, as old exporters wrote them.
    F32(Vec<f32>),
    /// Likewise, the upper halves of f32; blockwise only.
    Bf16(Vec<u16>),
}

/// Contents known at export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Constant {
    /// The name of the data in the program, or none if it lies in the blob.
    pub key: Option<String>,
    /// The bytes.
    pub data: Blob,
}

/// An operation with one result.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// What it does.
    pub op: NodeOp,
    /// Operands as [`NodeOp`] orders them; positions in [`Model::values`].
    pub inputs: Vec<usize>,
    /// Its result, a position in [`Model::values`].
    pub output: usize,
    /// The result is limited to `.0 ..= .1`. Exporters fuse activations only into arithmetic, linears and pooling.
    pub bounds: Option<(f32, f32)>,
    /// Links back to the exporter's graph.
    pub debug_handle: u32,
}

/// What a node does.
#[derive(Debug, Clone, PartialEq)]
pub enum NodeOp {
    /// `x`, element-wise.
    Unary(Unary),
    /// `a`, `b`, element-wise with broadcasting.
    Binary(Binary),
    /// `x`; the node's bounds do the work.
    Clamp,
    /// `x` → the result's element type.
    Convert,
    /// `x`
    Copy,
    /// `x` → softmax along the last axis.
    Softmax,
    /// `x [n, h, w, c]` → mean over `h` and `w`.
    GlobalAveragePooling2d {
        /// Whether `h` and `w` stay with size 1.
        keep_dims: bool,
    },
    /// `x [.., in]`, `w [out, in]`, bias `[out]` if there → `[.., out]`.
    FullyConnected {
        /// Whether `w` is `[in, out]`.
        transpose_weights: bool,
    },
    /// `a [.., m, k]`, `b [.., k, n]` → `[.., m, n]`.
    BatchMatrixMultiply {
        /// Whether `b` is `[.., n, k]`.
        transpose_b: bool,
    },
    /// `x` → output axis `i` is input axis `perm[i]`.
    StaticTranspose {
        /// A permutation.
        perm: Vec<usize>,
    },
    /// `x` → the same elements in another shape.
    StaticReshape {
        /// Sizes; at most one is 0, which stands for what is left.
        new_shape: Vec<usize>,
    },
    /// `x` → `sizes[i]` elements from `offsets[i]` on along each axis; a size of 0 is the whole axis.
    StaticSlice {
        /// First elements.
        offsets: Vec<usize>,
        /// How many.
        sizes: Vec<usize>,
    },
    /// 2 to 5 values → joined.
    Concatenate {
        /// Along this axis.
        axis: usize,
    },
    /// `q [.., heads, tokens, c]`, `k [.., heads, positions, c]`, `v [.., heads, positions, d]`, scale `[c]`, additive
    /// mask `[tokens, positions]` → `[.., heads, tokens, d]`.
    ScaledDotProductAttention,
}

/// Element-wise, one operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Unary {
    Abs,
    Ceiling,
    Cos,
    Exp,
    Floor,
    /// With the error function.
    Gelu,
    HardSwish,
    Log,
    Negate,
    ReciprocalSquareRoot,
    Sigmoid,
    Sin,
    Square,
    SquareRoot,
    Tanh,
}

/// Element-wise, two operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Binary {
    Add,
    Divide,
    Maximum,
    Minimum,
    Multiply,
    Subtract,
}
