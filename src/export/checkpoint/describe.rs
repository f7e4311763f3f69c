//! What every description of a model must satisfy, whichever file it comes from.

use super::error::CheckpointError;
use crate::export::{ModelConfig, RopeScaling};

const MAX_LAYERS: usize = 1024;
const MAX_WIDTH: usize = 1 << 20;
const MAX_VOCAB: usize = 1 << 24;

/// Refuses a description with numbers that cannot be; `file` is where it stands.
pub(super) fn check(config: &ModelConfig, file: &str) -> Result<(), CheckpointError> {
    let refuse = |field: &str, value: String, expected| {
        Err(CheckpointError::Field { file: file.into(), field: field.into(), value, expected })
    };
    let query = config.heads.saturating_mul(config.head_dim);
    for (field, value, limit, expected) in [
        ("the number of layers", config.layers, MAX_LAYERS, "1 to 1024"),
        ("the model's width", config.dim, MAX_WIDTH, "1 to 1048576"),
        ("the feed-forward width", config.hidden, MAX_WIDTH, "1 to 1048576"),
        ("the vocabulary", config.vocab, MAX_VOCAB, "1 to 16777216"),
        ("the number of heads", config.heads, MAX_WIDTH, "1 to 1048576"),
        ("the number of key and value heads", config.kv_heads, MAX_WIDTH, "1 to 1048576"),
        ("heads times head size", query, MAX_WIDTH, "1 to 1048576"),
    ] {
        if value == 0 || value > limit {
            return refuse(field, value.to_string(), expected);
        }
    }
    if !config.heads.is_multiple_of(config.kv_heads) {
        return refuse("the number of key and value heads", config.kv_heads.to_string(), "a divisor of the heads");
    }
    if !config.head_dim.is_multiple_of(2) {
        return refuse("the head size", config.head_dim.to_string(), "even, for the rotary embedding");
    }
    let epsilon = config.norm_epsilon;
    if !(epsilon > 0.0 && epsilon < 1.0) {
        return refuse("the norm's epsilon", epsilon.to_string(), "between 0 and 1");
    }
    let theta = config.rope.theta;
    if !(theta.is_finite() && theta > 1.0) {
        return refuse("rope theta", theta.to_string(), "above 1");
    }
    let sound = match config.rope.scaling {
        RopeScaling::None => true,
        RopeScaling::Linear { factor } => factor.is_finite() && factor >= 1.0,
        RopeScaling::Llama3(llama3) => {
            let (low, high) = (llama3.low_frequency_factor, llama3.high_frequency_factor);
            let factor = llama3.factor.is_finite() && llama3.factor >= 1.0;
            factor && low > 0.0 && low < high && high.is_finite() && llama3.original_context > 0
        }
    };
    if !sound {
        let expected = "a factor of at least 1, and frequency factors that rise";
        return refuse("rope scaling", format!("{:?}", config.rope.scaling), expected);
    }
    Ok(())
}
