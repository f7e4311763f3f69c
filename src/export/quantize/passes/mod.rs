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

pub(super) use linear::round_operands;

use super::{Activations, Calibration, CodeStore, EmbeddingFormat, Recipe, WeightFormat};
use crate::passes::Pass;
use std::sync::Arc;

/// What quantizes a graph.
#[derive(Clone)]
pub struct Setup {
    /// What gets which codes.
    pub recipe: Recipe,
    /// Ranges; needed for static codes, and for keys and values of fewer than 32 bits.
    pub calibration: Arc<Calibration>,
    /// Holds the codes, perhaps those of [`quantize_layerwise`](super::quantize_layerwise) already.
    pub store: Arc<CodeStore>,
}

/// The passes that `setup` asks for, to be run with whatever else a graph goes through: the manager orders them.
pub fn for_setup(setup: &Setup) -> Vec<Box<dyn Pass>> {
    let Setup { recipe, calibration, store } = setup.clone();
    let mut passes: Vec<Box<dyn Pass>> = Vec::new();
    let is_static = matches!(recipe.activations, Activations::Static { .. });
    if is_static {
        passes.push(Box::new(InsertRequantize::new(&recipe)));
    }
    if let EmbeddingFormat::Blockwise { bits, block } = recipe.embedding {
        let (format, scales) = (WeightFormat::embedding(bits, block), recipe.scales);
        passes.push(Box::new(QuantizeEmbedding { format, scales, store: Arc::clone(&store) }));
    }
    if recipe.linear.is_some() {
        passes.push(Box::new(QuantizeLinear { recipe: recipe.clone(), store: Arc::clone(&store) }));
    }
    if is_static {
        passes.push(Box::new(Annotate { recipe, calibration, store: Arc::clone(&store) }));
        passes.push(Box::new(QuantizeScalars { store }));
    } else if recipe.kv_bits != 32 {
        passes.push(Box::new(QuantizeKvIo { recipe, calibration }));
    }
    passes
}
