//! Bars as inline SVG: the report's pictures, with no script and nothing to fetch.

use std::fmt::Write;

/// One bar.
pub(super) struct Bar {
    pub label: String,
    pub value: f64,
    /// The value with its unit.
    pub text: String,
}

const LABEL: f64 = 280.0;
const WIDTH: f64 = 760.0;
const ROW: f64 = 18.0;
/// Room for the text behind the longest bar.
const TAIL: f64 = 110.0;

/// Horizontal bars from 0, the longest across the whole width; below 0, or not finite, there is only the text.
pub(super) fn bars(bars: &[Bar]) -> String {
    let most = bars.iter().map(|bar| bar.value).filter(|value| value.is_finite()).fold(0.0, f64::max);
    let height = ROW * bars.len() as f64;
    let mut svg = format!("<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" xmlns=\"http://www.w3.org/2000/svg\">\n");
    for (index, bar) in bars.iter().enumerate() {
        let top = ROW * index as f64;
        let share = if most > 0.0 && bar.value.is_finite() { (bar.value / most).max(0.0) } else { 0.0 };
        let length = share * (WIDTH - LABEL - TAIL);
        let (baseline, thickness) = (top + ROW - 5.0, ROW - 4.0);
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{baseline}\" text-anchor=\"end\">{}</text>\
             <rect x=\"{LABEL}\" y=\"{}\" width=\"{length:.1}\" height=\"{thickness}\"/>\
             <text x=\"{:.1}\" y=\"{baseline}\">{}</text>",
            LABEL - 8.0,
            escape(&bar.label),
            top + 2.0,
            LABEL + length + 6.0,
            escape(&bar.text),
        );
    }
    svg + "</svg>\n"
}

/// Text as HTML and SVG want it; what no document may hold becomes a replacement character.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            c if c.is_control() && c != '\n' => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}
