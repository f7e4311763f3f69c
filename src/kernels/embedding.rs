//! Rows of a quantized embedding table, dequantized as `quantized_decomposed::embedding_*` stores them.

/// A table of 2-, 4- or 8-bit signed numbers [rows, dim] with group-wise scales.
#[derive(Debug, Clone, Copy)]
pub struct EmbeddingTable<'a> {
    /// Bits of a number: 2 (four a byte, the first in the lowest bits), 4 (two a byte, the first in the high nibble;
    /// both with an offset of half the range), or 8 (two's complement).
    pub bits: u32,
    /// Numbers a row has.
    pub dim: usize,
    /// The packed rows, [rows, ⌈dim · bits / 8⌉].
    pub bytes: &'a [u8],
    /// Scales, [rows, groups].
    pub scales: &'a [f32],
    /// Zero points, [rows, groups]; zero when absent.
    pub zero_points: Option<&'a [f32]>,
    /// Scales a row has; divides `dim`.
    pub groups: usize,
}

/// Writes row `row` of `table`: (q − zero point) · scale.
///
/// # Panics
/// When the row is outside of the table or slices do not fit.
pub fn embedding_row(table: &EmbeddingTable<'_>, row: usize, out: &mut [f32]) {
    let EmbeddingTable { bits, dim, bytes, scales, zero_points, groups } = *table;
    assert!(out.len() == dim && groups > 0 && dim % groups == 0, "row does not fit the table");
    let row_bytes = (dim * bits as usize).div_ceil(8);
    let bytes = &bytes[row * row_bytes..][..row_bytes];
    let group = dim / groups;
    for (g, out) in out.chunks_exact_mut(group).enumerate() {
        let scale = scales[row * groups + g];
        let zero_point = zero_points.map_or(0.0, |zero_points| zero_points[row * groups + g]);
        for (i, out) in out.iter_mut().enumerate() {
            let i = g * group + i;
            let q = match bits {
                2 => i32::from((bytes[i / 4] >> (2 * (i % 4))) & 3) - 2,
                4 => i32::from((bytes[i / 2] >> (4 - 4 * (i % 2))) & 15) - 8,
                8 => i32::from(bytes[i] as i8),
                _ => panic!("embedding of {bits} bits"),
            };
            *out = (q as f32 - zero_point) * scale;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(bits: u32, dim: usize, bytes: &[u8], zero_points: Option<&[f32]>) -> Vec<f32> {
        let table = EmbeddingTable { bits, dim, bytes, scales: &[9.0, 9.0, 0.5, 2.0], zero_points, groups: 2 };
        let mut out = vec![0.0; dim];
        embedding_row(&table, 1, &mut out);
        out
    }

    #[test]
    fn four_bits_begin_in_the_high_nibble() {
        assert_eq!(row(4, 4, &[0, 0, 0x8f, 0x09], None), [0.0, 3.5, -16.0, 2.0]);
    }

    #[test]
    fn two_bits_begin_in_the_lowest() {
        assert_eq!(row(2, 4, &[0, 0b11_10_01_00], None), [-1.0, -0.5, 0.0, 2.0]);
    }

    #[test]
    fn eight_bits_and_zero_points() {
        assert_eq!(row(8, 2, &[0, 0, 0x80, 7], Some(&[0.0, 0.0, 2.0, -1.0])), [-65.0, 16.0]);
    }
}
