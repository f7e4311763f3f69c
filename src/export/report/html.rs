//! The report for people.

use super::plot::{Bar, bars, escape};
use super::{Perplexity, Report};
use std::fmt::Write;

const STYLE: &str = "body{font:14px/1.5 system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em;color:#222}\
table{border-collapse:collapse}td,th{padding:.15em 1em .15em 0;text-align:left;vertical-align:top}\
svg{width:100%;font:12px system-ui,sans-serif}rect{fill:#3b73af}";

pub(super) fn page(report: &Report) -> String {
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n<title>llr export</title>\n\
         <style>{STYLE}</style>\n</head>\n<body>\n<h1>llr export</h1>\n"
    );
    table(&mut page, &summary(report));
    section(&mut page, "Signal to quantization noise by layer", layers(report));
    section(&mut page, "Size", sizes(report));
    section(&mut page, "Time", times(report));
    if !report.methods.is_empty() {
        page.push_str("<h2>Methods</h2>\n");
        let what = |method: &super::Method| format!("{} nodes, {} delegates", method.nodes, method.delegates);
        let rows = report.methods.iter().map(|method| (method.name.as_str(), what(method)));
        table(&mut page, &rows.collect::<Vec<_>>());
    }
    if !report.passes.is_empty() {
        let _ = writeln!(page, "<h2>Passes</h2>\n<p>{}</p>", escape(&report.passes.join(", ")));
    }
    page + "</body>\n</html>\n"
}

fn summary(report: &Report) -> Vec<(&str, String)> {
    let mut rows: Vec<(&str, String)> = Vec::new();
    if let Some(output) = &report.output {
        rows.push(("Program", format!("{}, {}", output.path.display(), megabytes(output.bytes))));
    }
    rows.extend(report.facts.iter().map(|(name, value)| (*name, value.clone())));
    if let Some(Perplexity { float, quantized, tokens }) = report.perplexity {
        rows.push(("Perplexity, float", format!("{float:.3} over {tokens} tokens")));
        rows.push(("Perplexity, quantized", format!("{quantized:.3} ({:.3} times)", quantized / float)));
    }
    rows.push(("Time", format!("{:.2} s", report.elapsed().as_secs_f64())));
    rows.extend(report.peak_memory.map(|bytes| ("Peak memory", megabytes(bytes))));
    rows
}

fn layers(report: &Report) -> Vec<Bar> {
    let bar = |layer: &super::Layer| Bar {
        label: layer.name.clone(),
        value: layer.sqnr_db,
        text: format!("{:.1} dB", layer.sqnr_db),
    };
    report.layers.iter().map(bar).collect()
}

fn sizes(report: &Report) -> Vec<Bar> {
    let parts = report.output.iter().flat_map(|output| &output.parts);
    parts.map(|(name, bytes)| Bar { label: name.clone(), value: *bytes as f64, text: megabytes(*bytes) }).collect()
}

fn times(report: &Report) -> Vec<Bar> {
    let bar = |seconds: f64, name: &str| Bar { label: name.into(), value: seconds, text: format!("{seconds:.2} s") };
    report.timings.iter().map(|(stage, time)| bar(time.as_secs_f64(), stage.name())).collect()
}

fn section(page: &mut String, title: &str, of: Vec<Bar>) {
    if !of.is_empty() {
        let _ = write!(page, "<h2>{title}</h2>\n{}", bars(&of));
    }
}

fn table(page: &mut String, rows: &[(&str, String)]) {
    page.push_str("<table>\n");
    for (name, value) in rows {
        let _ = writeln!(page, "<tr><th>{}</th><td>{}</td></tr>", escape(name), escape(value));
    }
    page.push_str("</table>\n");
}

fn megabytes(bytes: u64) -> String {
    format!("{:.2} MB", bytes as f64 / 1e6)
}
