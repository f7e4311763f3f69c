//! What can be wrong with a graph, a recipe or calibration text that is to be quantized.

use crate::error::{Error, Status};
use crate::tensor::DType;

/// Why a graph cannot be quantized, and where.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum QuantizeError {
    /// A constant that is to be quantized has no reals.
    #[error("weight {name} is {dtype}: only f32, f16 and bf16 can be quantized")]
    WeightType {
        /// Its value's name.
        name: String,
        /// Its element type.
        dtype: DType,
    },
    /// A constant that is to be quantized is no matrix, or an empty one.
    #[error("weight {name} of shape {shape:?} is no matrix of elements")]
    WeightShape {
        /// Its value's name.
        name: String,
        /// Its shape.
        shape: Vec<usize>,
    },
    /// A weight holds NaN or an infinity.
    #[error("weight {name}, row {row}: {value} cannot be quantized")]
    NotFinite {
        /// Its value's name.
        name: String,
        /// The row.
        row: usize,
        /// The first such number.
        value: f32,
    },
    /// The columns are not whole blocks.
    #[error("weight {name}: {columns} columns are not whole blocks of {block}")]
    Block {
        /// Its value's name.
        name: String,
        /// Length of a row.
        columns: usize,
        /// Codes that share a scale.
        block: usize,
    },
    /// Codes of a size that does not exist.
    #[error("{what}: codes of {bits} bits; {known} exist")]
    Bits {
        /// What was to have them.
        what: &'static str,
        /// Asked for.
        bits: u8,
        /// Those that do exist.
        known: &'static str,
    },
    /// A constant that must be one number is a tensor.
    #[error("{node}: {name} should be a scalar, but is a tensor of shape {shape:?}")]
    NotScalar {
        /// The node that uses it.
        node: String,
        /// Its value's name.
        name: String,
        /// Its shape.
        shape: Vec<usize>,
    },
    /// No calibration run saw a value whose range is needed.
    #[error("the calibration has no range for {0}")]
    NoRange(String),
    /// An operation that integer codes cannot go through.
    #[error("{node}: {op} has no quantized form")]
    Operation {
        /// The node.
        node: String,
        /// Its operation.
        op: String,
    },
    /// There are no tokens, or too few.
    #[error("calibration needs at least {need} tokens, and {have} were given")]
    TooFewTokens {
        /// Given.
        have: usize,
        /// Needed.
        need: usize,
    },
    /// A token that the model does not have.
    #[error("calibration token {place} is {token}, and the vocabulary has {vocab}")]
    Token {
        /// Its position.
        place: usize,
        /// Its number.
        token: u64,
        /// Rows of the token embedding.
        vocab: usize,
    },
    /// A graph that calibration cannot run.
    #[error("calibration cannot run {graph}: {why}")]
    Graph {
        /// Its name.
        graph: String,
        /// What it lacks.
        why: String,
    },
    /// A file of encodings that is damaged.
    #[error("encodings: {0}")]
    Encodings(String),
    /// A matrix whose errors cannot be fed back.
    #[error("{what}: the second moments of its operand are not positive definite")]
    NotPositive {
        /// The weight's name.
        what: String,
    },
    /// A recipe that does not exist.
    #[error("there is no recipe {0:?}; there are 16a4w, 16a8w, 8a8w, 8da4w and none")]
    Recipe(String),
}

impl From<QuantizeError> for Error {
    fn from(error: QuantizeError) -> Self {
        let status = match error {
            QuantizeError::Operation { .. } => Status::NotSupported,
            _ => Status::InvalidArgument,
        };
        Error::from_source(status, error)
    }
}
