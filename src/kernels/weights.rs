//! Integer weight matrices in the layout the kernels stream: packed once at load from the layout that XNNPACK programs store.
//!
//! A matrix [n, k] becomes ⌈n/16⌉ tiles of 16 output columns. A tile is a run of lines that is read once from end to end:
//! the zero-point terms (−Σ scale·w, 16 f32), the bias if there is one (16 f32), then sections. A section is a line of
//! scales (of two groups in bf16, of one in f32) and the weights of those groups ([steps][16 columns][4 bytes], see
//! [`Simd::dot4`](super::simd::Simd::dot4)). All instruction sets share this layout.

use super::line::Line;
use crate::error::{Error, Status};
use half::bf16;

/// Largest input width, so that every integer sum and its float image are exact.
pub const MAX_K: usize = 1 << 16;

/// Why weights cannot be packed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PackError {
    /// No columns or no rows, or more inputs than [`MAX_K`].
    #[error("weights of {n} x {k}: both must be positive, and k at most {MAX_K}")]
    Shape {
        /// Output columns.
        n: usize,
        /// Inputs.
        k: usize,
    },
    /// The group neither covers all of k nor divides it in multiples of 8.
    #[error("group size {group} does not divide {k} inputs into groups of a multiple of 8")]
    Group {
        /// Inputs that share a scale.
        group: usize,
        /// Inputs.
        k: usize,
    },
    /// A slice has not the length that the shape asks for.
    #[error("{what}: {found} elements, the shape needs {needed}")]
    Length {
        /// Which slice.
        what: &'static str,
        /// Its length.
        found: usize,
        /// What it should be.
        needed: usize,
    },
}

impl From<PackError> for Error {
    fn from(error: PackError) -> Self {
        Self::from_source(Status::InvalidArgument, error)
    }
}

/// Shape of a quantized weight matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WeightShape {
    /// Output columns.
    pub n: usize,
    /// Inputs.
    pub k: usize,
    /// Consecutive inputs that share a scale: `k` for per-channel weights, else a multiple of 8 that divides `k`.
    pub group: usize,
}

impl WeightShape {
    /// Scales a column has.
    pub fn groups(&self) -> usize {
        self.k / self.group
    }

    /// Steps of 8 inputs a group has.
    pub fn group_steps(&self) -> usize {
        self.group.div_ceil(8)
    }

    fn check(&self) -> Result<(), PackError> {
        let Self { n, k, group } = *self;
        if n == 0 || k == 0 || k > MAX_K {
            return Err(PackError::Shape { n, k });
        }
        if group != k && (group == 0 || group % 8 != 0 || k % group != 0) {
            return Err(PackError::Group { group, k });
        }
        Ok(())
    }
}

/// How the nibbles of stored 4-bit weights stand for numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nibbles {
    /// 0..=15 with zero point 8: what ExecuTorch writes.
    Offset8,
    /// Two's complement, −8..=7.
    Signed,
}

/// Weight scales, [n, groups], row-major.
#[derive(Debug, Clone, Copy)]
pub enum Scales<'a> {
    /// Bits of bfloat16.
    Bf16(&'a [u16]),
    /// f32; stored as bfloat16 when that loses nothing.
    F32(&'a [f32]),
}

impl Scales<'_> {
    fn len(&self) -> usize {
        match self {
            Self::Bf16(bits) => bits.len(),
            Self::F32(values) => values.len(),
        }
    }

    fn get(&self, index: usize) -> f32 {
        match self {
            Self::Bf16(bits) => bf16::from_bits(bits[index]).to_f32(),
            Self::F32(values) => values[index],
        }
    }

    fn fit_bf16(&self) -> bool {
        match self {
            Self::Bf16(_) => true,
            Self::F32(values) => values.iter().all(|value| value.to_bits() & 0xffff == 0),
        }
    }
}

/// Width of a packed weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bits {
    /// 4-bit, −8..=7.
    Four,
    /// 8-bit, −128..=127.
    Eight,
}

/// A packed weight matrix [n, k] of 4- or 8-bit integers with its scales and bias.
#[derive(Debug, Clone)]
pub struct PackedWeights {
    shape: WeightShape,
    bits: Bits,
    bf16_scales: bool,
    has_bias: bool,
    lines: Vec<Line>, // [tiles][tile_lines]
}

/// The parts of one tile.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tile<'a> {
    pub(crate) zero_point_terms: &'a [f32; 16],
    pub(crate) bias: Option<&'a [f32; 16]>,
    pub(crate) sections: &'a [Line],
}

impl PackedWeights {
    /// Packs 4-bit weights stored as [n, ⌈k/2⌉] bytes, even inputs in low nibbles.
    pub fn pack_4bit(
        shape: WeightShape,
        bytes: &[u8],
        nibbles: Nibbles,
        scales: Scales<'_>,
        bias: Option<&[f32]>,
    ) -> Result<Self, PackError> {
        let row_bytes = shape.k.div_ceil(2);
        let flip = if nibbles == Nibbles::Signed { 8 } else { 0 };
        Self::pack(shape, Bits::Four, (bytes.len(), row_bytes), scales, bias, |row, inputs| {
            let row = &bytes[row * row_bytes..][..row_bytes];
            for (k, weight) in inputs.iter_mut().enumerate() {
                *weight = (((row[k / 2] >> (4 * (k % 2))) & 15) ^ flip) as i8 - 8;
            }
        })
    }

