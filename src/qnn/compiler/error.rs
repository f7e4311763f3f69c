//! What a graph can hold that the compiler cannot take.

use crate::error::{Error, Status};

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum CompileError {
    #[error("graph {graph}, node {origin} ({op}): {why}")]
    Node { graph: String, origin: String, op: String, why: String },
    #[error("graph {graph}, value {value}: {why}")]
    Value { graph: String, value: String, why: String },
    #[error("graph {graph} keeps states between runs ({state}), which the HTP cannot")]
    State { graph: String, state: String },
    #[error("graph {graph}: output {output} is not made by a node")]
    PassThrough { graph: String, output: String },
    #[error("graph {graph}: no node uses input {input}")]
    UnusedInput { graph: String, input: String },
    #[error("graph {graph}: output {output} is listed twice")]
    RepeatedOutput { graph: String, output: String },
    #[error("tensor {name} of shape {dims:?}: a size or its bytes are beyond 32 bits, or its name holds a zero byte")]
    Tensor { name: String, dims: Vec<usize> },
    #[error("a name holds a zero byte: {name:?}")]
    Name { name: String },
}

impl From<CompileError> for Error {
    fn from(error: CompileError) -> Self {
        Self::from_source(Status::NotSupported, error)
    }
}
