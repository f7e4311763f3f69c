//! Rotary embedding as one node, from each of the ways in which exports spell it: pairs `(re, im)` rotated apart and
//! joined again, or `x * cos + rotate_half(x) * sin` with tables whose halves are equal.

use super::Pass;
use super::matching::{is_plain_f32, orders, products, unary};
use crate::base::storage::Blob;
use crate::error::Result;
use crate::graph::{Before, BinaryOp, Graph, Int, Node, Op, Replacement, RotaryStyle, UnaryOp, ValueId};
use crate::tensor::DType;
use std::collections::HashMap;

/// See the module.
pub struct FuseRotary;

impl Pass for FuseRotary {
    fn name(&self) -> &'static str {
        "fuse-rotary"
    }

    fn after(&self) -> &'static [&'static str] {
        &["simplify"]
    }

    fn run(&self, graph: &mut Graph) -> Result<usize> {
        let mut halves = HashMap::new();
        let count = graph.rewrite(|graph, before, id| {
            let root = &before.nodes()[id];
            let found = match root.op {
                Op::Concat { axis } => joined_pairs(graph, before, root, axis),
                Op::Binary(BinaryOp::Add) => rotated_half(graph, before, root),
                _ => None,
            }?;
            replace(graph, before, root, found, &mut halves)
        });
        graph.remove_dead_nodes();
        Ok(count)
    }
}

/// A rotation that was recognized.
struct Found {
    /// `[batch, tokens, heads, d]` or `[batch, heads, tokens, d]`, or the same with the last axis in pairs.
    x: ValueId,
    /// Shape of `x` before it was taken apart.
    shape: [Int; 4],
    style: RotaryStyle,
    /// Cosines and sines as they were broadcast over `x`.
    tables: [ValueId; 2],
    /// The tables have `d` columns, of which the second half repeats the first.
    doubled: bool,
}

fn replace(
    graph: &mut Graph,
    before: &Before,
    root: &Node,
    found: Found,
    halves: &mut HashMap<ValueId, ValueId>,
) -> Option<Vec<Node>> {
    let Found { x, shape: [batch, second, third, d], style, tables, doubled } = found;
    let Int::Const(size) = d else { return None };
    let columns = if doubled { size } else { size / 2 };
    let head_major = tables
        .map(|table| token_axis(&graph.value(table).shape, [second, third], columns))
        .map(|axis| axis.map(|axis| axis == 2));
    let head_major = head_major[0].filter(|_| head_major[0] == head_major[1])?;
    let (tokens, heads) = if head_major { (third, second) } else { (second, third) };
    let half = [tokens, Int::Const(size / 2)];
    let mut replacement = Replacement::new();
    let mut parts = Vec::new();
    for table in tables {
        parts.push(if doubled {
            half_table(graph, before, &mut replacement, root, table, half, halves)?
        } else {
            replacement.emit(graph, root, Op::Reshape, &[table], half.to_vec())
        });
    }
    let mut x = replacement.emit(graph, root, Op::Reshape, &[x], vec![batch, second, third, d]);
    let token_major = vec![batch, tokens, heads, d];
    let swap = || Op::Permute { perm: vec![0, 2, 1, 3] };
    if head_major {
        x = replacement.emit(graph, root, swap(), &[x], token_major.clone());
    }
    let inputs = [x, parts[0], parts[1]];
    let mut rotated = replacement.emit(graph, root, Op::Rotary { style }, &inputs, token_major);
    if head_major {
        rotated = replacement.emit(graph, root, swap(), &[rotated], vec![batch, second, third, d]);
    }
    Some(replacement.finish(root, Op::Reshape, &[rotated]))
}

/// Which axis of a rank-4 value a table of `columns` runs along with its rows: 1 or 2. It must not vary along others.
fn token_axis(table: &[Int], [second, third]: [Int; 2], columns: i64) -> Option<usize> {
    let mut aligned = [Int::Const(1); 4];
    aligned.get_mut(4usize.checked_sub(table.len())?..)?.copy_from_slice(table);
    let one = Int::Const(1);
    match aligned {
        [batch, rows, across, last] if batch == one && last == Int::Const(columns) => {
            if across == one && rows == second { Some(1) } else { (rows == one && across == third).then_some(2) }
        }
        _ => None,
    }
}

