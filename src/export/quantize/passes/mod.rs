//! The passes that make a float graph a quantized one. Their order follows from what each declares: conversions where
//! encodings will change, weights, encodings of everything else, scalars.

mod annotate;
mod constants;
mod embedding;
mod kv_io;
mod linear;
mod requantize;
mod roles;
mod scalars;

pub use annotate::Annotate;
pub use embedding::QuantizeEmbedding;
pub use kv_io::QuantizeKvIo;
pub use linear::QuantizeLinear;
pub use requantize::InsertRequantize;
pub use scalars::QuantizeScalars;

use super::{Matrix, Moments, QuantizedMatrix};
use crate::base::storage::Blob;
use crate::error::Result;
use crate::graph::{Graph, ValueId};
use std::sync::Arc;

/// Takes the bytes of a new constant to where they stay: a temporary file, or memory.
pub type Keep = Arc<dyn Fn(Vec<u8>) -> Result<Blob> + Send + Sync>;

/// Second moments of the operand of the layer called so; `None` where they are not known.
pub type MomentsOf = dyn Fn(&str) -> Result<Option<Arc<Moments>>> + Send + Sync;

/// Keeps constants in memory.
pub fn in_memory() -> Keep {
    Arc::new(|bytes| Ok(Blob::from_vec(bytes)))
}

/// A constant of `codes` called as `matrix` is, with its quantization.
fn add_codes(graph: &mut Graph, matrix: &Matrix, codes: QuantizedMatrix, keep: &Keep) -> Result<ValueId> {
    let quantization = codes.quantization(keep(codes.scales.clone())?);
    let (dtype, data) = (codes.dtype, keep(codes.data)?);
    let shape = [matrix.rows(), matrix.columns()];
    Ok(graph.add_constant(matrix.name(), dtype, &shape, Some(quantization), data))
}
