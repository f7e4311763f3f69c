//! Matrices of codes: what a weight becomes, packed as [`graph::Value`](crate::graph::Value) documents.

use super::gptq::Feedback;
use super::lanes::{self, Tile};
use super::scale::{Grid, ScaleMethod, ScaleType, Search};
use super::{Matrix, QuantizeError};
use crate::base::storage::Blob;
use crate::graph::{CodeOrder, Constant, Quantization};
use crate::kernels::KernelSet;
use crate::tensor::DType;

/// How a matrix is stored. Codes are signed around zero; those below 8 bits are stored plus `2^(bits−1)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WeightFormat {
    /// 2, 4 or 8.
    pub bits: u8,
    /// Codes of a row that share a scale; `None`: the whole row.
    pub block: Option<usize>,
    /// How scales are stored. Per channel they are f32.
    pub scales: ScaleType,
    /// Which of the codes that share a byte is first.
    pub order: CodeOrder,
}

impl WeightFormat {
    /// 4 bits in blocks with bf16 scales: XNNPACK's qb4w.
    pub const fn blockwise_4(block: usize) -> Self {
        Self { bits: 4, block: Some(block), scales: ScaleType::BF16, order: CodeOrder::LowFirst }
    }

    /// One f32 scale a row.
    pub const fn per_channel(bits: u8) -> Self {
        Self { bits, block: None, scales: ScaleType::F32, order: CodeOrder::LowFirst }
    }

    /// As the tables of `quantized_decomposed::embedding_{2bit,4bit,byte}`: f32 scales; the first of two 4-bit codes in
    /// the high half, the first of four 2-bit codes in the lowest bits.
    pub const fn embedding(bits: u8, block: usize) -> Self {
        let order = if bits == 4 { CodeOrder::HighFirst } else { CodeOrder::LowFirst };
        Self { bits, block: Some(block), scales: ScaleType::F32, order }
    }

    /// Bytes of a matrix of `[rows, columns]` with its scales.
    pub fn bytes(&self, [rows, columns]: [usize; 2]) -> usize {
        let scale = if self.scales == ScaleType::BF16 { 2 } else { 4 };
        rows * ((columns * usize::from(self.bits)).div_ceil(8) + columns.div_ceil(self.block_of(columns)) * scale)
    }

    fn block_of(&self, columns: usize) -> usize {
        self.block.unwrap_or(columns).max(1)
    }

    fn check(&self, matrix: &Matrix) -> Result<(), QuantizeError> {
        if !matches!(self.bits, 2 | 4 | 8) {
            return Err(QuantizeError::Bits { what: "weights", bits: self.bits, known: "2, 4 and 8" });
        }
        match self.block {
            Some(block) if block == 0 || !matrix.columns().is_multiple_of(block) => {
                Err(QuantizeError::Block { name: matrix.name().into(), columns: matrix.columns(), block })
            }
            _ => Ok(()),
        }
    }
}

/// What is known of the operand that a weight is multiplied with.
#[derive(Debug, Clone, Copy, Default)]
pub enum Knowledge<'a> {
    /// Nothing.
    #[default]
    None,
    /// Its second moments: scales are chosen for the inputs that matter, and what rounding one column loses is made up
    /// for by the columns after it.
    Feedback(&'a Feedback),
}

/// Codes with their scales.
#[derive(Debug, Clone, PartialEq)]
pub struct QuantizedMatrix {
    /// Element type of the codes.
    pub dtype: DType,
    /// The codes.
    pub data: Vec<u8>,
    /// Their scales, one after the other, as the format stores them.
    pub scales: Vec<u8>,
    format: WeightFormat,
}

impl QuantizedMatrix {
    /// Its description in the graph; `scales` holds what [`Self::scales`] did.
    pub fn quantization(&self, scales: Blob) -> Quantization {
        let WeightFormat { bits, block, order, .. } = self.format;
        let scales = Constant { data: scales };
        match block {
            None => Quantization::PerChannel { bits, axis: 0, scales },
            Some(block) => {
                let scale_dtype = if self.format.scales == ScaleType::BF16 { DType::BF16 } else { DType::F32 };
                Quantization::Blockwise { bits, block, scales, scale_dtype, zero_points: None, order }
            }
        }
    }
}

/// Rows that one thread works on at a time.
const CHUNK: usize = lanes::ROWS;

