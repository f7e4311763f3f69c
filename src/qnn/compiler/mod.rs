//! From graphs to a context binary: composes them through libQnnHtp.so, which needs no device.
//!
//! A graph must be static and quantized: every real value `PerTensor` with 8 or 16 bits (inputs and outputs may be
//! f32), weights of linear layers `PerChannel` or `Blockwise`. Then the reference interpreter predicts what the HTP
//! computes, up to a few codes.
//!
//! `session.rs` owns the library's objects, `composer.rs` makes tensors and nodes in them; `lower` says which QNN
//! operations a node of ours becomes and has no unsafe code.

mod block_scales;
mod composer;
mod error;
mod lower;
mod operation;
mod options;
mod session;
mod tensor;
#[cfg(test)]
mod tests;
mod weights;

pub use block_scales::{BlockScales, fit_block_scales};
pub use error::CompileError;
pub use options::CompilerOptions;

use super::handles::Device;
use super::library::QnnLibrary;
use super::lock::QnnLock;
use crate::error::Result;
use crate::graph::Graph;
use composer::Composer;
use lower::Lowering;
use session::Session;
use std::sync::Arc;

/// Composes `graphs` in one context for the SoC of `options` and gives the context binary.
///
/// A graph's input `n` is named `input_<n>_<name>@0` and its output `n` `output_<n>_<name>@0`; inputs count as
/// arguments of a delegate in the order of [`Graph::inputs`], outputs behind them in that of [`Graph::outputs`].
/// Whatever was created in the library is freed when this returns.
///
/// # Errors
/// [`CompileError`] when a graph holds what the HTP cannot do, naming node and origin;
/// [`QnnError`](super::QnnError) when the library refuses a node, likewise, or fails.
pub fn compile(library: &Arc<QnnLibrary>, graphs: &[Graph], options: &CompilerOptions) -> Result<Vec<u8>> {
    for graph in graphs {
        graph.verify()?;
    }
    let lock = QnnLock::acquire();
    let device = Device::create(library, Some(options.soc.model), options.log_level)?;
    let session = Session::create(&lock, &device, options)?;
    for graph in graphs {
        let composer = Composer::create(&session, &graph.name, options)?;
        Lowering::new(graph, composer).run()?;
    }
    Ok(session.binary()?)
}
