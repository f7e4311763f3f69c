//! Every way in which an operator's arguments can be wrong, beyond their kind.

use crate::error::{Error, Status};
use crate::tensor::{DType, Dims, MAX_RANK};

/// A fault found by an operator.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // The texts say it.
pub enum OpError {
    #[error("{what} cannot be {dtype}")]
    Type { what: &'static str, dtype: DType },
    #[error("{what} has {have} elements, its type says {want}")]
    TypesDiffer { what: &'static str, have: DType, want: DType },
    #[error("a result of {from} cannot be stored as {to}")]
    Cast { from: DType, to: DType },
    #[error("{what} cannot have the sizes {dims:?}")]
    Shape { what: &'static str, dims: Dims },
    #[error("sizes {a:?} and {b:?} do not go together")]
    Shapes { a: Dims, b: Dims },
    #[error("sizes {from:?} cannot be broadcast to {to:?}")]
    Broadcast { from: Dims, to: Dims },
    #[error("more than {MAX_RANK} dimensions")]
    Rank,
    #[error("{what} does not lie in memory in logical order")]
    Order { what: &'static str },
    #[error("id {id} at place {place} is not in the table of {rows} rows")]
    Id { id: i64, place: usize, rows: usize },
    #[error("the smallest code {min} is above the largest {max}")]
    CodeRange { min: i64, max: i64 },
    #[error("codes {min}..={max} do not fit {dtype}")]
    CodesOfType { min: i64, max: i64, dtype: DType },
    #[error("it cannot take {0}")]
    Operands(String),
    #[error("{0} overflows")]
    Overflow(&'static str),
    #[error("division of {0} by zero")]
    DivisionByZero(i64),
    #[error("{0} is no integer that 64 bits hold")]
    NotAnInteger(f64),
    #[error("dimension {dim} of a tensor with {rank}")]
    Dimension { dim: i64, rank: usize },
    #[error("dimension {0} is named twice")]
    DimensionTwice(usize),
    #[error("index {index} is outside 0..{len}")]
    Index { index: i64, len: usize },
    #[error("index tensors name {count} places together, more than {max}")]
    TooManyPlaces { count: usize, max: usize },
    #[error("a step of {0}")]
    Step(f64),
    #[error("a view cannot have the sizes {0:?}")]
    ViewSizes(Vec<i64>),
    #[error("{dims:?} is no order of {rank} dimensions")]
    Permutation { dims: Vec<i64>, rank: usize },
    #[error("nothing to reduce in sizes {0:?}")]
    NothingToReduce(Dims),
    #[error("nothing to join")]
    NothingToJoin,
    #[error("positions from {start} on, {len} of them, are not in a cache of {room}")]
    CachePosition { start: i64, len: usize, room: usize },
    #[error("attention is either causal or masked, not both")]
    CausalAndMasked,
    #[error("int8 attention without scales and zero points")]
    Unscaled,
    #[error("there is no {0:?} approximation")]
    Approximation(String),
    #[error("values cannot be accumulated in place")]
    Accumulate,
}

impl From<OpError> for Error {
    fn from(error: OpError) -> Self {
        let status = match error {
            OpError::Type { .. } | OpError::TypesDiffer { .. } | OpError::Cast { .. } | OpError::Operands(_) => {
                Status::InvalidType
            }
            // These depend on what the caller fed in, not on the program.
            OpError::Id { .. } | OpError::Index { .. } | OpError::CachePosition { .. } => Status::InvalidArgument,
            _ => Status::InvalidProgram,
        };
        Error::from_source(status, error)
    }
}
