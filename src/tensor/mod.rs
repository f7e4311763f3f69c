//! What a tensor is, apart from where its bytes live: element types, shapes, quantization encodings.

mod dtype;
mod quant;
mod shape;

pub use dtype::{DType, Element};
pub use quant::Encoding;
pub use shape::{Dims, MAX_ELEMENTS, MAX_RANK, element_count};