/// The rows of the first half of the columns of a table that is cut out of a constant.
fn half_table(
    graph: &mut Graph,
    before: &Before,
    replacement: &mut Replacement,
    root: &Node,
    table: ValueId,
    half: [Int; 2],
    halves: &mut HashMap<ValueId, ValueId>,
) -> Option<ValueId> {
    let rows = before.made_by(table, &Op::Reshape).map_or(table, |inputs| inputs[0]);
    let (constant, start) = match before.producer(rows) {
        Some(Node { op: Op::Slice { axis: 0, start, step: 1 }, inputs, .. }) => (inputs[0], *start),
        Some(_) => return None,
        None => (rows, Int::Const(0)),
    };
    let data = graph.constant(constant).filter(|_| is_plain_f32(graph, constant))?;
    let &[Int::Const(count), Int::Const(columns)] = &graph.value(constant).shape[..] else { return None };
    let known = match halves.get(&constant) {
        Some(&known) => known,
        None => {
            let row_bytes = usize::try_from(columns).ok().filter(|&columns| columns > 0)? * 4;
            let split = data.chunks_exact(row_bytes).map(|row| row.split_at(row_bytes / 2));
            let mut first = Vec::with_capacity(data.len() / 2);
            for (left, right) in split {
                if left != right {
                    return None;
                }
                first.extend_from_slice(left);
            }
            let name = format!("{}, first half", graph.value(constant).name);
            let shape = [usize::try_from(count).ok()?, row_bytes / 8];
            let id = graph.add_constant(name, DType::F32, &shape, None, Blob::from_vec(first));
            halves.insert(constant, id);
            id
        }
    };
    Some(replacement.emit(graph, root, Op::Slice { axis: 0, start, step: 1 }, &[known], half.to_vec()))
}

/// `concat(re * cos - im * sin, re * sin + im * cos)`.
fn joined_pairs(graph: &Graph, before: &Before, root: &Node, axis: usize) -> Option<Found> {
    let &[first, second] = &root.inputs[..] else { return None };
    let joined = &graph.value(root.outputs[0]).shape;
    let (first, second, in_pairs) = match (joined.len(), axis) {
        (5, 4) => {
            let ends_in_one = |id: ValueId| graph.value(id).shape.last() == Some(&Int::Const(1));
            let squeezed = |id| before.made_by(id, &Op::Reshape).map(|inputs| inputs[0]).filter(|_| ends_in_one(id));
            (squeezed(first)?, squeezed(second)?, true)
        }
        (4, 3) => (first, second, false),
        _ => return None,
    };
    let &[minuend, subtrahend] = before.made_by(first, &Op::Binary(BinaryOp::Subtract))? else { return None };
    let sum = before.made_by(second, &Op::Binary(BinaryOp::Add))?;
    for (re, cos) in products(before, minuend) {
        for (im, sin) in products(before, subtrahend) {
            let crossed = orders(sum).into_iter().any(|(a, b)| {
                products(before, a).any(|pair| pair == (re, sin)) && products(before, b).any(|pair| pair == (im, cos))
            });
            if !crossed {
                continue;
            }
            if let Some((x, style)) = taken_apart(graph, before, [re, im])
                && (style == RotaryStyle::Interleaved) == in_pairs
            {
                let &[batch, second, third, half] = &graph.value(re).shape[..] else { return None };
                let Int::Const(half) = half else { return None };
                let shape = [batch, second, third, Int::Const(2 * half)];
                let fits = is_plain_f32(graph, x) && graph.value(im).shape == graph.value(re).shape;
                return fits.then_some(Found { x, shape, style, tables: [cos, sin], doubled: false });
            }
        }
    }
    None
}

