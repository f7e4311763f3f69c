//! Times and counts of a turn, with the names of ExecuTorch's `stats.h`.

use crate::base::text::general;
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

/// Milliseconds in a second, as the report says it.
const UNITS_PER_SECOND: i64 = 1000;

impl Stats {
    /// One JSON object with the keys, order and digits of upstream's report (`PyTorchObserver`). A rate whose time is
    /// below the clock's millisecond is left out.
    pub fn report_json(&self) -> String {
        let rate = |tokens: i64, ms: i64| general(tokens as f64 / ms as f64 * UNITS_PER_SECOND as f64);
        let prefill_ms = self.prompt_eval_end_ms - self.inference_start_ms;
        let decode_ms = self.inference_end_ms - self.prompt_eval_end_ms;
        let mut fields = Vec::with_capacity(15);
        if prefill_ms > 0 {
            fields.push(("prefill_token_per_sec", rate(self.num_prompt_tokens, prefill_ms)));
        }
        if decode_ms > 0 {
            fields.push(("decode_token_per_sec", rate(self.num_generated_tokens, decode_ms)));
        }
        for (key, number) in [
            ("prompt_tokens", self.num_prompt_tokens),
            ("generated_tokens", self.num_generated_tokens),
            ("model_load_start_ms", self.model_load_start_ms),
            ("model_load_end_ms", self.model_load_end_ms),
            ("inference_start_ms", self.inference_start_ms),
            ("inference_end_ms", self.inference_end_ms),
            ("model_execution_start_ms", 0),
            ("model_execution_end_ms", 0),
            ("prompt_eval_end_ms", self.prompt_eval_end_ms),
            ("first_token_ms", self.first_token_ms),
            ("aggregate_sampling_time_ms", self.aggregate_sampling_time_ms),
            ("aggregate_model_execution_time_ms", self.aggregate_model_execution_time_ms),
            ("SCALING_FACTOR_UNITS_PER_SECOND", UNITS_PER_SECOND),
        ] {
            fields.push((key, number.to_string()));
        }
        let fields: Vec<String> = fields.iter().map(|(key, number)| format!("\"{key}\":{number}")).collect();
        format!("{{{}}}", fields.join(","))
    }
}

/// Now, in milliseconds since the Unix epoch.
pub(crate) fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64)
}
