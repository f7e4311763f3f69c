//! Scales of blocks in the form that the HTP has: a real scale for each output, times a small integer for each block.

use super::weights::{nibble, reals};
use crate::base::storage::Blob;
use crate::error::Result;
use crate::graph::{CodeOrder, Constant, Graph, Op, Quantization, ValueId, ValueKind};
use crate::tensor::DType;

/// Largest factor that 4 bits hold.
const MAX_FACTOR: u8 = 15;

/// See the module.
#[derive(Debug, Clone, PartialEq)]
pub struct BlockScales {
    /// One for each output.
    pub channels: Vec<f32>,
    /// 1 to 15, `[outputs, blocks]`.
    pub factors: Vec<u8>,
}

impl BlockScales {
    /// The nearest scales of this form to `scales [outputs, blocks]`.
    pub fn nearest(scales: &[f32], blocks: usize) -> Self {
        let (mut channels, mut factors) = (Vec::new(), Vec::new());
        for row in scales.chunks(blocks.max(1)) {
            let channel = row.iter().copied().fold(f32::MIN_POSITIVE, f32::max) / f32::from(MAX_FACTOR);
            channels.push(channel);
            factors.extend(row.iter().map(|scale| (scale / channel).round_ties_even().clamp(1.0, 15.0) as u8));
        }
        Self { channels, factors }
    }

    /// `scales [outputs, blocks]` in this form, if they have it.
    pub fn exact(scales: &[f32], blocks: usize) -> Option<Self> {
        let (mut channels, mut factors) = (Vec::new(), Vec::new());
        for row in scales.chunks(blocks.max(1)) {
            let (channel, row) = (1..=MAX_FACTOR).rev().find_map(|largest| exact_row(row, largest))?;
            channels.push(channel);
            factors.extend(row);
        }
        Some(Self { channels, factors })
    }

    /// The scale of each block, `[outputs, blocks]`.
    pub fn scales(&self) -> Vec<f32> {
        let blocks = self.factors.len() / self.channels.len().max(1);
        let rows = self.channels.iter().zip(self.factors.chunks(blocks.max(1)));
        rows.flat_map(|(channel, row)| row.iter().map(move |&factor| channel * f32::from(factor))).collect()
    }
}

/// Writes `row` with `largest` as the factor of its largest scale, if that can be.
fn exact_row(row: &[f32], largest: u8) -> Option<(f32, Vec<u8>)> {
    let channel = row.iter().copied().fold(0.0, f32::max) / f32::from(largest);
    let factor = |&scale: &f32| {
        let factor = (scale / channel).round_ties_even();
        let close = (factor * channel - scale).abs() <= scale * 1e-6;
        (close && (1.0..=15.0).contains(&factor)).then_some(factor as u8)
    };
    Some((channel, row.iter().map(factor).collect::<Option<_>>()?))
}

/// Gives the 4-bit blockwise weights of linear layers scales that the HTP has, and the codes that are then nearest to
/// what they were. Returns how many weights changed.
pub fn fit_block_scales(graph: &mut Graph) -> Result<usize> {
    let linear = graph.nodes.iter().filter(|node| node.op == Op::FullyConnected);
    let mut weights: Vec<ValueId> = linear.map(|node| node.inputs[1]).collect();
    weights.sort_unstable();
    weights.dedup();
    let count = weights.into_iter().filter_map(|id| fit(graph, id)).count();
    graph.verify()?;
    Ok(count)
}

/// `None` where nothing is to be done.
fn fit(graph: &mut Graph, id: ValueId) -> Option<()> {
    let [_, columns] = graph.max_shape(id)[..] else { return None };
    let Some(Quantization::Blockwise { bits: 4, block, scales, scale_dtype, zero_points: None, order }) =
        &graph.value(id).quantization
    else {
        return None;
    };
    let (block, order) = (*block, *order);
    let old = reals(&scales.data, *scale_dtype);
    if order != CodeOrder::LowFirst || BlockScales::exact(&old, columns / block).is_some() {
        return None;
    }
    let new = BlockScales::nearest(&old, columns / block).scales();
    let data = graph.constant(id)?;
    let row_bytes = columns.div_ceil(2);
    let mut codes = vec![0; data.len()];
    for (at, code) in codes.iter_mut().enumerate() {
        let (row, first) = (at / row_bytes, at % row_bytes * 2);
        for column in first..columns.min(first + 2) {
            let index = row * (columns / block) + column / block;
            let real = f32::from(nibble(data[at], column)) * old[index];
            let nearest = (real / new[index]).round_ties_even().clamp(-8.0, 7.0) as i8;
            *code |= ((nearest + 8) as u8) << (column % 2 * 4);
        }
    }
    let scales = Constant { data: Blob::from_vec(new.iter().flat_map(|scale| scale.to_le_bytes()).collect()) };
    let value = graph.value_mut(id);
    value.kind = ValueKind::Constant(Constant { data: Blob::from_vec(codes) });
    let (scale_dtype, zero_points) = (DType::F32, None);
    value.quantization = Some(Quantization::Blockwise { bits: 4, block, scales, scale_dtype, zero_points, order });
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_scales_are_exact_and_close() {
        let scales = [0.011, 0.02, 0.003, 0.0301, 1e-6, 2e-6, 1e-6, 1.5e-5];
        let nearest = BlockScales::nearest(&scales, 4);
        assert_eq!(BlockScales::exact(&nearest.scales(), 4), Some(nearest.clone()));
        for (have, need) in nearest.scales().iter().zip(scales) {
            assert!((have - need).abs() <= 0.5001 * nearest.channels[0].max(need / 15.0), "{have} {need}");
        }
        assert_eq!(BlockScales::exact(&scales, 4), None);
    }

    #[test]
    fn scales_in_the_form_with_another_largest_factor_are_found() {
        let exact = BlockScales::exact(&[0.5, 1.0, 0.75, 3.0, 3.0, 3.0], 3).unwrap();
        assert_eq!(exact.scales(), [0.5, 1.0, 0.75, 3.0, 3.0, 3.0]);
        assert_eq!(BlockScales::exact(&[1.0, 16.0], 2), None);
    }
}