/// The value whose elements `re` and `im` are, and how they are paired in it.
fn taken_apart(graph: &Graph, before: &Before, [re, im]: [ValueId; 2]) -> Option<(ValueId, RotaryStyle)> {
    let slice = |id: ValueId| match before.producer(id) {
        Some(Node { op: Op::Slice { axis, start: Int::Const(start), step }, inputs, .. }) => {
            Some((inputs[0], *axis, *start, *step))
        }
        _ => None,
    };
    let squeezed = |id: ValueId| before.made_by(id, &Op::Reshape).map(|inputs| inputs[0]);
    let size = |x: ValueId| graph.value(x).shape.last().copied();
    let rank = |x: ValueId| graph.value(x).shape.len();
    if let (Some((x, 3, 0, step)), Some((same, 3, start, other_step))) = (slice(re), slice(im)) {
        let Some(Int::Const(d)) = size(x) else { return None };
        let fits = x == same && step == other_step && rank(x) == 4 && size(re) == Some(Int::Const(d / 2)) && d % 2 == 0;
        return match (step, start) {
            (2, 1) if fits => Some((x, RotaryStyle::Interleaved)),
            (1, start) if fits && start == d / 2 => Some((x, RotaryStyle::Half)),
            _ => None,
        };
    }
    let (x, axis, start, _) = slice(squeezed(re)?)?;
    let (same, other_axis, other_start, _) = slice(squeezed(im)?)?;
    let fits = x == same && (axis, other_axis) == (4, 4) && (start, other_start) == (0, 1);
    let fits =
        fits && rank(x) == 5 && size(x) == Some(Int::Const(2)) && graph.value(x).shape[..4] == graph.value(re).shape;
    fits.then_some((x, RotaryStyle::Interleaved))
}

