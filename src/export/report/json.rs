//! The report for scripts.

use super::{Report, Written};
use serde_json::{Map, Value, json};

pub(super) fn value(report: &Report) -> Value {
    let output = report.output.as_ref().map(|Written { path, bytes, parts }| {
        let parts: Map<_, _> = parts.iter().map(|(name, bytes)| (name.clone(), json!(bytes))).collect();
        json!({ "path": path.display().to_string(), "bytes": bytes, "parts": parts })
    });
    let facts: Map<_, _> = report.facts.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
    let methods = report
        .methods
        .iter()
        .map(|method| json!({ "name": method.name, "nodes": method.nodes, "delegates": method.delegates }));
    let layers = report.layers.iter().map(|layer| json!({ "name": layer.name, "sqnr_db": layer.sqnr_db }));
    let perplexity = report
        .perplexity
        .map(|found| json!({ "float": found.float, "quantized": found.quantized, "tokens": found.tokens }));
    let seconds: Map<_, _> =
        report.timings.iter().map(|(stage, time)| (stage.name().to_owned(), json!(time.as_secs_f64()))).collect();
    json!({
        "output": output,
        "beside": report.beside.iter().map(|path| path.display().to_string()).collect::<Vec<_>>(),
        "tokenizer": report.tokenizer.as_ref().map(|path| path.display().to_string()),
        "facts": facts,
        "methods": methods.collect::<Vec<_>>(),
        "passes": report.passes,
        "layers": layers.collect::<Vec<_>>(),
        "perplexity": perplexity,
        "seconds": seconds,
        "elapsed_seconds": report.elapsed().as_secs_f64(),
        "peak_memory_bytes": report.peak_memory,
    })
}
