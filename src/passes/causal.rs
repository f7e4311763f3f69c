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
    triangle(graph, before, mask, HIDDEN, |element| match element {
        Element::Real(0.0) => Some(true),
        Element::Real(f32::NEG_INFINITY) => Some(false),
        _ => None,
    })
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
