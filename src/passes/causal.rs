//! Recognizes the additive mask that hides the future: a constant triangle, cut at the position of the first token.

use super::matching::is_plain_f32;
use crate::graph::{Before, Graph, Int, Op, ValueId};
use crate::tensor::DType;

/// An additive mask at least this low leaves nothing of a weight in f32, whatever the scores near it.
const HIDDEN: f32 = -1e30;

/// Largest table that is looked through, in elements.
const MAX_TABLE: usize = 1 << 26;

/// The position of the first token, if adding `mask [.., tokens, positions]` hides from each token exactly the
/// positions after its own.
pub(super) fn causal_start(graph: &Graph, before: &Before, mask: ValueId) -> Option<Int> {
    let mask = without_ones(graph, before, mask);
    if let Some(&[condition, shown, hidden]) = before.made_by(mask, &Op::Where) {
        let (shown, hidden) = (graph.scalar_f32(shown)?, graph.scalar_f32(hidden)?);
        let (visible, low) = match (shown == 0.0, hidden == 0.0) {
            (true, false) => (true, hidden),
            (false, true) => (false, shown),
            _ => return None,
        };
        return triangle(graph, before, condition, low, |element| match element {
            Element::Bool(set) => Some(set == visible),
            Element::Real(_) => None,
        });
    }
    let real = |low: f32| {
        triangle(graph, before, mask, low, |element| match element {
            Element::Real(0.0) => Some(true),
            Element::Real(real) if real <= low => Some(false),
            _ => None,
        })
    };
    real(f32::NEG_INFINITY).or_else(|| real(HIDDEN))
}

enum Element {
    Bool(bool),
    Real(f32),
}

/// Looks through reshapes that only add or drop axes of one.
fn without_ones(graph: &Graph, before: &Before, mut value: ValueId) -> ValueId {
    let long =
        |id: ValueId| graph.value(id).shape.iter().copied().filter(|&dim| dim != Int::Const(1)).collect::<Vec<_>>();
    while let Some(&[inner]) = before.made_by(value, &Op::Reshape)
        && long(inner) == long(value)
        && graph.value(inner).shape.len() >= 2
    {
        value = inner;
    }
    value
}

/// The start, if `value` is cut out of a constant matrix in which element `(i, j)` is visible exactly for
/// `j <= i + offset`. A finite `low` hides only what has something visible beside it, so position 0 must be visible.
fn triangle(
    graph: &Graph,
    before: &Before,
    value: ValueId,
    low: f32,
    visible: impl Fn(Element) -> Option<bool>,
) -> Option<Int> {
    let mut table = without_ones(graph, before, value);
    let mut start = None;
    while let Some(node) = before.producer(table) {
        let Op::Slice { axis, start: first, step: 1 } = node.op else { return None };
        let rank = graph.value(table).shape.len();
        match rank - axis {
            2 if start.is_none() => start = Some(first),
            1 if first == Int::Const(0) => {}
            _ => return None,
        }
        table = without_ones(graph, before, node.inputs[0]);
    }
    let offset = triangle_offset(graph, table, visible)?;
    let start = match start {
        None => Int::Const(offset),
        Some(Int::Const(start)) => Int::Const(start.checked_add(offset)?),
        Some(symbol) => Some(symbol).filter(|_| offset == 0)?,
    };
    let hides_enough = low == f32::NEG_INFINITY || (low <= HIDDEN && graph.bounds(start).0 >= 0);
    hides_enough.then_some(start)
}

