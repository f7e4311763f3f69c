//! What every description of a model must satisfy, whichever file it comes from.

use super::error::CheckpointError;
use crate::export::{ModelConfig, RopeScaling};

/// Says of a field of the description what it is and should be.
type Refuse<'a> = dyn Fn(&str, String, &'static str) -> Result<(), CheckpointError> + 'a;

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
    check_scaling(config.rope.scaling, &refuse)
}

fn check_scaling(scaling: RopeScaling, refuse: &Refuse<'_>) -> Result<(), CheckpointError> {
    let factor = match scaling {
        RopeScaling::None => return Ok(()),
        RopeScaling::Linear { factor } => factor,
        RopeScaling::Llama3(llama3) => llama3.factor,
    };
    if !(factor.is_finite() && factor >= 1.0) {
        return refuse("the factor of rope scaling", factor.to_string(), "at least 1");
    }
    let RopeScaling::Llama3(llama3) = scaling else { return Ok(()) };
    let (low, high) = (llama3.low_frequency_factor, llama3.high_frequency_factor);
    if !(low > 0.0 && low < high && high.is_finite()) {
        let found = format!("{low} to {high}");
        return refuse("the range of frequency factors of rope scaling", found, "above 0, the second larger");
    }
    match llama3.original_context {
        0 => refuse("the original context of rope scaling", "0".into(), "above 0"),
        _ => Ok(()),
    }
}