    /// Packs 8-bit weights stored as [n, k].
    pub fn pack_8bit(
        shape: WeightShape,
        values: &[i8],
        scales: Scales<'_>,
        bias: Option<&[f32]>,
    ) -> Result<Self, PackError> {
        Self::pack(shape, Bits::Eight, (values.len(), shape.k), scales, bias, |row, inputs| {
            inputs.copy_from_slice(&values[row * inputs.len()..][..inputs.len()]);
        })
    }

    /// `stored`: length of the weights' slice and of one row in it; `read` gives a row as signed numbers.
    fn pack(
        shape: WeightShape,
        bits: Bits,
        stored: (usize, usize),
        scales: Scales<'_>,
        bias: Option<&[f32]>,
        read: impl Fn(usize, &mut [i8]),
    ) -> Result<Self, PackError> {
        shape.check()?;
        let (n, groups) = (shape.n, shape.groups());
        for (what, found, needed) in [
            ("weights", stored.0, n.checked_mul(stored.1)),
            ("scales", scales.len(), n.checked_mul(groups)),
            ("bias", bias.map_or(n, <[f32]>::len), Some(n)),
        ] {
            if Some(found) != needed {
                return Err(PackError::Length { what, found, needed: needed.unwrap_or(usize::MAX) });
            }
        }
        let mut packed =
            Self { shape, bits, bf16_scales: scales.fit_bf16(), has_bias: bias.is_some(), lines: Vec::new() };
        let tile_lines = packed.tile_lines();
        packed.lines = vec![Line::ZERO; packed.tiles() * tile_lines];
        let mut inputs = vec![0i8; shape.k];
        let bf16_scales = packed.bf16_scales;
        let (sections_at, section_groups, section_lines) =
            (packed.sections_at(), packed.section_groups(), packed.section_lines());
        let group_lines = packed.group_lines();
        for (tile, lines) in packed.lines.chunks_exact_mut(tile_lines).enumerate() {
            for (column, row) in (tile * 16..n.min(tile * 16 + 16)).enumerate() {
                read(row, &mut inputs);
                let mut zero_point_term = 0.0;
                for (g, inputs) in inputs.chunks_exact(shape.group).enumerate() {
                    let scale = scales.get(row * groups + g);
                    let sum: i32 = inputs.iter().map(|&w| i32::from(w)).sum();
                    zero_point_term -= f64::from(scale) * f64::from(sum);
                    let section = &mut lines[sections_at + g / section_groups * section_lines..];
                    let (scale_line, weights) = section.split_first_mut().expect("a line of scales");
                    if bf16_scales {
                        let at = &mut scale_line.0[32 * (g % 2) + 2 * column..];
                        at[..2].copy_from_slice(&bf16::from_f32(scale).to_bits().to_ne_bytes());
                    } else {
                        scale_line.0[4 * column..][..4].copy_from_slice(&scale.to_ne_bytes());
                    }
                    let weights = &mut weights[g % section_groups * group_lines..][..group_lines];
                    for (s, eight) in inputs.chunks(8).enumerate() {
                        let mut w = [0i8; 8];
                        w[..eight.len()].copy_from_slice(eight);
                        match bits {
                            Bits::Four => {
                                let nibble = |i: usize| (w[i] + 8) as u8;
                                let at = &mut weights[s].0[4 * column..][..4];
                                for (i, byte) in at.iter_mut().enumerate() {
                                    *byte = nibble(i) | nibble(i + 4) << 4;
                                }
                            }
                            Bits::Eight => {
                                for (i, w) in w.into_iter().enumerate() {
                                    weights[2 * s + i / 4].0[4 * column + i % 4] = w as u8 ^ 128;
                                }
                            }
                        }
                    }
                }
                lines[0].0[4 * column..][..4].copy_from_slice(&(zero_point_term as f32).to_ne_bytes());
                if let Some(bias) = bias {
                    lines[1].0[4 * column..][..4].copy_from_slice(&bias[row].to_ne_bytes());
                }
            }
        }
        Ok(packed)
    }

    /// Shape of the matrix.
    pub fn shape(&self) -> WeightShape {
        self.shape
    }

    /// Width of a weight.
    pub fn bits(&self) -> Bits {
        self.bits
    }

    /// Bytes a full multiplication reads.
    pub fn size_bytes(&self) -> usize {
        self.lines.len() * size_of::<Line>()
    }

    /// Tiles of 16 output columns.
    pub fn tiles(&self) -> usize {
        self.shape.n.div_ceil(16)
    }

    pub(crate) fn bf16_scales(&self) -> bool {
        self.bf16_scales
    }

    pub(crate) fn tile(&self, index: usize) -> Tile<'_> {
        let lines = &self.lines[index * self.tile_lines()..][..self.tile_lines()];
        Tile {
            zero_point_terms: lines[0].as_f32(),
            bias: self.has_bias.then(|| lines[1].as_f32()),
            sections: &lines[self.sections_at()..],
        }
    }

    fn sections_at(&self) -> usize {
        1 + usize::from(self.has_bias)
    }

    fn group_lines(&self) -> usize {
        self.shape.group_steps() * if self.bits == Bits::Four { 1 } else { 2 }
    }

    fn section_groups(&self) -> usize {
        if self.bf16_scales { 2 } else { 1 }
    }

    fn section_lines(&self) -> usize {
        1 + self.section_groups() * self.group_lines()
    }

    fn tile_lines(&self) -> usize {
        let groups = self.shape.groups();
        self.sections_at() + groups.div_ceil(self.section_groups()) + groups * self.group_lines()
    }
}
