//! The typed graph of one method: values, nodes in topological order, constants by reference into their file.
//!
//! It stands between every producer (XNNPACK blobs, instruction lists, the model builder of the exporter) and every
//! consumer (the engine, the reference interpreter, the lowerings). Values are in SSA form; the only state is in
//! [`State`]s, whose next contents the graph names explicitly.

mod build;
mod input_axes;
pub mod interpret;
mod op;
mod print;
mod quant;
mod rewrite;
mod shapes;
mod symbol;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod value;
mod verify;

pub use input_axes::InputAxes;
pub use op::{BinaryOp, CacheLayout, Op, RotaryStyle, UnaryOp};
pub use quant::{CodeOrder, Quantization};
pub use rewrite::{Before, Replacement};
pub use symbol::{Int, Symbol, SymbolId, SymbolSource};
pub use value::{Constant, State, StateId, Value, ValueId, ValueKind};
pub use verify::VerifyError;

/// A node's number in [`Graph::nodes`].
pub type NodeId = usize;

/// One operation.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// Where it came from, for messages and dumps: `aten::mul.out #17`, `XNNPACK delegate 3: FullyConnected #2`.
    pub origin: String,
    /// What it does; attributes are inside.
    pub op: Op,
    /// Operands, in the order that [`Op`] documents.
    pub inputs: Vec<ValueId>,
    /// Results, in the order that [`Op`] documents; most operations have one.
    pub outputs: Vec<ValueId>,
}

/// A method as a graph.
#[derive(Debug, Clone, Default)]
pub struct Graph {
    /// Method or delegate name.
    pub name: String,
    /// Integers known only when the graph runs; each may use earlier ones.
    pub symbols: Vec<Symbol>,
    /// Every value.
    pub values: Vec<Value>,
    /// Mutable buffers that live from run to run, zero at first.
    pub states: Vec<State>,
    /// In an order in which each node comes after the nodes that make its operands.
    pub nodes: Vec<Node>,
    /// What the caller gives, in order.
    pub inputs: Vec<ValueId>,
    /// What the caller gets, in order.
    pub outputs: Vec<ValueId>,
    /// The value that each state holds after a run; a state that is not named keeps its contents.
    pub state_updates: Vec<(StateId, ValueId)>,
}
