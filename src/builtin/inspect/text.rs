//! The report for people: one screen for a usual program, columns aligned, equal neighbours folded into one line.

use super::report::{Constant, Delegate, Io, Method, Qnn, QnnGraph, QnnTensor, Report};
use crate::tensor::Encoding;
use std::fmt::Write;

/// The whole text.
pub fn render(report: &Report) -> String {
    let mut out = String::new();
    header(&mut out, report);
    report.methods.iter().for_each(|method| self::method(&mut out, method));
    delegates(&mut out, &report.delegates);
    constants(&mut out, &report.constant_methods);
    out
}

/// Appends a line; writing to a `String` cannot fail.
macro_rules! line {
    ($out:expr, $($text:tt)*) => { writeln!($out, $($text)*).expect("a string takes everything") };
}

/// More segments than this are summed up; the JSON report lists them all.
const LISTED_SEGMENTS: usize = 4;

fn header(out: &mut String, report: &Report) {
    line!(out, "{}  (schema version {})", report.file, report.version);
    let mut rows: Vec<[String; 3]> = match report.segments.len() {
        0..=LISTED_SEGMENTS => report
            .segments
            .iter()
            .enumerate()
            .map(|(index, segment)| [format!("segment {index}"), bytes(segment.size), format!("at {}", segment.offset)])
            .collect(),
        count => {
            vec![[plural(count, "segment"), bytes(report.segments.iter().map(|s| s.size).sum()), String::new()]]
        }
    };
    let named = (report.named_data.len(), report.named_data.iter().map(|(_, size)| size).sum());
    for ((count, size), what) in [(report.constants, "constant"), (named, "named blob")] {
        if count > 0 {
            rows.push([plural(count, what), bytes(size), String::new()]);
        }
    }
    table(out, "  ", &rows);
}

fn method(out: &mut String, method: &Method) {
    line!(
        out,
        "\n{}  ({}, {} values, {} of planned memory)",
        method.name,
        plural(method.instructions, "instruction"),
        method.values,
        bytes(method.planned_bytes)
    );
    let mut rows = Vec::new();
    for (label, ios) in [("in", &method.inputs), ("out", &method.outputs)] {
        for (run, (first, count)) in runs(ios).into_iter().enumerate() {
            let place = match count {
                1 => first.to_string(),
                _ => format!("{first}-{}", first + count - 1),
            };
            let [kind, shape, notes] = io(&ios[first]);
            let times = if count > 1 { format!("x{count}") } else { String::new() };
            let label = if run == 0 { label } else { "" };
            rows.push([label.to_owned(), place, kind, shape, times, notes]);
        }
    }
    table(out, "  ", &rows);
    let calls = method.calls.iter().enumerate().map(|(index, (name, count))| {
        let label = if index == 0 { "calls" } else { "" };
        [label.to_owned(), name.clone(), format!("x{count}")]
    });
    table(out, "  ", &calls.collect::<Vec<_>>());
}

fn io(io: &Io) -> [String; 3] {
    match io {
        Io::Tensor { dtype, dims, dynamic, planned } => {
            let notes = [(*dynamic, "dynamic"), (*planned, "planned")];
            let notes: Vec<&str> = notes.into_iter().filter_map(|(on, note)| on.then_some(note)).collect();
            [dtype.to_string(), format!("{dims:?}"), notes.join(", ")]
        }
        Io::Other(kind) => [(*kind).to_owned(), String::new(), String::new()],
    }
}

fn delegates(out: &mut String, delegates: &[Delegate]) {
    // A library that is not there is the same reason for all of them.
    let mut said: Vec<&String> = Vec::new();
    for (delegate, qnn) in delegates.iter().filter_map(|delegate| Some((delegate, delegate.qnn.as_ref()?))) {
        qnn_delegate(out, delegate, qnn);
        match &qnn.graphs {
            Err(why) if said.contains(&why) => line!(out, "  graphs unknown, as above"),
            Err(why) => {
                line!(out, "  graphs unknown: {why}");
                said.push(why);
            }
            Ok(graphs) => graphs.iter().for_each(|graph| self::graph(out, graph)),
        }
    }
    // The blobs of other backends are many and opaque: one line a backend.
    let mut ids: Vec<&str> = Vec::new();
    for delegate in delegates.iter().filter(|delegate| delegate.qnn.is_none()) {
        if ids.contains(&delegate.id.as_str()) {
            continue;
        }
        ids.push(&delegate.id);
        let same = || delegates.iter().filter(|other| other.id == delegate.id);
        let size = same().map(|other| other.blob.size).sum();
        line!(out, "\n{}  ({}, {})", delegate.id, plural(same().count(), "blob"), bytes(size));
    }
}

