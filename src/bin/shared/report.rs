//! The report of a turn in upstream's three forms, which people parse: the `PyTorchObserver` line on stdout, the lines on
//! stderr, and the one number of `inference_speed.txt`.

use llama_runner::base::text::general;
use llama_runner::runner::Stats;

/// Milliseconds in a second.
const UNITS_PER_SECOND: i64 = 1000;

/// `PyTorchObserver {…}` without the end of line.
pub fn observer_line(stats: &Stats) -> String {
    format!("PyTorchObserver {}", stats.report_json())
}

/// The lines on stderr, each with the origin that upstream's log names.
pub fn report_lines(stats: &Stats) -> Vec<(String, String)> {
    let total = stats.inference_end_ms - stats.inference_start_ms;
    let prefill = stats.prompt_eval_end_ms - stats.inference_start_ms;
    let decode = stats.inference_end_ms - stats.prompt_eval_end_ms;
    let (prompt, generated) = (stats.num_prompt_tokens, stats.num_generated_tokens);
    let timed = |ms: i64, tokens: i64| {
        format!("{:.6} (seconds)\t\t Rate: \t{:.6} (tokens/second)", seconds(ms), rate(tokens, ms))
    };
    [
        (175, format!("\tPrompt Tokens: {prompt}    Generated Tokens: {generated}")),
        (
            181,
            format!(
                "\tModel Load Time:\t\t{:.6} (seconds)",
                seconds(stats.model_load_end_ms - stats.model_load_start_ms)
            ),
        ),
        (191, format!("\tTotal inference time:\t\t{}", timed(total, generated))),
        (199, format!("\t\tPrompt evaluation:\t{}", timed(prefill, prompt))),
        (210, format!("\t\tGenerated {generated} tokens:\t{}", timed(decode, generated))),
        (
            218,
            format!(
                "\tTime to first generated token:\t{:.6} (seconds)",
                seconds(stats.first_token_ms - stats.inference_start_ms)
            ),
        ),
        (
            225,
            format!(
                "\tSampling time over {} tokens:\t{:.6} (seconds)",
                prompt + generated,
                seconds(stats.aggregate_sampling_time_ms)
            ),
        ),
    ]
    .into_iter()
    .map(|(line, text)| (format!("executorch:stats.h:{line}"), text))
    .collect()
}

/// What `inference_speed.txt` holds: generated tokens over the turn's whole time, prompt evaluation included; for a turn
/// without decode steps, prompt tokens over prompt evaluation. A time below the clock's millisecond counts as one, so
/// the number is always finite.
pub fn inference_speed(stats: &Stats) -> String {
    let (tokens, ms) = if stats.num_generated_tokens == 0 {
        (stats.num_prompt_tokens, stats.prompt_eval_end_ms - stats.inference_start_ms)
    } else {
        (stats.num_generated_tokens, stats.inference_end_ms - stats.inference_start_ms)
    };
    general(rate(tokens, ms.max(1)))
}

fn seconds(ms: i64) -> f64 {
    ms as f64 / UNITS_PER_SECOND as f64
}

/// Tokens per second; 0 for no time, where upstream says `inf` or `nan`.
fn rate(tokens: i64, ms: i64) -> f64 {
    if ms <= 0 { 0.0 } else { tokens as f64 / ms as f64 * UNITS_PER_SECOND as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats() -> Stats {
        Stats {
            model_load_start_ms: 1_000,
            model_load_end_ms: 1_060,
            inference_start_ms: 2_000,
            prompt_eval_end_ms: 2_459,
            first_token_ms: 2_459,
            inference_end_ms: 21_108,
            aggregate_sampling_time_ms: 1,
            aggregate_model_execution_time_ms: 0,
            num_prompt_tokens: 5,
            num_generated_tokens: 122,
        }
    }

    #[test]
    fn observer_line_has_upstreams_keys_order_and_digits() {
        assert_eq!(
            observer_line(&stats()),
            "PyTorchObserver {\"prefill_token_per_sec\":10.8932,\"decode_token_per_sec\":6.54191,\"prompt_tokens\":5,\
             \"generated_tokens\":122,\"model_load_start_ms\":1000,\"model_load_end_ms\":1060,\
             \"inference_start_ms\":2000,\"inference_end_ms\":21108,\"model_execution_start_ms\":0,\
             \"model_execution_end_ms\":0,\"prompt_eval_end_ms\":2459,\"first_token_ms\":2459,\
             \"aggregate_sampling_time_ms\":1,\"aggregate_model_execution_time_ms\":0,\
             \"SCALING_FACTOR_UNITS_PER_SECOND\":1000}"
        );
    }

    #[test]
    fn rates_without_time_are_left_out_of_the_observer_line() {
        let stats = Stats { prompt_eval_end_ms: 2_000, inference_end_ms: 2_000, ..stats() };
        assert!(observer_line(&stats).starts_with("PyTorchObserver {\"prompt_tokens\":5,"));
    }

    #[test]
    fn report_lines_as_upstream() {
        let lines = report_lines(&stats());
        let texts: Vec<&str> = lines.iter().map(|(_, text)| text.as_str()).collect();
        assert_eq!(lines[0].0, "executorch:stats.h:175");
        assert_eq!(
            texts,
            [
                "\tPrompt Tokens: 5    Generated Tokens: 122",
                "\tModel Load Time:\t\t0.060000 (seconds)",
                "\tTotal inference time:\t\t19.108000 (seconds)\t\t Rate: \t6.384760 (tokens/second)",
                "\t\tPrompt evaluation:\t0.459000 (seconds)\t\t Rate: \t10.893246 (tokens/second)",
                "\t\tGenerated 122 tokens:\t18.649000 (seconds)\t\t Rate: \t6.541906 (tokens/second)",
                "\tTime to first generated token:\t0.459000 (seconds)",
                "\tSampling time over 127 tokens:\t0.001000 (seconds)",
            ]
        );
    }

    #[test]
    fn oc4_speed_is_finite_even_when_no_time_passed() {
        assert_eq!(inference_speed(&stats()), "6.38476");
        let instant = Stats { prompt_eval_end_ms: 2_000, inference_end_ms: 2_000, ..stats() };
        assert_eq!(inference_speed(&instant), "122000");
        assert_eq!(inference_speed(&Stats { num_generated_tokens: 0, ..stats() }), "10.8932");
        assert_eq!(inference_speed(&Stats::default()), "0");
        let lines = report_lines(&Stats::default());
        assert!(lines.iter().all(|(_, text)| !text.contains("\tinf") && !text.contains("NaN")), "{lines:?}");
    }
}
