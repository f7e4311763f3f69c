//! What calibration needs from a run: the range of each value, and runs with values rounded as they will be.

use super::{Data, Tensor};
use crate::graph::ValueId;
use crate::tensor::Encoding;

/// Smallest and largest finite real of each value, over any number of runs.
#[derive(Debug, Clone, Default)]
pub struct MinMax {
    ranges: Vec<Option<(f32, f32)>>,
}

impl MinMax {
    /// Takes in the reals of one value; pass it to [`run_with`](super::Interpreter::run_with).
    pub fn observe(&mut self, id: ValueId, tensor: &Tensor) {
        let Some(reals) = tensor.reals() else { return };
        let index = id.0 as usize;
        if self.ranges.len() <= index {
            self.ranges.resize(index + 1, None);
        }
        for &real in reals.iter().filter(|real| real.is_finite()) {
            let (min, max) = self.ranges[index].unwrap_or((real, real));
            self.ranges[index] = Some((min.min(real), max.max(real)));
        }
    }

    /// The range of a value; `None` when no finite real of it was seen.
    pub fn range(&self, id: ValueId) -> Option<(f32, f32)> {
        self.ranges.get(id.0 as usize).copied().flatten()
    }
}

/// Rounds each real of `tensor` to the nearest code in `min..=max` of `encoding`.
pub fn fake_quantize(tensor: &mut Tensor, encoding: &Encoding, codes: std::ops::RangeInclusive<i32>) {
    if let Data::Real(data) = &mut tensor.data {
        for real in data {
            *real = encoding.dequantize(encoding.quantize(*real, *codes.start(), *codes.end()));
        }
    }
}
