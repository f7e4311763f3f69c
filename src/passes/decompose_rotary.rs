//! Rotary embedding in plain operations: both elements of each pair are taken out, turned, and joined again. Slices have
//! step 1, which every backend has; interleaved pairs become an axis of their own for that, the fifth.

use super::Pass;
use super::parts::Parts;
use crate::error::Result;
use crate::graph::{BinaryOp, Graph, Int, Node, Op, RotaryStyle, ValueId};
use std::collections::HashMap;

/// See the module.
pub struct DecomposeRotary;

impl Pass for DecomposeRotary {
    fn name(&self) -> &'static str {
        "decompose-rotary"
    }

    fn after(&self) -> &'static [&'static str] {
        &["fuse-rotary"]
    }

    fn run(&self, graph: &mut Graph) -> Result<usize> {
        let mut tables = HashMap::new();
        Ok(graph.rewrite(|graph, before, id| decompose(graph, &before.nodes()[id], &mut tables)))
    }
}

/// Tables in the shape that broadcasts over heads; all rotations share them.
type Tables = HashMap<ValueId, ValueId>;

fn decompose(graph: &mut Graph, root: &Node, tables: &mut Tables) -> Option<Vec<Node>> {
    let Op::Rotary { style } = root.op else { return None };
    let mut parts = Parts::of(graph, root)?;
    let &[x, cos, sin] = parts.inputs() else { return None };
    let &[batch, tokens, heads, _] = &parts.shape(x)[..] else { return None };
    let half = parts.shape(cos)[1];
    let one = Int::Const(1);
    let shape = vec![batch, tokens, heads, half];
    let [cos, sin] = [("cos", cos), ("sin", sin)].map(|(name, table)| {
        let shape = vec![one, tokens, one, half];
        *tables.entry(table).or_insert_with(|| parts.emit(name, Op::Reshape, &[table], shape))
    });
    let names = ["first", "second"];
    let [first, second] = match style {
        RotaryStyle::Half => [Int::Const(0), half].map(|start| {
            let name = names[usize::from(start == half)];
            parts.emit(name, Op::Slice { axis: 3, start, step: 1 }, &[x], shape.clone())
        }),
        RotaryStyle::Interleaved => {
            let pairs = parts.emit("pairs", Op::Reshape, &[x], vec![batch, tokens, heads, half, 2.into()]);
            [0usize, 1].map(|index| {
                let slice = Op::Slice { axis: 4, start: index.into(), step: 1 };
                let column = vec![batch, tokens, heads, half, one];
                let column = parts.emit(&format!("{}.column", names[index]), slice, &[pairs], column);
                parts.emit(names[index], Op::Reshape, &[column], shape.clone())
            })
        }
    };
    let mut product = |name: &str, a, b| parts.emit(name, Op::Binary(BinaryOp::Multiply), &[a, b], shape.clone());
    let [first_cos, second_sin] = [product("first.cos", first, cos), product("second.sin", second, sin)];
    let [first_sin, second_cos] = [product("first.sin", first, sin), product("second.cos", second, cos)];
    let first = parts.emit("first.turned", Op::Binary(BinaryOp::Subtract), &[first_cos, second_sin], shape.clone());
    let second = parts.emit("second.turned", Op::Binary(BinaryOp::Add), &[first_sin, second_cos], shape);
    if style == RotaryStyle::Half {
        return Some(parts.finish(Op::Concat { axis: 3 }, &[first, second]));
    }
    let columns = [("first.pairs", first), ("second.pairs", second)]
        .map(|(name, x)| parts.emit(name, Op::Reshape, &[x], vec![batch, tokens, heads, half, one]));
    let joined = parts.emit("joined", Op::Concat { axis: 4 }, &columns, vec![batch, tokens, heads, half, 2.into()]);
    Some(parts.finish(Op::Reshape, &[joined]))
}
