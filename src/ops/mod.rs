//! Operators that a `.pte` calls by name, one family a file.
//!
//! QNN programs need few: everything else is inside their delegates. Portable programs are made of nothing else, and
//! XNNPACK ones have them between their delegates. Semantics are ExecuTorch's own kernels'; what those abort on or
//! leave undefined is an error here.

mod cache;
mod compare;
mod copy;
mod create;
mod dequantize;
mod elementwise_binary;
mod elementwise_unary;
mod embedding;
mod error;
mod fallback;
mod graph_forms;
mod index;
mod layout;
mod linear;
mod method_compiler;
mod mixed_linear;
mod number;
mod prim;
mod promote;
mod quantize;
mod reduce;
mod sdpa;
mod softmax;
mod strided;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod view;

pub use error::OpError;
pub use method_compiler::{GraphCompiler, method_graph};

use crate::runtime::KernelRegistry;

/// Adds every operator of this library.
pub fn register(registry: &mut KernelRegistry) {
    cache::register(registry);
    compare::register(registry);
    copy::register(registry);
    create::register(registry);
    dequantize::register(registry);
    elementwise_binary::register(registry);
    elementwise_unary::register(registry);
    embedding::register(registry);
    fallback::register(registry);
    index::register(registry);
    linear::register(registry);
    mixed_linear::register(registry);
    prim::register(registry);
    quantize::register(registry);
    reduce::register(registry);
    sdpa::register(registry);
    softmax::register(registry);
    strided::register(registry);
    view::register(registry);
}
