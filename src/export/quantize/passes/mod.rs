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

use super::{Activations, Calibration, EmbeddingFormat, Matrix, Moments, QuantizedMatrix, Recipe, WeightFormat};
use crate::base::storage::Blob;
use crate::error::Result;
use crate::graph::{Graph, ValueId};
use crate::passes::Pass;
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

/// What quantizes a graph.
#[derive(Clone)]
pub struct Setup {
    /// What gets which codes.
    pub recipe: Recipe,
    /// Ranges; needed for static codes, and for keys and values of fewer than 32 bits.
    pub calibration: Arc<Calibration>,
    /// Takes new constants.
    pub keep: Keep,
    /// What is known of operands, where it is.
    pub moments: Option<Arc<MomentsOf>>,
}

/// The passes that `setup` asks for, to be run with whatever else a graph goes through: the manager orders them.
pub fn for_setup(setup: &Setup) -> Vec<Box<dyn Pass>> {
    let Setup { recipe, calibration, keep, moments } = setup.clone();
    let mut passes: Vec<Box<dyn Pass>> = Vec::new();
    let is_static = matches!(recipe.activations, Activations::Static { .. });
    if is_static {
        passes.push(Box::new(InsertRequantize::new(&recipe)));
    }
    if let EmbeddingFormat::Blockwise { bits, block } = recipe.embedding {
        let (format, scales) = (WeightFormat::embedding(bits, block), recipe.scales);
        passes.push(Box::new(QuantizeEmbedding { format, scales, keep: Arc::clone(&keep) }));
    }
    if recipe.linear.is_some() {
        passes.push(Box::new(QuantizeLinear { recipe: recipe.clone(), keep: Arc::clone(&keep), moments }));
    }
    if is_static {
        passes.push(Box::new(Annotate { recipe, calibration, keep: Arc::clone(&keep) }));
        passes.push(Box::new(QuantizeScalars { keep }));
    } else if recipe.kv_bits != 32 {
        passes.push(Box::new(QuantizeKvIo { recipe, calibration }));
    }
    passes
}
