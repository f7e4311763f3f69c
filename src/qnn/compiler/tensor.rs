//! Descriptions of tensors, and the C structures made of them.

use crate::qnn::sys;
use crate::tensor::Encoding;
use std::ffi::CString;

/// What a tensor is to its graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Input,
    Output,
    Inner,
    Constant,
}

/// How codes stand for reals.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Coding {
    /// They do not.
    Plain,
    /// All alike.
    PerTensor(Encoding),
    /// A scale for each index of `axis`, zero point 0; codes of 8 or more bits fill their type.
    PerAxis { axis: usize, bits: u8, scales: Vec<f32> },
    /// Along `axis`, whose index `i` has `scales[i]`; the codes of one index are cut into `blocks` blocks of 4-bit codes,
    /// each with the scale `scales[i] * factors[i * blocks + block]`.
    Blocks { axis: usize, blocks: usize, scales: Vec<f32>, factors: Vec<u8> },
}

/// A tensor of a graph.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TensorSpec {
    pub(super) name: String,
    pub(super) role: Role,
    /// QNN's number of the element type.
    pub(super) data_type: u32,
    pub(super) dims: Vec<usize>,
    pub(super) coding: Coding,
}

/// The C structure of a tensor with all that it points at.
pub(super) struct RawTensor {
    pub(super) raw: sys::Qnn_Tensor_t,
    /// A constant's contents, where they must stay.
    pub(super) data: Vec<u8>,
    _name: CString,
    _dims: Box<[u32]>,
    _coding: CodingParts,
}

/// Heap blocks behind quantization parameters.
#[allow(dead_code)]
enum CodingParts {
    None,
    PerAxis(Box<[sys::Qnn_ScaleOffset_t]>),
    FewBits { scales: Box<[f32]>, offsets: Box<[i32]> },
    Blocks { expansion: Box<sys::Qnn_BlockwiseExpansion_t>, pairs: Box<[sys::Qnn_ScaleOffset_t]>, factors: Box<[u8]> },
}

/// The library's largest block factor has this many bits.
const FACTOR_BITS: u32 = 4;
/// Factors are stored in a byte each.
const FACTOR_STORAGE_8: u32 = 0;

impl RawTensor {
    /// `None` when a size does not fit QNN's 32 bits or the name holds a zero byte.
    pub(super) fn new(spec: &TensorSpec) -> Option<Self> {
        let name = CString::new(spec.name.as_str()).ok()?;
        // QNN knows no rank 0.
        let dims = if spec.dims.is_empty() { &[1][..] } else { &spec.dims };
        let mut dims: Box<[u32]> = dims.iter().map(|&dim| u32::try_from(dim).ok()).collect::<Option<_>>()?;
        let (quantize, coding) = raw_coding(&spec.coding);
        let mut raw = sys::Qnn_Tensor_t { version: sys::QNN_TENSOR_VERSION_2, ..sys::Qnn_Tensor_t::default() };
        let v1 = sys::Qnn_TensorV1_t {
            id: 0,
            name: name.as_ptr(),
            type_: match spec.role {
                Role::Input => sys::QNN_TENSOR_TYPE_APP_WRITE,
                Role::Output => sys::QNN_TENSOR_TYPE_APP_READ,
                Role::Inner => sys::QNN_TENSOR_TYPE_NATIVE,
                Role::Constant => sys::QNN_TENSOR_TYPE_STATIC,
            },
            dataFormat: sys::QNN_TENSOR_DATA_FORMAT_FLAT_BUFFER,
            dataType: spec.data_type,
            quantizeParams: quantize,
            rank: dims.len() as u32,
            dimensions: dims.as_mut_ptr(),
            memType: sys::QNN_TENSORMEMTYPE_RAW,
            memory: sys::Qnn_TensorMemory_t { clientBuf: sys::Qnn_ClientBuffer_t::default() },
        };
        raw.u.v2 = sys::Qnn_TensorV2_t { v1, ..sys::Qnn_TensorV2_t::default() };
        Some(Self { raw, data: Vec::new(), _name: name, _dims: dims, _coding: coding })
    }
}

fn raw_coding(coding: &Coding) -> (sys::Qnn_QuantizeParams_t, CodingParts) {
    let mut raw = sys::Qnn_QuantizeParams_t {
        encodingDefinition: sys::QNN_DEFINITION_DEFINED,
        ..sys::Qnn_QuantizeParams_t::default()
    };
    let pairs_of = |scales: &[f32]| -> Box<[_]> {
        scales.iter().map(|&scale| sys::Qnn_ScaleOffset_t { scale, offset: 0 }).collect()
    };
    let parts = match coding {
        Coding::Plain => {
            raw.encodingDefinition = sys::QNN_DEFINITION_UNDEFINED;
            raw.quantizationEncoding = sys::QNN_QUANTIZATION_ENCODING_UNDEFINED;
            CodingParts::None
        }
        Coding::PerTensor(encoding) => {
            raw.quantizationEncoding = sys::QNN_QUANTIZATION_ENCODING_SCALE_OFFSET;
            let offset = 0i32.saturating_sub(encoding.zero_point);
            raw.u.scaleOffset = sys::Qnn_ScaleOffset_t { scale: encoding.scale, offset };
            CodingParts::None
        }
        Coding::PerAxis { axis, bits, scales } if *bits < 8 => {
            let mut scales: Box<[f32]> = scales.as_slice().into();
            let mut offsets: Box<[i32]> = vec![0; scales.len()].into();
            raw.quantizationEncoding = sys::QNN_QUANTIZATION_ENCODING_BW_AXIS_SCALE_OFFSET;
            raw.u.bwAxisScaleOffset = sys::Qnn_BwAxisScaleOffset_t {
                bitwidth: (*bits).into(),
                axis: *axis as i32,
                numElements: scales.len() as u32,
                scales: scales.as_mut_ptr(),
                offsets: offsets.as_mut_ptr(),
            };
            CodingParts::FewBits { scales, offsets }
        }
        Coding::PerAxis { axis, scales, .. } => {
            let mut pairs = pairs_of(scales);
            raw.quantizationEncoding = sys::QNN_QUANTIZATION_ENCODING_AXIS_SCALE_OFFSET;
            raw.u.axisScaleOffset = sys::Qnn_AxisScaleOffset_t {
                axis: *axis as i32,
                numScaleOffsets: pairs.len() as u32,
                scaleOffset: pairs.as_mut_ptr(),
            };
            CodingParts::PerAxis(pairs)
        }
        Coding::Blocks { axis, blocks, scales, factors } => {
            let mut pairs = pairs_of(scales);
            let mut factors: Box<[u8]> = factors.as_slice().into();
            let mut expansion = Box::new(sys::Qnn_BlockwiseExpansion_t {
                axis: *axis as i32,
                scaleOffsets: pairs.as_mut_ptr(),
                numBlocksPerAxis: *blocks as u32,
                blockScaleBitwidth: FACTOR_BITS,
                blockScaleStorageType: FACTOR_STORAGE_8,
                blockScales: factors.as_mut_ptr().cast(),
            });
            raw.quantizationEncoding = sys::QNN_QUANTIZATION_ENCODING_BLOCKWISE_EXPANSION;
            raw.u.blockwiseExpansion = &raw mut *expansion;
            CodingParts::Blocks { expansion, pairs, factors }
        }
    };
    (raw, parts)
}
