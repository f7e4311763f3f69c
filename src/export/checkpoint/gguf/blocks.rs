//! ggml's quantized blocks and the reals that they stand for.
//!
//! Layouts and formulas: the `block_*` structures and `dequantize_row_*` reference of the ggml project.

use half::f16;

/// A kind of block. Elements in the order of the row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::export::checkpoint) enum BlockType {
    /// 32 codes of 4 bits around 8, f16 scale.
    Q4_0,
    /// 32 codes of 4 bits, f16 scale and minimum.
    Q4_1,
    /// 32 codes of 5 bits around 16, f16 scale.
    Q5_0,
    /// 32 codes of 5 bits, f16 scale and minimum.
    Q5_1,
    /// 32 signed bytes, f16 scale.
    Q8_0,
    /// 256 codes of 4 bits in groups of 32 with 6-bit scales and minima, f16 scales of both.
    Q4K,
    /// As `Q4K` with codes of 5 bits.
    Q5K,
    /// 256 codes of 6 bits around 32 in groups of 16 with 8-bit scales, f16 scale.
    Q6K,
}

use BlockType::*;

impl BlockType {
    /// The type with ggml's number `kind`.
    pub fn of(kind: u32) -> Option<Self> {
        Some(match kind {
            2 => Q4_0,
            3 => Q4_1,
            6 => Q5_0,
            7 => Q5_1,
            8 => Q8_0,
            12 => Q4K,
            13 => Q5K,
            14 => Q6K,
            _ => return None,
        })
    }

    /// Elements of a block.
    pub const fn elements(self) -> usize {
        match self {
            Q4_0 | Q4_1 | Q5_0 | Q5_1 | Q8_0 => 32,
            Q4K | Q5K | Q6K => 256,
        }
    }

    /// Bytes of a block.
    pub const fn bytes(self) -> usize {
        match self {
            Q4_0 => 2 + 16,
            Q4_1 => 4 + 16,
            Q5_0 => 2 + 4 + 16,
            Q5_1 => 4 + 4 + 16,
            Q8_0 => 2 + 32,
            Q4K => 4 + 12 + 128,
            Q5K => 4 + 12 + 32 + 128,
            Q6K => 128 + 64 + 16 + 2,
        }
    }

    /// Gives the elements of `block`, which has [`BlockType::bytes`] bytes, one after the other.
    pub fn dequantize(self, block: &[u8], mut put: impl FnMut(f32)) {
        let half = |at: usize| f16::from_le_bytes([block[at], block[at + 1]]).to_f32();
        match self {
            Q4_0 => nibbles(&block[2..], |_, code| put((f32::from(code) - 8.0) * half(0))),
            Q4_1 => nibbles(&block[4..], |_, code| put(f32::from(code) * half(0) + half(2))),
            Q5_0 => nibbles(&block[6..], |i, code| put((f32::from(code | fifth(&block[2..6], i)) - 16.0) * half(0))),
            Q5_1 => nibbles(&block[8..], |i, code| put(f32::from(code | fifth(&block[4..8], i)) * half(0) + half(2))),
            Q8_0 => block[2..].iter().for_each(|&code| put(f32::from(code as i8) * half(0))),
            Q4K => grouped(&block[..16], |group, i| block[16 + group / 2 * 32 + i] >> (4 * (group % 2)) & 15, put),
            Q5K => {
                let code = |group: usize, i: usize| {
                    let low = block[48 + group / 2 * 32 + i] >> (4 * (group % 2)) & 15;
                    low | (block[16 + i] >> group & 1) << 4
                };
                grouped(&block[..16], code, put);
            }
            Q6K => {
                // Two halves of 128; in each, quarter `q` of 32 takes a nibble of `low` and two bits of `high`.
                for (half_block, quarter, i) in indices(2, 4, 32) {
                    let low = block[64 * half_block + 32 * (quarter % 2) + i] >> (4 * (quarter / 2)) & 15;
                    let high = block[128 + 32 * half_block + i] >> (2 * quarter) & 3;
                    let scale = block[192 + 8 * half_block + 2 * quarter + i / 16] as i8;
                    put(half(208) * f32::from(scale) * (f32::from(low | high << 4) - 32.0));
                }
            }
        }
    }
}

fn indices(first: usize, second: usize, third: usize) -> impl Iterator<Item = (usize, usize, usize)> {
    (0..first * second * third).map(move |i| (i / third / second, i / third % second, i % third))
}

/// Elements 0 to 15 are the low halves of 16 bytes, 16 to 31 the high ones.
fn nibbles(bytes: &[u8], mut put: impl FnMut(usize, u8)) {
    for i in 0..32 {
        put(i, bytes[i % 16] >> (4 * (i / 16)) & 15);
    }
}

/// Bit `i` of a little-endian number as the fifth bit of a code.
fn fifth(bits: &[u8], i: usize) -> u8 {
    (bits[i / 8] >> (i % 8) & 1) << 4
}

/// Eight groups of 32 codes. `head`: f16 scale of the scales, f16 scale of the minima, 6-bit scale and minimum of each
/// group, the first four whole and the rest with their upper two bits in the first four's bytes.
fn grouped(head: &[u8], code: impl Fn(usize, usize) -> u8, mut put: impl FnMut(f32)) {
    let half = |at: usize| f16::from_le_bytes([head[at], head[at + 1]]).to_f32();
    let packed = &head[4..];
    for group in 0..8 {
        let (scale, minimum) = match group {
            0..4 => (packed[group] & 63, packed[group + 4] & 63),
            _ => {
                (packed[group + 4] & 15 | packed[group - 4] >> 6 << 4, packed[group + 4] >> 4 | packed[group] >> 6 << 4)
            }
        };
        let (scale, minimum) = (half(0) * f32::from(scale), half(2) * f32::from(minimum));
        (0..32).for_each(|i| put(scale * f32::from(code(group, i)) - minimum));
    }
}
