//! The profile of a run as a Chrome trace (`chrome://tracing`, Perfetto): a JSON object with
//!
//! * `displayTimeUnit`: `"ms"`,
//! * `traceEvents`: one object a piece of work, in the order in which they ended, with `name` (method, operator or
//!   backend), `cat` (`method`, `operator` or `delegate`), `ph` (`"X"`: complete), `ts` and `dur` (begin, counted from the
//!   start of the recording, and length; microseconds with a fraction), `pid` and `tid` (1), and `args` with `method` and,
//!   where it is an instruction of the program, `instruction`,
//! * `otherData`: `dropped`, how many further pieces of work did not fit.

use llama_runner::runtime::{Profile, ProfileEvent, ProfileKind};
use serde_json::{Value, json};
use std::time::Duration;

/// The file's text.
pub fn chrome_trace(profile: &Profile) -> String {
    let events: Vec<Value> = profile.events.iter().map(event).collect();
    let trace = json!({
        "displayTimeUnit": "ms",
        "traceEvents": events,
        "otherData": { "dropped": profile.dropped },
    });
    format!("{trace}\n")
}

fn event(event: &ProfileEvent) -> Value {
    let category = match event.kind {
        ProfileKind::Method => "method",
        ProfileKind::Operator => "operator",
        ProfileKind::Delegate => "delegate",
    };
    let mut args = json!({ "method": &*event.method });
    if let Some(instruction) = event.instruction {
        args["instruction"] = instruction.into();
    }
    json!({
        "name": &*event.name,
        "cat": category,
        "ph": "X",
        "ts": microseconds(event.start),
        "dur": microseconds(event.duration),
        "pid": 1,
        "tid": 1,
        "args": args,
    })
}

fn microseconds(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_what_chrome_reads() {
        let at = |start, duration, kind, name: &str, instruction| ProfileEvent {
            kind,
            name: name.into(),
            method: "forward".into(),
            instruction,
            start: Duration::from_nanos(start),
            duration: Duration::from_nanos(duration),
        };
        let events = vec![
            at(1_500, 250, ProfileKind::Operator, "aten::\"mul\".out", Some(7)),
            at(1_800, 4_000, ProfileKind::Delegate, "XnnpackBackend", Some(8)),
            at(1_000, 5_000, ProfileKind::Method, "forward", None),
        ];
        let text = chrome_trace(&Profile { events, dropped: 2 });
        let json: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&json["displayTimeUnit"], &json["otherData"]["dropped"]), (&json!("ms"), &json!(2)));
        assert_eq!(
            json["traceEvents"][0],
            json!({
                "name": "aten::\"mul\".out", "cat": "operator", "ph": "X", "ts": 1.5, "dur": 0.25, "pid": 1, "tid": 1,
                "args": { "method": "forward", "instruction": 7 },
            })
        );
        assert_eq!(json["traceEvents"][1]["cat"], "delegate");
        assert_eq!(json["traceEvents"][2]["args"], json!({ "method": "forward" }));
    }
}
