//! From reals to codes: calibration on text, encodings of activations, scales of weights, and the passes that put them
//! into a graph.
//!
//! [`Recipe`] says what gets which codes. Static methods: [`Calibration`] runs the float graph in the reference
//! interpreter, and the passes of [`passes`] carry its ranges by name into every graph of the model. 8da4w needs no
//! ranges; its weights get better where [`Moments`] of their operands are known.

mod calibrate;
mod descent;
mod dynamic;
mod encodings;
mod error;
mod gptq;
mod histogram;
mod lanes;
mod layerwise;
mod matrix;
pub mod passes;
mod quality;
mod readers;
mod recipe;
mod scale;
mod segment;
mod store;
mod weight;
mod window;

#[cfg(test)]
mod tests;

pub use calibrate::Calibration;
pub use dynamic::perplexity;
pub use encodings::{CodeType, Encodings};
pub use error::QuantizeError;
pub use gptq::{Feedback, Moments};
pub use histogram::{Histogram, Range, RangeMethod};
pub use layerwise::quantize_layerwise;
pub use matrix::Matrix;
pub use quality::{LayerNoise, Perplexity, Report, bytes_by_kind, compare_static};
pub use recipe::{Activations, DYNAMIC_BLOCK, EmbeddingFormat, LinearRule, Recipe};
pub use scale::{Grid, ScaleMethod, ScaleType};
pub use store::{CodeStore, Keep};
pub use weight::{Knowledge, QuantizedMatrix, WeightFormat, quantize};
pub use window::{MASKED, Windows};