/// Quantizes `matrix`, a few rows at a time.
///
/// # Errors
/// As [`Matrix::read`], and [`QuantizeError::Block`] and [`QuantizeError::Bits`] for a format that does not fit.
pub fn quantize(
    matrix: &Matrix,
    format: WeightFormat,
    method: ScaleMethod,
    knowledge: Knowledge<'_>,
) -> Result<QuantizedMatrix, QuantizeError> {
    format.check(matrix)?;
    let (rows, columns) = (matrix.rows(), matrix.columns());
    let feedback = match knowledge {
        Knowledge::None => None,
        Knowledge::Feedback(feedback) => Some(feedback),
    };
    let work = Work { matrix, format, method, feedback };
    let (row_bytes, row_scales) = ((columns * usize::from(format.bits)).div_ceil(8), format.bytes([1, columns]));
    let row_scales = row_scales - row_bytes;
    let mut data = vec![0; rows * row_bytes];
    let mut scales = vec![0; rows * row_scales];
    let chunks = data.chunks_mut(CHUNK * row_bytes).zip(scales.chunks_mut(CHUNK * row_scales));
    let queue = parking_lot::Mutex::new(chunks.enumerate());
    let run = || -> Result<(), QuantizeError> {
        loop {
            let Some((index, (codes, scales))) = queue.lock().next() else { return Ok(()) };
            work.rows(index * CHUNK, codes.chunks_mut(row_bytes).zip(scales.chunks_mut(row_scales)))?;
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(rows.div_ceil(CHUNK));
    std::thread::scope(|scope| {
        let workers: Vec<_> = (1..threads).map(|_| scope.spawn(run)).collect();
        let own = run();
        let panicked = || QuantizeError::Graph { graph: matrix.name().into(), why: "a worker panicked".into() };
        workers.into_iter().map(|worker| worker.join().unwrap_or_else(|_| Err(panicked()))).fold(own, Result::and)
    })?;
    let dtype = if format.bits == 8 { DType::I8 } else { DType::U8 };
    Ok(QuantizedMatrix { dtype, data, scales, format })
}

struct Work<'a> {
    matrix: &'a Matrix,
    format: WeightFormat,
    method: ScaleMethod,
    feedback: Option<&'a Feedback>,
}

impl Work<'_> {
    fn rows<'b>(
        &self,
        first: usize,
        outs: impl ExactSizeIterator<Item = (&'b mut [u8], &'b mut [u8])>,
    ) -> Result<(), QuantizeError> {
        let (columns, count) = (self.matrix.columns(), outs.len());
        let block = self.format.block_of(columns);
        let grid = Grid::of_bits(self.format.bits);
        let mut reals = vec![0.0; count * columns]; // (count, columns)
        let mut scales = vec![0.0; count * columns.div_ceil(block)]; // (count, blocks)
        for (row, reals) in reals.chunks_exact_mut(columns).enumerate() {
            self.matrix.read(first + row, reals)?;
        }
        KernelSet::best().run(Search {
            reals: &reals,
            importance: self.feedback.map_or(&[], Feedback::importance),
            sizes: [columns, block],
            grid,
            stored: self.format.scales,
            method: self.method,
            scales: &mut scales,
        });
        let mut codes = vec![0.0; reals.len()]; // (count, columns)
        match self.feedback {
            Some(feedback) => {
                let mut tile = Tile::new(&reals, &scales, [columns, block]);
                feedback.round(&mut tile, grid, self.format.scales);
                lanes::gather(&tile.codes, &mut codes);
                lanes::gather(&tile.scales, &mut scales);
            }
            None => {
                let groups = reals.chunks_exact(columns).zip(codes.chunks_exact_mut(columns));
                let groups = groups.flat_map(|(reals, codes)| reals.chunks(block).zip(codes.chunks_mut(block)));
                for ((reals, codes), &scale) in groups.zip(&scales) {
                    codes.iter_mut().zip(reals).for_each(|(code, &real)| *code = grid.code(real, scale));
                }
            }
        }
        let rows = codes.chunks_exact(columns).zip(scales.chunks_exact(columns.div_ceil(block)));
        for ((out, out_scales), (codes, scales)) in outs.zip(rows) {
            pack(codes, self.format, out);
            store(scales, self.format.scales, out_scales);
        }
        Ok(())
    }
}

/// Packs a row of codes; `out` is zero.
fn pack(codes: &[f32], format: WeightFormat, out: &mut [u8]) {
    if format.bits == 8 {
        out.iter_mut().zip(codes).for_each(|(byte, &code)| *byte = (code as i8).cast_unsigned());
        return;
    }
    let (bits, center) = (usize::from(format.bits), 1i8 << (format.bits - 1));
    let per_byte = 8 / bits;
    for (column, &code) in codes.iter().enumerate() {
        let place = match format.order {
            CodeOrder::LowFirst => column % per_byte,
            CodeOrder::HighFirst => per_byte - 1 - column % per_byte,
        };
        out[column / per_byte] |= (code as i8 + center).cast_unsigned() << (place * bits);
    }
}

fn store(scales: &[f32], stored: ScaleType, out: &mut [u8]) {
    match stored {
        ScaleType::F32 => {
            out.as_chunks_mut::<4>().0.iter_mut().zip(scales).for_each(|(out, x)| *out = x.to_le_bytes());
        }
        ScaleType::BF16 => {
            let bytes = |x: f32| half::bf16::from_f32(x).to_le_bytes();
            out.as_chunks_mut::<2>().0.iter_mut().zip(scales).for_each(|(out, &x)| *out = bytes(x));
        }
    }
}