/// `x * cos + concat(-second half of x, first half of x) * sin`.
fn rotated_half(graph: &Graph, before: &Before, root: &Node) -> Option<Found> {
    let &[batch, second, third, Int::Const(d)] = &graph.value(root.outputs[0]).shape[..] else { return None };
    let half = |id: ValueId, at: i64| match before.producer(id) {
        Some(Node { op: Op::Slice { axis: 3, start: Int::Const(start), step: 1 }, inputs, outputs, .. }) => {
            let is_half = graph.value(outputs[0]).shape.last() == Some(&Int::Const(d / 2));
            (*start == at && is_half && d % 2 == 0).then_some(inputs[0])
        }
        _ => None,
    };
    for (straight, turned) in orders(&root.inputs) {
        for (rotated, sin) in products(before, turned) {
            let Some(&[negative, first]) = before.made_by(rotated, &Op::Concat { axis: 3 }) else { continue };
            let Some(x) = half(first, 0) else { continue };
            let negated = unary(before, negative, UnaryOp::Negate).and_then(|id| half(id, d / 2));
            let cos = products(before, straight).find(|&(same, _)| same == x).map(|(_, cos)| cos);
            if let Some(cos) = cos.filter(|_| negated == Some(x) && is_plain_f32(graph, x)) {
                let shape = [batch, second, third, Int::Const(d)];
                let fits = graph.value(x).shape == shape;
                return fits.then_some(Found { x, shape, style: RotaryStyle::Half, tables: [cos, sin], doubled: true });
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::{DeadCode, simplify::Simplify};
    use super::*;
    use crate::graph::interpret::{Interpreter, Tensor};
    use crate::graph::testing::{Llama, Rng, RotaryForm, assert_close, dims, f32_blob};

    fn fused(llama: &Llama) -> Graph {
        let mut graph = llama.build();
        let before = llama.logits(&graph);
        let passes: [&dyn Pass; 4] = [&Simplify::FIRST, &FuseRotary, &Simplify::FUSED, &DeadCode];
        for pass in passes {
            let changes = pass.run(&mut graph).unwrap();
            graph.verify().unwrap();
            assert!(pass.name() != "fuse-rotary" || changes == 2 * llama.layers, "{changes} in {graph}");
        }
        assert_close(&llama.logits(&graph), &before, "rotary");
        graph
    }

    #[test]
    fn every_spelling_becomes_one_node_and_the_tables_are_sliced_once() {
        for (rotary, style) in [
            (RotaryForm::Interleaved, RotaryStyle::Interleaved),
            (RotaryForm::Strided, RotaryStyle::Interleaved),
            (RotaryForm::Halves, RotaryStyle::Half),
            (RotaryForm::RotateHalf, RotaryStyle::Half),
        ] {
            for tokens in [None, Some(3)] {
                let graph = fused(&Llama { rotary, tokens, ..Llama::default() });
                let rotaries: Vec<_> = graph.nodes.iter().filter(|n| matches!(n.op, Op::Rotary { .. })).collect();
                assert_eq!(rotaries.len(), 4);
                for node in &rotaries {
                    assert_eq!(node.op, Op::Rotary { style }, "{rotary:?}");
                    assert_eq!(node.inputs[1..], rotaries[0].inputs[1..], "{rotary:?}");
                }
                let joins = graph.nodes.iter().filter(|node| matches!(node.op, Op::Concat { .. })).count();
                assert_eq!(joins, 0, "{rotary:?}");
            }
        }
    }

    #[test]
    fn a_table_whose_halves_differ_is_left_alone() {
        let llama = Llama { rotary: RotaryForm::RotateHalf, ..Llama::default() };
        let mut graph = llama.build();
        let table = graph.values.iter_mut().find(|value| value.name == "sin").unwrap();
        let crate::graph::ValueKind::Constant(constant) = &mut table.kind else { panic!() };
        let mut bytes = constant.data.to_vec();
        bytes[0] ^= 1;
        constant.data = Blob::from_vec(bytes);
        Simplify::FIRST.run(&mut graph).unwrap();
        assert_eq!(FuseRotary.run(&mut graph).unwrap(), 0);
    }

    #[test]
    fn a_wrong_sign_is_no_rotation() {
        for rotary in [RotaryForm::Interleaved, RotaryForm::Halves, RotaryForm::RotateHalf] {
            let mut graph = Llama { rotary, layers: 1, ..Llama::default() }.build();
            for node in &mut graph.nodes {
                match node.op {
                    Op::Binary(BinaryOp::Subtract) => node.op = Op::Binary(BinaryOp::Add),
                    Op::Unary(UnaryOp::Negate) => node.op = Op::Unary(UnaryOp::Abs),
                    _ => {}
                }
            }
            Simplify::FIRST.run(&mut graph).unwrap();
            assert_eq!(FuseRotary.run(&mut graph).unwrap(), 0, "{rotary:?}");
        }
    }

    #[test]
    fn head_major_operands_are_turned() {
        let mut graph = Graph::new("g");
        let x = graph.add_input("x", DType::F32, dims(&[1, 2, 3, 4]));
        let tables = [Rng(3).reals(6), Rng(4).reals(6)]
            .map(|data| graph.add_constant("table", DType::F32, &[1, 1, 3, 2], None, f32_blob(&data)));
        let half = dims(&[1, 2, 3, 2]);
        let mut emit = |op, inputs: &[ValueId]| graph.emit("n", op, inputs, DType::F32, half.clone());
        let [re, im] = [0, 2].map(|start: usize| emit(Op::Slice { axis: 3, start: start.into(), step: 1 }, &[x]));
        let multiply = Op::Binary(BinaryOp::Multiply);
        let [rc, is, rs, ic] =
            [(re, 0), (im, 1), (re, 1), (im, 0)].map(|(x, t)| emit(multiply.clone(), &[x, tables[t]]));
        let first = emit(Op::Binary(BinaryOp::Subtract), &[rc, is]);
        let second = emit(Op::Binary(BinaryOp::Add), &[ic, rs]);
        let joined = graph.emit("n", Op::Concat { axis: 3 }, &[first, second], DType::F32, dims(&[1, 2, 3, 4]));
        graph.outputs.push(joined);
        let run = |graph: &Graph| {
            let x = Tensor::f32(&[1, 2, 3, 4], Rng(9).reals(24));
            vec![Interpreter::new(graph).unwrap().run(&[x]).unwrap()[0].reals().unwrap().to_vec()]
        };
        let before = run(&graph);
        assert_eq!(FuseRotary.run(&mut graph).unwrap(), 1);
        graph.verify().unwrap();
        assert_eq!(graph.nodes.iter().filter(|node| matches!(node.op, Op::Rotary { .. })).count(), 1);
        assert!(!graph.nodes.iter().any(|node| matches!(node.op, Op::Concat { .. })));
        assert_close(&run(&graph), &before, "head-major");
    }

    #[test]
    fn tables_are_matched_by_the_axis_they_run_along() {
        let [five, seven] = [5, 7].map(Int::Const);
        let axis = |table: &[i64]| {
            let table: Vec<Int> = table.iter().map(|&dim| Int::Const(dim)).collect();
            token_axis(&table, [five, seven], 4)
        };
        assert_eq!([axis(&[1, 5, 1, 4]), axis(&[5, 1, 4])], [Some(1); 2]);
        assert_eq!([axis(&[1, 1, 7, 4]), axis(&[7, 4])], [Some(2); 2]);
        let others: [&[i64]; 6] = [&[1, 7, 1, 4], &[1, 5, 7, 4], &[2, 5, 1, 4], &[1, 5, 1, 2], &[4], &[1, 1, 5, 1, 4]];
        assert!(others.iter().all(|table| axis(table).is_none()));
    }
}
