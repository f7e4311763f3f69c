//! Weights of linear layers in the order and with the encoding that Conv2d wants.

use super::block_scales::BlockScales;
use super::tensor::Coding;
use crate::graph::{CodeOrder, Graph, Quantization, ValueId};
use crate::tensor::DType;
use half::bf16;

/// Weights `[1, 1, in, out]`, a code in each byte.
pub(super) struct ConvWeights {
    pub(super) coding: Coding,
    pub(super) codes: Vec<u8>,
    /// A scale for each output that its bias can be counted in.
    pub(super) scales: Vec<f32>,
}

/// The axis of outputs in `[1, 1, in, out]`.
const OUT_AXIS: usize = 3;

impl ConvWeights {
    /// Of constant `id`, `[out, in]`. The error says what is wrong with it.
    pub(super) fn new(graph: &Graph, id: ValueId) -> Result<Self, String> {
        let value = graph.value(id);
        let data = graph.constant(id).ok_or("its weights are no constant")?;
        let [outputs, inputs] = graph.max_shape(id)[..] else {
            return Err(format!("weights of shape {:?}", graph.max_shape(id)));
        };
        let per_axis = |bits, scales: Vec<f32>| Coding::PerAxis { axis: OUT_AXIS, bits, scales };
        let (coding, scales, bits) = match value.quantization.as_ref() {
            Some(Quantization::PerTensor { bits: 8, encoding }) if encoding.zero_point == 0 => {
                let scales = vec![encoding.scale; outputs];
                (per_axis(8, scales.clone()), scales, 8)
            }
            Some(Quantization::PerChannel { bits: bits @ (4 | 8), axis: 0, scales }) => {
                let scales = reals(&scales.data, DType::F32);
                (per_axis(*bits, scales.clone()), scales, *bits)
            }
            Some(Quantization::Blockwise { bits: 4, block, scales, scale_dtype, zero_points: None, order }) => {
                if *order != CodeOrder::LowFirst {
                    return Err("codes with the first in the high bits".into());
                }
                let blocks = inputs / block;
                let exact = BlockScales::exact(&reals(&scales.data, *scale_dtype), blocks);
                let BlockScales { channels, factors } =
                    exact.ok_or("the scales of its blocks are no small multiples of one; see `fit_block_scales`")?;
                (Coding::Blocks { axis: OUT_AXIS, blocks, scales: channels.clone(), factors }, channels, 4)
            }
            Some(other) => return Err(format!("weights of {} bits, {}", other.bits(), kind(other))),
            None => return Err(format!("weights of {}, not quantized", value.dtype)),
        };
        if bits == 8 && value.dtype != DType::I8 {
            return Err(format!("weights of {}", value.dtype));
        }
        Ok(Self { coding, codes: transposed(data, [outputs, inputs], bits), scales })
    }
}

fn kind(quantization: &Quantization) -> &'static str {
    match quantization {
        Quantization::PerTensor { .. } => "one scale and a zero point for all",
        Quantization::PerChannel { .. } => "a scale for each index of an axis that is not the outputs'",
        Quantization::Blockwise { .. } => "scales for blocks",
        Quantization::DynamicPerRow { .. } => "scales found at run time",
    }
}

pub(super) fn reals(bytes: &[u8], dtype: DType) -> Vec<f32> {
    match dtype {
        DType::BF16 => bytes.as_chunks().0.iter().map(|&b| bf16::from_le_bytes(b).to_f32()).collect(),
        _ => bytes.as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect(),
    }
}

/// `[out, in]` → `[in, out]`, 4-bit codes unpacked and made signed.
fn transposed(data: &[u8], [outputs, inputs]: [usize; 2], bits: u8) -> Vec<u8> {
    // Rows are read in groups, so that a column of the group is written while its cache line is there.
    const GROUP: usize = 64;
    let mut codes = vec![0; inputs * outputs];
    let row_bytes = if bits == 4 { inputs.div_ceil(2) } else { inputs };
    for first in (0..outputs).step_by(GROUP) {
        let rows = first..outputs.min(first + GROUP);
        for input in 0..inputs {
            for output in rows.clone() {
                let code = match bits {
                    4 => nibble(data[output * row_bytes + input / 2], input) as u8,
                    _ => data[output * row_bytes + input],
                };
                codes[input * outputs + output] = code;
            }
        }
    }
    codes
}

/// The code of `column` in the byte that holds it, −8 to 7.
pub(super) fn nibble(byte: u8, column: usize) -> i8 {
    ((byte >> (column % 2 * 4)) & 0xf) as i8 - 8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_transposed_and_unpacked() {
        let bytes: Vec<u8> = (0..6).collect();
        assert_eq!(transposed(&bytes, [2, 3], 8), [0, 3, 1, 4, 2, 5]);
        // Rows of three 4-bit codes begin at a byte.
        let packed = [0x98, 0x0f, 0x10, 0x02];
        assert_eq!(transposed(&packed, [2, 3], 4).iter().map(|&c| c as i8).collect::<Vec<_>>(), [0, -8, 1, -7, 7, -6]);
    }

    #[test]
    fn many_rows_are_transposed_like_few() {
        let (outputs, inputs) = (150, 7);
        let bytes: Vec<u8> = (0..outputs * inputs).map(|i| (i % 251) as u8).collect();
        let codes = transposed(&bytes, [outputs, inputs], 8);
        for output in 0..outputs {
            for input in 0..inputs {
                assert_eq!(codes[input * outputs + output], bytes[output * inputs + input]);
            }
        }
    }
}
