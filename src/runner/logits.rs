//! One row of logits: the likeliest token on raw codes, and real values where a distribution is needed.

use crate::tensor::{DType, Encoding};

/// How a row of logits is stored.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LogitsFormat {
    /// `u16`, `u8`, `f32`, `f16` or `bf16`.
    pub dtype: DType,
    /// What integer codes stand for, if known.
    pub encoding: Option<Encoding>,
}

impl LogitsFormat {
    /// Whether logits of this type can be read.
    pub fn supports(dtype: DType) -> bool {
        matches!(dtype, DType::U8 | DType::U16 | DType::Bits16 | DType::F32 | DType::F16 | DType::BF16)
    }

    /// Whether real values are known: codes without an encoding are not enough for a distribution.
    pub fn has_reals(&self) -> bool {
        matches!(self.dtype, DType::F32 | DType::F16 | DType::BF16) || self.encoding.is_some()
    }

    /// The index of the largest logit of a row, the lowest of several. Scales are positive, so codes order as reals do.
    pub fn argmax(&self, row: &[u8]) -> usize {
        match self.dtype {
            DType::U8 => argmax(row),
            DType::U16 | DType::Bits16 => argmax::<u16>(bytemuck::cast_slice(row)),
            DType::F32 => argmax::<f32>(bytemuck::cast_slice(row)),
            _ => {
                let mut reals = Vec::new();
                self.reals(row, &mut reals);
                argmax(&reals)
            }
        }
    }

    /// Whether the logit at `index` is no number.
    pub fn is_nan(&self, row: &[u8], index: usize) -> bool {
        let at = index * self.dtype.size();
        let Some(bytes) = row.get(at..at + self.dtype.size()) else { return false };
        match *bytes {
            [a, b, c, d] if self.dtype == DType::F32 => f32::from_le_bytes([a, b, c, d]).is_nan(),
            [a, b] if self.dtype == DType::F16 => half::f16::from_le_bytes([a, b]).is_nan(),
            [a, b] if self.dtype == DType::BF16 => half::bf16::from_le_bytes([a, b]).is_nan(),
            _ => false,
        }
    }

    /// Writes the real values of a row, little-endian as the model wrote it, to `reals`; codes stay codes where no
    /// encoding is known.
    pub fn reals(&self, row: &[u8], reals: &mut Vec<f32>) {
        let encoding = self.encoding.unwrap_or(Encoding { scale: 1.0, zero_point: 0 });
        let decode = |code: u16| encoding.dequantize(i32::from(code));
        reals.clear();
        match self.dtype {
            DType::U8 => reals.extend(row.iter().map(|&code| decode(code.into()))),
            DType::F32 => reals.extend(row.as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes))),
            DType::F16 => {
                reals.extend(row.as_chunks().0.iter().map(|&bytes| half::f16::from_le_bytes(bytes).to_f32()));
            }
            DType::BF16 => {
                reals.extend(row.as_chunks().0.iter().map(|&bytes| half::bf16::from_le_bytes(bytes).to_f32()));
            }
            _ => reals.extend(row.as_chunks().0.iter().map(|&code| decode(u16::from_le_bytes(code)))),
        }
    }
}

/// The first index of the maximum, as a scan with `>` finds it: NaN is never larger, and nothing is larger than a NaN
/// in front.
fn argmax<T: Copy + PartialOrd>(row: &[T]) -> usize {
    const LANES: usize = 32;
    let Some(&first) = row.first() else { return 0 };
    let mut lanes = [first; LANES];
    let chunks = row.chunks_exact(LANES);
    for &value in chunks.remainder() {
        if value > lanes[0] {
            lanes[0] = value;
        }
    }
    for chunk in chunks {
        for (lane, &value) in lanes.iter_mut().zip(chunk) {
            *lane = if value > *lane { value } else { *lane };
        }
    }
    let max = lanes.into_iter().fold(first, |max, value| if value > max { value } else { max });
    // Whole chunks first: the comparison of a chunk vectorises, a scan that may stop anywhere does not.
    let holds = |chunk: &[T]| chunk.iter().fold(false, |found, &value| found | (value == max));
    let chunk = row.chunks(LANES).position(holds).unwrap_or(0);
    let within = row[chunk * LANES..].iter().position(|&value| value == max).unwrap_or(0);
    chunk * LANES + within
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::sampler::Rng;

    fn scan<T: Copy + PartialOrd>(row: &[T]) -> usize {
        (1..row.len()).fold(0, |best, index| if row[index] > row[best] { index } else { best })
    }

    #[test]
    fn argmax_equals_a_scan_ties_included() {
        let mut rng = Rng::new(7);
        for len in [1, 2, 31, 32, 33, 64, 100, 512, 1000] {
            for range in [2, 5, 65_536] {
                let codes: Vec<u16> = (0..len).map(|_| (rng.next() % range) as u16).collect();
                let reals: Vec<f32> = codes.iter().map(|&code| f32::from(code) - 3.0).collect();
                assert_eq!(argmax(&codes), scan(&codes));
                assert_eq!(argmax(&reals), scan(&reals));
            }
        }
    }

    #[test]
    fn nan_never_wins_but_in_front() {
        let mut row = vec![1.0f32; 70];
        (row[3], row[50], row[69]) = (f32::NAN, 2.0, f32::NAN);
        assert_eq!((argmax(&row), scan(&row)), (50, 50));
        row[0] = f32::NAN;
        assert_eq!((argmax(&row), scan(&row)), (0, 0));
        assert_eq!(argmax(&[f32::NEG_INFINITY; 40]), 0);
    }

    #[test]
    fn every_type_is_read() {
        let format = |dtype| LogitsFormat { dtype, encoding: Some(Encoding { scale: 0.5, zero_point: 2 }) };
        let mut reals = Vec::new();
        let u16s: Vec<u8> = [0u16, 300, 4].iter().flat_map(|code| code.to_le_bytes()).collect();
        format(DType::U16).reals(&u16s, &mut reals);
        assert_eq!((reals.as_slice(), format(DType::U16).argmax(&u16s)), ([-1.0, 149.0, 1.0].as_slice(), 1));
        format(DType::U8).reals(&[0, 3, 4], &mut reals);
        assert_eq!((reals.as_slice(), format(DType::U8).argmax(&[0, 3, 4])), ([-1.0, 0.5, 1.0].as_slice(), 2));
        let f16s: Vec<u8> = [-1.5f32, 7.0].iter().flat_map(|&real| half::f16::from_f32(real).to_le_bytes()).collect();
        format(DType::F16).reals(&f16s, &mut reals);
        assert_eq!((reals.as_slice(), format(DType::F16).argmax(&f16s)), ([-1.5, 7.0].as_slice(), 1));
        let bf16s: Vec<u8> = [-1.5f32, 7.0].iter().flat_map(|&real| half::bf16::from_f32(real).to_le_bytes()).collect();
        format(DType::BF16).reals(&bf16s, &mut reals);
        assert_eq!((reals.as_slice(), format(DType::BF16).argmax(&bf16s)), ([-1.5, 7.0].as_slice(), 1));
    }
}