fn qnn_delegate(out: &mut String, delegate: &Delegate, qnn: &Qnn) {
    let callers: Vec<String> = delegate.callers.iter().map(|(method, index)| format!("{method}[{index}]")).collect();
    let place = match delegate.segment {
        Some(segment) => format!("segment {segment}"),
        None => format!("at {}", delegate.blob.offset),
    };
    line!(out, "\n{}  ({}, {place})  {}", delegate.id, bytes(delegate.blob.size), callers.join(", "));
    let options: Vec<[String; 2]> = qnn.options.iter().map(|(key, value)| [key.clone(), value.clone()]).collect();
    table(out, "  ", &options);
}

fn graph(out: &mut String, graph: &QnnGraph) {
    line!(out, "  graph {}", graph.name);
    let groups = |label, tensors| graph_rows(label, tensors).into_iter();
    let rows: Vec<_> = groups("in", &graph.inputs).chain(groups("out", &graph.outputs)).collect();
    table(out, "    ", &rows);
}

/// One row for all tensors of a type and shape: a context binary has them in no order that a reader could use.
fn graph_rows(label: &str, tensors: &[QnnTensor]) -> Vec<[String; 6]> {
    let mut groups: Vec<Vec<&QnnTensor>> = Vec::new();
    for tensor in tensors {
        let same = |group: &&mut Vec<&QnnTensor>| (&group[0].dtype, &group[0].dims) == (&tensor.dtype, &tensor.dims);
        match groups.iter_mut().find(same) {
            Some(group) => group.push(tensor),
            None => groups.push(vec![tensor]),
        }
    }
    let row = |(index, group): (usize, &Vec<&QnnTensor>)| {
        let first = group[0];
        let (times, more) = match group.len() {
            1 => (String::new(), ""),
            count => (format!("x{count}"), ", ..."),
        };
        let label = if index == 0 { label } else { "" };
        let shape = format!("{:?}", first.dims);
        [label.to_owned(), first.dtype.clone(), shape, times, encodings(group), format!("{}{more}", first.name)]
    };
    groups.iter().enumerate().map(row).collect()
}

/// What the codes of all `tensors` stand for, with the range of their scales.
fn encodings(tensors: &[&QnnTensor]) -> String {
    let all: Vec<Encoding> = tensors.iter().filter_map(|tensor| tensor.encoding).collect();
    let (Some(first), true) = (all.first(), all.len() == tensors.len()) else { return String::new() };
    let scales = || all.iter().map(|encoding| encoding.scale);
    let (least, most) = (scales().fold(f32::INFINITY, f32::min), scales().fold(0.0, f32::max));
    let scale = if least == most { least.to_string() } else { format!("{least} to {most}") };
    match all.iter().all(|encoding| encoding.zero_point == first.zero_point) {
        true => format!("scale {scale}, zero point {}", first.zero_point),
        false => format!("scale {scale}, several zero points"),
    }
}

fn constants(out: &mut String, methods: &[(String, Vec<Constant>)]) {
    if methods.is_empty() {
        return;
    }
    line!(out, "\nconstants");
    let rows: Vec<[String; 2]> = methods
        .iter()
        .map(|(name, values)| [name.clone(), values.iter().map(constant).collect::<Vec<_>>().join(", ")])
        .collect();
    table(out, "  ", &rows);
}

fn constant(constant: &Constant) -> String {
    match constant {
        Constant::Null => "null".to_owned(),
        Constant::Int(number) => number.to_string(),
        Constant::Bool(on) => on.to_string(),
        Constant::Double(number) => number.to_string(),
        Constant::Text(text) => format!("{text:?}"),
        Constant::Ints(numbers) => format!("{numbers:?}"),
        Constant::Doubles(numbers) => format!("{numbers:?}"),
        Constant::Bools(bits) => format!("{bits:?}"),
        Constant::Tensor(dtype, dims) => format!("{dtype}{dims:?}"),
        Constant::Tensors(count) => plural(*count, "tensor"),
    }
}

