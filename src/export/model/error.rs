//! What makes a model impossible to build, judged before anything is built.

use super::super::{MethodSpec, ModelConfig, RopeScaling, WeightRole};
use crate::error::{Error, Status};
use crate::tensor::DType;

/// Largest of any size: products of three still fit, and no model comes near.
const MAX_SIZE: usize = 1 << 20;

/// Most elements of a rotary table.
const MAX_TABLE: usize = 1 << 27;

/// Why a model's graph cannot be built.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ModelError {
    /// A size that is zero or beyond any model's.
    #[error("{what} is {size}, not in 1..={MAX_SIZE}")]
    Size {
        /// Which.
        what: &'static str,
        /// What it is.
        size: usize,
    },
    /// A weight with an infinity or a NaN.
    #[error("{name} is damaged: element {element} is not finite")]
    NotFinite {
        /// Its name in the graph.
        name: String,
        /// Counted through all of its rows.
        element: usize,
    },
    /// Query heads that cannot share key-value heads evenly.
    #[error("{heads} query heads are no multiple of {kv_heads} key and value heads")]
    Heads {
        /// Query heads.
        heads: usize,
        /// Key and value heads.
        kv_heads: usize,
    },
    /// A head whose elements make no pairs.
    #[error("head_dim is {0}, which is odd: rotary embedding needs pairs")]
    OddHead(usize),
    /// A number of the norms or of rotary embedding with which nothing can be computed.
    #[error("{what} is {value}, not {wanted}")]
    Number {
        /// Which.
        what: &'static str,
        /// What it is.
        value: f32,
        /// What it should be.
        wanted: &'static str,
    },
    /// More tokens a call than the context has.
    #[error("method {method}: {tokens} tokens a call do not fit a context of {context}")]
    Context {
        /// The method.
        method: String,
        /// Tokens of a call (AR-N, or `max_seq_len`).
        tokens: usize,
        /// Columns or positions.
        context: usize,
    },
    /// A dynamic method that could take no token: its bound is one less than `max_seq_len`.
    #[error("method {method}: max_seq_len is {max_seq_len}, and has to be 2 at least")]
    NoTokens {
        /// The method.
        method: String,
        /// Most tokens of a call, plus one.
        max_seq_len: usize,
    },
    /// Token ids of a type that no runner gives.
    #[error("method {method}: tokens of {dtype}, not i32 or i64")]
    Tokens {
        /// The method.
        method: String,
        /// The type.
        dtype: DType,
    },
    /// Rotary tables beyond reason.
    #[error(
        "a context of {context} positions with heads of {head_dim} needs rotary tables of more than {MAX_TABLE} elements"
    )]
    Table {
        /// Positions.
        context: usize,
        /// Elements of a head.
        head_dim: usize,
    },
    /// A weight that the model cannot do without.
    #[error("the checkpoint has no weight for {0:?}")]
    MissingWeight(WeightRole),
    /// A weight of another shape than the configuration asks for.
    #[error("weight {name} ({role:?}) has shape {found:?}, not {wanted:?}")]
    Shape {
        /// In the checkpoint.
        name: String,
        /// What it is for.
        role: WeightRole,
        /// Its shape.
        found: Vec<usize>,
        /// The shape that the configuration asks for.
        wanted: Vec<usize>,
    },
    /// A weight that is not in reals.
    #[error("weight {name} ({role:?}) is {dtype}, not f32, f16 or bf16")]
    Type {
        /// In the checkpoint.
        name: String,
        /// What it is for.
        role: WeightRole,
        /// Its type.
        dtype: DType,
    },
}

impl From<ModelError> for Error {
    fn from(error: ModelError) -> Self {
        let status = match error {
            ModelError::Context { .. } | ModelError::NoTokens { .. } | ModelError::Tokens { .. } => {
                Status::InvalidArgument
            }
            _ => Status::InvalidExternalData,
        };
        Error::from_source(status, error)
    }
}

pub(super) fn check_config(config: &ModelConfig) -> Result<(), ModelError> {
    let sizes = [
        ("dim", config.dim),
        ("the number of layers", config.layers),
        ("the number of heads", config.heads),
        ("the number of key and value heads", config.kv_heads),
        ("head_dim", config.head_dim),
        ("the width of the feed-forward block", config.hidden),
        ("the vocabulary", config.vocab),
    ];
    sizes.into_iter().try_for_each(check_size)?;
    let (heads, kv_heads) = (config.heads, config.kv_heads);
    if !heads.is_multiple_of(kv_heads) {
        return Err(ModelError::Heads { heads, kv_heads });
    }
    if !config.head_dim.is_multiple_of(2) {
        return Err(ModelError::OddHead(config.head_dim));
    }
    let positive = "a positive number";
    check_number("norm_epsilon", config.norm_epsilon, config.norm_epsilon >= 0.0, "0 or more")?;
    check_number("rope theta", config.rope.theta, config.rope.theta > 0.0, positive)?;
    match config.rope.scaling {
        RopeScaling::None => Ok(()),
        RopeScaling::Linear { factor } => check_number("rope factor", factor, factor > 0.0, positive),
        RopeScaling::Llama3(scaling) => {
            check_number("rope factor", scaling.factor, scaling.factor > 0.0, positive)?;
            let (low, high) = (scaling.low_frequency_factor, scaling.high_frequency_factor);
            check_number("low_freq_factor", low, low > 0.0, positive)?;
            check_number("high_freq_factor", high, high > low, "more than low_freq_factor")?;
            check_size(("the context before rope scaling", scaling.original_context))
        }
    }
}

fn check_size((what, size): (&'static str, usize)) -> Result<(), ModelError> {
    if (1..=MAX_SIZE).contains(&size) { Ok(()) } else { Err(ModelError::Size { what, size }) }
}

fn check_number(what: &'static str, value: f32, fits: bool, wanted: &'static str) -> Result<(), ModelError> {
    if fits && value.is_finite() { Ok(()) } else { Err(ModelError::Number { what, value, wanted }) }
}

pub(super) fn check_spec(spec: &MethodSpec) -> Result<(), ModelError> {
    let method = spec.name().to_owned();
    let (tokens, context) = match *spec {
        MethodSpec::Static { tokens, .. } if !matches!(tokens, DType::I32 | DType::I64) => {
            return Err(ModelError::Tokens { method, dtype: tokens });
        }
        MethodSpec::Static { ar, context, .. } => (ar, context),
        MethodSpec::Dynamic { max_seq_len, .. } if max_seq_len < 2 => {
            return Err(ModelError::NoTokens { method, max_seq_len });
        }
        MethodSpec::Dynamic { max_seq_len, max_context_len, .. } => (max_seq_len, max_context_len),
    };
    check_size(("the number of tokens a call", tokens))?;
    check_size(("the context", context))?;
    if tokens > context {
        return Err(ModelError::Context { method, tokens, context });
    }
    Ok(())
}

/// Rotary tables for `context` positions are of bearable size.
pub(super) fn check_table(config: &ModelConfig, context: usize) -> Result<(), ModelError> {
    let head_dim = config.head_dim;
    let fits = context.checked_mul(head_dim / 2).is_some_and(|count| count <= MAX_TABLE);
    if fits { Ok(()) } else { Err(ModelError::Table { context, head_dim }) }
}
