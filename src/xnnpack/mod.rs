//! XNNPACK delegates: the blob that a program carries for `XnnpackBackend`, as plain data and as a
//! [`Graph`](crate::graph::Graph).
//!
//! [`decode_delegate`] and [`Model::to_bytes`] are inverse. [`lower_into`] appends a delegate to the graph of the method
//! that calls it; [`to_graph`] makes a graph of a delegate alone. XNNPACK itself is not used.

mod decode;
mod decode_node;
mod encode;
mod error;
mod header;
mod lower;
mod lower_values;
mod model;
mod schema;
mod shapes;
mod to_graph;
mod verify;

pub use decode::decode_delegate;
pub use error::{NodePlace, XnnpackError};
pub use lower::lower_into;
pub use model::{
    Binary, Constant, Datatype, Direction, External, Model, Node, NodeOp, Quantization, Scales, Unary, Value,
};
pub use to_graph::to_graph;
