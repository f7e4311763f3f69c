//! What is in a program, without running it: for `llr inspect` and for hosts, as text, as JSON, or as a tree of values.

mod json;
mod report;
mod sources;
mod text;

pub use json::value as json;
pub use report::{Constant, Delegate, Extent, Io, Method, Qnn, QnnGraph, QnnTensor, Report};
pub use sources::{qnn, qnn_options};
pub use text::render as text;
