//! Element types, quantizations and constants of a model in the graph's terms; the bytes stay where they are.

use super::model::{Datatype, Model, Quantization, Scales, Value};
use crate::base::storage::Blob;
use crate::graph::{self, Graph, ValueId};
use crate::tensor::{DType, Encoding};

/// The graph's element type.
pub(super) fn dtype(datatype: Datatype) -> DType {
    match datatype {
        Datatype::Fp32 => DType::F32,
        Datatype::Fp16 => DType::F16,
        Datatype::Bf16 => DType::BF16,
        Datatype::QInt8 | Datatype::QcInt8 | Datatype::QdInt8 => DType::I8,
        Datatype::QUint8 | Datatype::QcInt4 | Datatype::QbInt4 => DType::U8,
        Datatype::QInt32 | Datatype::QcInt32 | Datatype::Int32 => DType::I32,
    }
}

/// The graph's quantization of a verified value.
pub(super) fn quantization(model: &Model, value: &Value) -> Option<graph::Quantization> {
    let bits = value.datatype.bits() as u8;
    let count = value.scale_count().unwrap_or(0);
    Some(match value.quantization.as_ref()? {
        Quantization::PerTensor { scale, zero_point } => {
            graph::Quantization::PerTensor { bits, encoding: Encoding { scale: *scale, zero_point: *zero_point } }
        }
        Quantization::PerChannel { axis, scales } => {
            let data = match scales {
                Scales::Stored(index) => model.constants[*index].data.head(count * 4),
                Scales::F32(scales) => blob(scales, |scale| scale.to_le_bytes()),
                Scales::Bf16(scales) => blob(scales, |&scale| (u32::from(scale) << 16).to_le_bytes()),
            };
            graph::Quantization::PerChannel { bits, axis: *axis, scales: graph::Constant { data } }
        }
        Quantization::Blockwise { block, scales } => {
            let data = match scales {
                Scales::Stored(index) => model.constants[*index].data.head(count * 2),
                Scales::F32(scales) => blob(scales, |&scale| to_bf16(scale).to_le_bytes()),
                Scales::Bf16(scales) => blob(scales, |scale| scale.to_le_bytes()),
            };
            let scales = graph::Constant { data };
            let (scale_dtype, zero_points, order) = (DType::BF16, None, graph::CodeOrder::LowFirst);
            graph::Quantization::Blockwise { bits, block: *block, scales, scale_dtype, zero_points, order }
        }
        Quantization::DynamicPerRow { nonbatch_dims } => {
            graph::Quantization::DynamicPerRow { nonbatch_dims: *nonbatch_dims }
        }
    })
}

fn blob<T, const N: usize>(items: &[T], bytes: impl Fn(&T) -> [u8; N]) -> Blob {
    Blob::from_vec(items.iter().flat_map(bytes).collect())
}

/// XNNPACK computes with bf16 scales. ExecuTorch rounds f32 ones by scaling with almost 1 + 2⁻⁸ and cutting off the lower
/// half, and results depend on it.
fn to_bf16(scale: f32) -> u16 {
    ((scale * 1.003_891).to_bits() >> 16) as u16
}

/// Adds the constant value `index` of a verified model; `None` when it is no constant.
pub(super) fn constant(graph: &mut Graph, model: &Model, index: usize, name: String) -> Option<ValueId> {
    let value = &model.values[index];
    let data = model.constants[value.constant?].data.head(value.byte_len()?);
    Some(graph.add_constant(name, dtype(value.datatype), &value.dims, quantization(model, value), data))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f32_scales_become_bf16_as_in_executorch() {
        // Exact ones stay; the halfway point between two neighbours goes up; below it, down.
        for (scale, expected) in [(1.0, 0x3f80), (0.5, 0x3f00), (1.0 + 1.0 / 256.0, 0x3f81), (1.003_5, 0x3f80)] {
            assert_eq!(to_bf16(scale), expected, "{scale}");
        }
    }
}
