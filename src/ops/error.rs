//! Every way in which an operator's arguments can be wrong, beyond their kind.

use crate::error::{Error, Status};
use crate::tensor::{DType, Dims};

/// A fault found by an operator.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // The texts say it.
pub enum OpError {
    #[error("{what} cannot be {dtype}")]
    Type { what: &'static str, dtype: DType },
    #[error("{what} has {have} elements, its type says {want}")]
    TypesDiffer { what: &'static str, have: DType, want: DType },
    #[error("{what} cannot have the sizes {dims:?}")]
    Shape { what: &'static str, dims: Dims },
    #[error("{what} does not lie in memory in logical order")]
    Order { what: &'static str },
    #[error("id {id} at place {place} is not in the table of {rows} rows")]
    Id { id: i64, place: usize, rows: usize },
    #[error("the smallest code {min} is above the largest {max}")]
    CodeRange { min: i64, max: i64 },
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
    #[error("index {index} is outside 0..{len}")]
    Index { index: i64, len: usize },
    #[error("a view cannot have the sizes {0:?}")]
    ViewSizes(Vec<i64>),
}

impl From<OpError> for Error {
    fn from(error: OpError) -> Self {
        let status = match error {
            OpError::Type { .. } | OpError::TypesDiffer { .. } | OpError::Operands(_) => Status::InvalidType,
            OpError::Id { .. } => Status::InvalidArgument,
            _ => Status::InvalidProgram,
        };
        Error::from_source(status, error)
    }
}