fn triangle_offset(graph: &Graph, table: ValueId, visible: impl Fn(Element) -> Option<bool>) -> Option<i64> {
    let value = graph.value(table);
    let shape = graph.max_shape(table);
    let (&columns, leading) = shape.split_last()?;
    let (&rows, ones) = leading.split_last()?;
    let known_type = value.dtype == DType::Bool || is_plain_f32(graph, table);
    if !known_type || ones.iter().any(|&dim| dim != 1) || columns == 0 || rows * columns > MAX_TABLE {
        return None;
    }
    let data = graph.constant(table)?;
    let element = |index: usize| match value.dtype {
        DType::Bool => data.get(index).map(|&byte| Element::Bool(byte != 0)),
        _ => data
            .get(4 * index..4 * index + 4)
            .map(|bytes| Element::Real(f32::from_le_bytes(bytes.try_into().unwrap_or_default()))),
    };
    let mut first = 0;
    while first < columns && visible(element(first)?)? {
        first += 1;
    }
    // A first row that sees everything says nothing of where the others end.
    let offset = first as i64 - 1;
    if first == columns && rows > 1 {
        return None;
    }
    for index in 0..rows * columns {
        let (row, column) = (index / columns, index % columns);
        if visible(element(index)?)? != (column as i64 <= row as i64 + offset) {
            return None;
        }
    }
    Some(offset)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::storage::Blob;
    use crate::graph::SymbolSource;
    use crate::graph::testing::{dims, f32_blob};

    /// A bool or real table, cut at `start` to `rows`, as a mask; hidden places hold `low`.
    fn start_of(table: &[&str], start: Option<Int>, rows: usize, low: f32) -> Option<Int> {
        let mut graph = Graph::new("g");
        graph.symbol("start", SymbolSource::InputItem { input: 0, index: 0 }, 0, 3);
        graph.add_input("start", DType::I64, dims(&[1]));
        let shape = [table.len(), table[0].len()];
        let seen: Vec<u8> = table.iter().flat_map(|row| row.bytes().map(|byte| u8::from(byte == b'x'))).collect();
        let real: Vec<f32> = seen.iter().map(|&seen| if seen == 1 { 0.0 } else { low }).collect();
        let boolean = graph.add_constant("table", DType::Bool, &shape, None, Blob::from_vec(seen));
        let real = graph.add_constant("table", DType::F32, &shape, None, f32_blob(&real));
        let cut = dims(&[rows, shape[1]]);
        let mut slice = |table, dtype| match start {
            Some(start) => graph.emit("n", Op::Slice { axis: 0, start, step: 1 }, &[table], dtype, cut.clone()),
            None => table,
        };
        let [condition, real] = [slice(boolean, DType::Bool), slice(real, DType::F32)];
        let [zero, hidden] = [0.0, low].map(|value| graph.add_scalar_f32("s", value));
        let chosen = graph.emit("n", Op::Where, &[condition, zero, hidden], DType::F32, cut.clone());
        let unsqueezed = dims(&[1, 1, rows, shape[1]]);
        let mask = graph.emit("n", Op::Reshape, &[chosen], DType::F32, unsqueezed);
        let before = Before::of(&graph);
        let found = causal_start(&graph, &before, mask);
        assert_eq!(causal_start(&graph, &before, real), found, "as bool and as real");
        found
    }

    const TRIANGLE: [&str; 4] = ["x...", "xx..", "xxx.", "xxxx"];
    const LOW: f32 = f32::NEG_INFINITY;

    #[test]
    fn a_triangle_is_causal_from_where_it_is_cut() {
        let symbol = Int::Symbol(crate::graph::SymbolId(0));
        assert_eq!(start_of(&TRIANGLE, Some(symbol), 2, LOW), Some(symbol));
        assert_eq!(start_of(&TRIANGLE, Some(Int::Const(2)), 2, LOW), Some(Int::Const(2)));
        assert_eq!(start_of(&TRIANGLE, None, 4, LOW), Some(Int::Const(0)));
        assert_eq!(start_of(&["xx..", "xxx."], None, 2, LOW), Some(Int::Const(1)));
        assert_eq!(start_of(&["...", "x..", "xx."], None, 3, LOW), Some(Int::Const(-1)));
        assert_eq!(start_of(&TRIANGLE, Some(symbol), 2, -1e31), Some(symbol));
    }

    #[test]
    fn anything_else_is_not() {
        let symbol = Int::Symbol(crate::graph::SymbolId(0));
        for table in [
            ["x...", "xx..", "xxx.", "xx.x"],
            ["xxxx"; 4],
            ["....", ".x..", "xxx.", "xxxx"],
            ["x...", "x...", "xxx.", "xxxx"],
        ] {
            assert_eq!(start_of(&table, Some(symbol), 2, LOW), None, "{table:?}");
        }
        assert_eq!(start_of(&["xx..", "xxx.", "xxxx", "xxxx"], Some(symbol), 2, LOW), None, "the cut is off by one");
        assert_eq!(start_of(&TRIANGLE, Some(symbol), 2, -1e9), None, "a score may outweigh it");
        assert_eq!(start_of(&["...", "x..", "xx."], None, 3, -1e31), None, "its first row would be even, not zero");
    }
}
