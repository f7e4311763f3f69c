//! Why a graph cannot become a program.

use crate::error::{Error, Status};
use crate::graph::{Graph, NodeId, ValueId};
use crate::xnnpack::XnnpackError;

/// A graph, or a part of it, that has no form in a program.
#[derive(Debug, thiserror::Error)]
pub enum LowerError {
    /// An operation that no operator of ExecuTorch's libraries does, or not with these operands.
    #[error("{node} ({op}): {why}")]
    Node {
        /// Where the node came from.
        node: String,
        /// Its operation.
        op: String,
        /// What is missing.
        why: String,
    },
    /// A value that no tensor of a program can be.
    #[error("value {value}: {why}")]
    Value {
        /// Its name.
        value: String,
        /// What is missing.
        why: String,
    },
    /// A value that is used before any part of the plan makes it.
    #[error("value {value} is used before any part makes it")]
    Unmade {
        /// Its name.
        value: String,
    },
    /// A constant in another type than its own that found no room.
    #[error("value {value} as f32")]
    Keep {
        /// Its name.
        value: String,
        /// Why.
        source: Error,
    },
    /// A delegate that its own rules refuse.
    #[error("XNNPACK delegate that begins with {node}")]
    Xnnpack {
        /// The first of its nodes.
        node: String,
        /// Why.
        source: XnnpackError,
    },
}

impl LowerError {
    pub(super) fn node(graph: &Graph, id: NodeId, why: impl Into<String>) -> Self {
        let node = &graph.nodes[id];
        Self::Node { node: node.origin.clone(), op: format!("{:?}", node.op), why: why.into() }
    }

    pub(super) fn value(graph: &Graph, id: ValueId, why: impl Into<String>) -> Self {
        Self::Value { value: graph.value(id).name.clone(), why: why.into() }
    }
}

impl From<LowerError> for Error {
    fn from(error: LowerError) -> Self {
        let status = match error {
            LowerError::Node { .. } | LowerError::Value { .. } | LowerError::Xnnpack { .. } => Status::NotSupported,
            LowerError::Unmade { .. } => Status::Internal,
            LowerError::Keep { ref source, .. } => source.status(),
        };
        Error::from_source(status, error)
    }
}
