//! A report loses nothing in JSON, and its page is well-formed, whole and harmless whatever names it holds.

use super::*;

fn report() -> Report {
    Report {
        output: Some(Written {
            path: "out/a<b>&\"c\".pte".into(),
            bytes: 1_500_000,
            parts: vec![("constants".into(), 1_000_000), ("program".into(), 500_000)],
        }),
        beside: vec!["out/tokenizer.json".into()],
        tokenizer: Some("out/tokenizer.json".into()),
        facts: vec![("Model", "llama\u{1}, <script>alert(1)</script>".into())],
        methods: vec![Method { name: "kv_forward".into(), nodes: 120, delegates: 3 }],
        passes: vec!["constant-fold", "dead-code"],
        layers: vec![
            Layer { name: "layers.0.attention.query".into(), sqnr_db: 40.0 },
            Layer { name: "layers.0.feed_forward.down".into(), sqnr_db: 10.0 },
            Layer { name: "exact".into(), sqnr_db: f64::INFINITY },
            Layer { name: "noise".into(), sqnr_db: -3.0 },
        ],
        perplexity: Some(Perplexity { float: 20.0, quantized: 22.0, tokens: 99 }),
        timings: vec![(Stage::Open, Duration::from_millis(250)), (Stage::Save, Duration::from_millis(750))],
        peak_memory: Some(42_000_000),
    }
}

/// The tags of a document that is well-formed XML but for its first line; panics on one that is not.
fn well_formed(page: &str) -> Vec<String> {
    let body = page.strip_prefix("<!DOCTYPE html>\n").expect("an HTML page");
    let (mut open, mut seen, mut rest) = (Vec::new(), Vec::new(), body);
    while let Some(at) = rest.find('<') {
        let end = rest[at..].find('>').expect("every tag is closed") + at;
        let tag = &rest[at + 1..end];
        let name = tag.trim_matches('/').split([' ', '\n']).next().unwrap().to_owned();
        assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
        if tag.starts_with('/') {
            assert_eq!(open.pop().as_ref(), Some(&name), "tags are closed in order");
        } else if !tag.ends_with('/') {
            open.push(name.clone());
        }
        seen.push(name);
        rest = &rest[end + 1..];
    }
    assert!(open.is_empty(), "left open: {open:?}");
    for (at, _) in body.match_indices('&') {
        let entity = body[at + 1..].split(';').next().unwrap();
        assert!(["amp", "lt", "gt", "quot"].contains(&entity), "{entity}");
    }
    seen
}

#[test]
fn the_page_is_well_formed_and_fetches_nothing() {
    let page = report().to_html();
    let tags = well_formed(&page);
    assert_eq!(tags.iter().filter(|tag| *tag == "svg").count(), 2 * 3, "three plots");
    assert!(!tags.iter().any(|tag| ["script", "link", "img", "iframe"].contains(&tag.as_str())));
    for outside in ["src=", "href=", "url(", "@import"] {
        assert!(!page.contains(outside), "{outside}");
    }
    assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;") && !page.contains('\u{1}'));
}

#[test]
fn the_page_shows_every_figure() {
    let page = report().to_html();
    for figure in ["40.0 dB", "10.0 dB", "inf dB", "-3.0 dB", "22.000 (1.100 times)", "20.000 over 99 tokens"] {
        assert!(page.contains(figure), "{figure}");
    }
    for figure in ["1.50 MB", "1.00 MB", "0.25 s", "0.75 s", "1.00 s", "42.00 MB", "120 nodes, 3 delegates"] {
        assert!(page.contains(figure), "{figure}");
    }
    assert!(page.contains("constant-fold, dead-code"));
}

#[test]
fn bars_are_as_long_as_their_values_and_never_negative() {
    let page = report().to_html();
    let widths: Vec<f64> = page
        .match_indices(" width=\"")
        .map(|(at, key)| page[at + key.len()..].split('"').next().unwrap())
        .map(|width| width.parse().unwrap())
        .collect();
    assert_eq!(widths[..4], [370.0, 92.5, 0.0, 0.0]);
}

#[test]
fn an_empty_report_is_a_page_too() {
    let tags = well_formed(&Report::default().to_html());
    assert!(!tags.contains(&"svg".to_owned()));
    assert_eq!(Report::default().to_json()["output"], serde_json::Value::Null);
}

#[test]
fn json_holds_every_figure_and_parses_back() {
    let text = report().to_json().to_string();
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["output"]["path"], "out/a<b>&\"c\".pte");
    assert_eq!(value["output"]["bytes"], 1_500_000);
    assert_eq!(value["output"]["parts"]["constants"], 1_000_000);
    assert_eq!(value["beside"][0], "out/tokenizer.json");
    assert_eq!(value["tokenizer"], "out/tokenizer.json");
    assert_eq!(value["methods"][0]["delegates"], 3);
    assert_eq!(value["passes"][1], "dead-code");
    assert_eq!(value["layers"][1]["sqnr_db"], 10.0);
    assert_eq!(value["perplexity"]["quantized"], 22.0);
    assert_eq!(value["seconds"]["save"], 0.75);
    assert_eq!(value["elapsed_seconds"], 1.0);
    assert_eq!(value["peak_memory_bytes"], 42_000_000);
    assert!(value["layers"][2]["sqnr_db"].is_null(), "JSON has no infinity");
}
