//! Per-tensor affine quantization: `real = (code - zero_point) * scale`.

/// How integer codes of a tensor stand for real numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Encoding {
    /// Real distance between two neighbouring codes; above zero.
    pub scale: f32,
    /// The code of real zero. QNN's `offset` is its negative.
    pub zero_point: i32,
}

impl Encoding {
    /// The real number of `code`.
    pub fn dequantize(&self, code: i32) -> f32 {
        // The difference is exact in i64, and code ranges are 16 bits, so f32 holds it exactly too.
        (i64::from(code) - i64::from(self.zero_point)) as f32 * self.scale
    }

    /// The nearest code of `real` within `min..=max`, ties to even.
    pub fn quantize(&self, real: f32, min: i32, max: i32) -> i32 {
        let code = (f64::from(real) / f64::from(self.scale)).round_ties_even() + f64::from(self.zero_point);
        code.clamp(f64::from(min), f64::from(max)) as i32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_survive_a_round_trip() {
        let encoding = Encoding { scale: 0.003_891_05, zero_point: 65_535 };
        for code in [0, 1, 30_000, 65_534, 65_535] {
            assert_eq!(encoding.quantize(encoding.dequantize(code), 0, 65_535), code);
        }
    }
}
