//! Times and counts of a turn, with the names of ExecuTorch's `stats.h`.

use std::time::{SystemTime, UNIX_EPOCH};

/// Milliseconds since the Unix epoch where a point in time, else milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Loading began.
    pub model_load_start_ms: i64,
    /// Loading ended.
    pub model_load_end_ms: i64,
    /// The turn began.
    pub inference_start_ms: i64,
    /// The prompt was processed.
    pub prompt_eval_end_ms: i64,
    /// The first token was there.
    pub first_token_ms: i64,
    /// The turn ended.
    pub inference_end_ms: i64,
    /// Time spent choosing tokens.
    pub aggregate_sampling_time_ms: i64,
    /// Time spent inside the module. Upstream's QNN runner always says 0 here.
    pub aggregate_model_execution_time_ms: i64,
    /// Prompt tokens of the turn.
    pub num_prompt_tokens: i64,
    /// Tokens made by decode steps; the one made by the prefill is not counted, as upstream.
    pub num_generated_tokens: i64,
}

/// Now, in milliseconds since the Unix epoch.
pub(crate) fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64)
}
