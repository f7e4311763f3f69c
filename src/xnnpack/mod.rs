//! XNNPACK delegates: the blob that a program carries for `XnnpackBackend`, as plain data and as a
//! [`Graph`](crate::graph::Graph).
//!
//! [`decode_delegate`] and [`Model::to_bytes`] are inverse. [`lower_into`] appends a delegate to the graph of the method
//! that calls it; [`to_graph`] makes a graph of a delegate alone. XNNPACK itself is not used.
//!
//! Shapes in a blob are upper bounds. [`lower_into`] takes the inputs' shapes from its caller, symbols included, and
//! infers all others; two sizes count as equal only when they are the same number or symbol. [`to_graph`] finds the
//! sizes that may vary itself: axes larger than 1 vary unless a node fixes them, and axes that a node needs to be equal
//! share a symbol.

mod decode;
mod decode_node;
mod delegate;
mod encode;
mod error;
mod header;
mod lower;
mod lower_values;
mod model;
mod schema;
mod shapes;
#[cfg(test)]
mod tests;
mod to_graph;
mod verify;

pub use decode::decode_delegate;
pub use delegate::XnnpackBackend;
pub use error::{NodePlace, XnnpackError};
pub use lower::lower_into;
pub use model::{
    Binary, Constant, Datatype, Direction, External, Model, Node, NodeOp, Quantization, Scales, Unary, Value,
};
pub use to_graph::to_graph;