/// First index and length of each run of equal neighbours.
fn runs(ios: &[Io]) -> Vec<(usize, usize)> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for (index, io) in ios.iter().enumerate() {
        match runs.last_mut() {
            Some((first, count)) if ios[*first] == *io => *count += 1,
            _ => runs.push((index, 1)),
        }
    }
    runs
}

/// Rows with their columns aligned; no blanks at a line's end, and no column that is empty throughout.
fn table<const N: usize>(out: &mut String, indent: &str, rows: &[[String; N]]) {
    let widths: [usize; N] =
        std::array::from_fn(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0));
    for row in rows {
        let cells = row.iter().zip(widths).filter(|&(_, width)| width > 0);
        let text: Vec<String> = cells.map(|(cell, width)| format!("{cell:<width$}")).collect();
        line!(out, "{}", format!("{indent}{}", text.join("  ")).trim_end());
    }
}

fn plural(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// A size in the unit that keeps it short.
fn bytes(size: u64) -> String {
    match size {
        0..10_000 => format!("{size} B"),
        10_000..10_000_000 => format!("{:.1} kB", size as f64 / 1e3),
        10_000_000..10_000_000_000 => format!("{:.1} MB", size as f64 / 1e6),
        _ => format!("{:.2} GB", size as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builtin::inspect::report::tests::report;

    #[test]
    fn a_program_on_one_screen() {
        let want = "\
model.pte  (schema version 0)
  segment 0   1024 B  at 0
  segment 1   3072 B  at 1024
  1 constant  512 B

kv_forward  (4 instructions, 4 values, 256 B of planned memory)
  in   0    i32  [1, 1]
       1-2  u8   [1, 4, 8, 127]  x2
  out  0    u16  [1, 1, 512]
  calls  QnnBackend     x1
         aten::add.out  x2
         free           x1

prefill_forward  (4 instructions, 4 values, 256 B of planned memory)
  in   0    i32  [1, 32]
       1-2  u8   [1, 4, 8, 96]  x2
  out  0    u16  [1, 32, 512]
  calls  QnnBackend     x1
         aten::add.out  x2
         free           x1

QnnBackend  (3072 B, segment 1)  kv_forward[0], prefill_forward[0]
  soc  SM8650
  htp  V75
  graph kv_forward
    in   u8   [1, 4]  x2  scale 0.25 to 0.5, zero point 128  k_0, ...
    out  u16  [1, 4]                                         logits

constants
  get_n_layers  5
  get_attr      0.25, 128, \"torch.uint8\"
";
        assert_eq!(render(&report()), want);
    }

    #[test]
    fn what_is_many_is_summed_up() {
        let mut report = report();
        let blob = report.delegates[0].blob;
        report.segments = vec![blob; 5];
        report.named_data = vec![("a".into(), 10), ("b".into(), 20)];
        let other = Delegate { id: "XnnpackBackend".into(), qnn: None, ..report.delegates[0].clone() };
        report.delegates.extend([other.clone(), other]);
        let text = render(&report);
        assert!(text.contains("\n  5 segments     15.4 kB\n  1 constant     512 B\n  2 named blobs  30 B\n"), "{text}");
        assert!(text.contains("\nXnnpackBackend  (2 blobs, 6144 B)\n"), "{text}");
    }

    #[test]
    fn a_reason_that_all_delegates_share_is_said_once() {
        let mut report = report();
        let mut unknown = report.delegates[0].clone();
        unknown.qnn.as_mut().unwrap().graphs = Err("no library".into());
        report.delegates.extend([unknown.clone(), unknown]);
        let text = render(&report);
        assert!(text.contains("  graph kv_forward\n") && text.matches("graphs unknown").count() == 2, "{text}");
        assert_eq!(text.matches("  graphs unknown: no library\n").count(), 1, "{text}");
    }

    #[test]
    fn sizes_are_short() {
        for (size, want) in [(0, "0 B"), (9_999, "9999 B"), (1_199_720, "1199.7 kB"), (94_581_632, "94.6 MB")] {
            assert_eq!(bytes(size), want);
        }
        assert_eq!(bytes(12_345_678_901), "12.35 GB");
    }
}
