//! Why a graph cannot be compiled, or a run is refused.

use crate::error::{Error, Status};
use crate::graph::VerifyError;
use crate::kernels::PackError;

/// What went wrong in the engine, and where.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum EngineError {
    /// The graph is not well formed.
    #[error(transparent)]
    Verify(#[from] VerifyError),
    /// A node or value that the engine cannot run.
    #[error("{place}: {why}")]
    Unsupported {
        /// The node's origin, or the value's name.
        place: String,
        /// What it cannot do.
        why: String,
    },
    /// Weights that the kernels refuse.
    #[error("{origin}: {source}")]
    Pack {
        /// The node's origin.
        origin: String,
        /// Why.
        source: PackError,
    },
    /// Another number of inputs than the graph has.
    #[error("{have} inputs where the graph has {need}")]
    InputCount {
        /// Given.
        have: usize,
        /// Expected.
        need: usize,
    },
    /// An input of another shape or size than the graph says.
    #[error("input {index} ({name}): {why}")]
    Input {
        /// Which.
        index: usize,
        /// Its value's name.
        name: String,
        /// What does not fit.
        why: String,
    },
    /// Another number of states than the graph has.
    #[error("{have} states where the graph has {need}")]
    StateCount {
        /// Given.
        have: usize,
        /// Expected.
        need: usize,
    },
    /// A state of the caller's of another size than the graph says, or not aligned.
    #[error("state {name}: {have} bytes where {need} are needed, aligned to its elements")]
    State {
        /// Its name.
        name: String,
        /// Given.
        have: usize,
        /// Expected.
        need: usize,
    },
    /// A run-time integer outside its bounds: a position beyond the cache, more tokens than the program takes.
    #[error("{symbol} is {value}, outside {min}..={max}")]
    SymbolOutOfBounds {
        /// The symbol's name.
        symbol: String,
        /// What it would be.
        value: i64,
        /// Lower bound.
        min: i64,
        /// Upper bound.
        max: i64,
    },
    /// A run-time integer that cannot be computed.
    #[error("{symbol}: {why}")]
    Symbol {
        /// The symbol's name.
        symbol: String,
        /// Why not.
        why: &'static str,
    },
    /// A value that cannot have its shape in this run.
    #[error("{origin}: {value}: {why}")]
    Shape {
        /// Origin of the node that makes it.
        origin: String,
        /// Its name.
        value: String,
        /// What does not fit.
        why: String,
    },
    /// A node that failed on the data of this run.
    #[error("{origin}: {why}")]
    Node {
        /// The node's origin.
        origin: String,
        /// What is wrong.
        why: String,
    },
    /// Memory could not be had.
    #[error("cannot allocate {bytes} bytes for {what}")]
    OutOfMemory {
        /// What it is for.
        what: &'static str,
        /// How much.
        bytes: usize,
    },
}

impl EngineError {
    /// The status number that callers see.
    pub fn status(&self) -> Status {
        match self {
            Self::Verify(_) | Self::Pack { .. } => Status::InvalidProgram,
            Self::Unsupported { .. } => Status::NotSupported,
            Self::OutOfMemory { .. } => Status::MemoryAllocationFailed,
            _ => Status::InvalidArgument,
        }
    }
}

impl From<EngineError> for Error {
    fn from(error: EngineError) -> Self {
        Error::from_source(error.status(), error)
    }
}
