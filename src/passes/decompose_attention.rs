//! Attention over a cache in plain operations, as exports without the custom operators have it: repeated key-value
//! heads, `softmax(scale · q·kᵀ + mask)·v` in matrices of rank 3, and writes of slices into caches.

use super::Pass;
use super::parts::Parts;
use crate::base::storage::Blob;
use crate::error::{Error, Result, Status};
use crate::graph::{BinaryOp, CacheLayout, Graph, Int, Node, Op, UnaryOp, ValueId};
use crate::tensor::DType;
use std::collections::HashMap;

/// Most elements of a causal table, one byte each.
const MAX_TABLE: i64 = 1 << 28;

/// See the module. Causal attentions of one position share a mask, cut from a table of `[positions, positions]`.
pub struct DecomposeAttention;

impl Pass for DecomposeAttention {
    fn name(&self) -> &'static str {
        "decompose-attention"
    }

    fn after(&self) -> &'static [&'static str] {
        &["fuse-attention"]
    }

    fn run(&self, graph: &mut Graph) -> Result<usize> {
        check_tables(graph)?;
        let mut masks = HashMap::new();
        Ok(graph.rewrite(|graph, before, id| {
            let root = &before.nodes()[id];
            match root.op {
                Op::CacheUpdate { layout, start } => update(graph, root, layout, start),
                Op::Attention { layout, start, scale } => {
                    attention(Parts::of(graph, root)?, &mut masks, Attention { layout, start, scale })
                }
                _ => None,
            }
        }))
    }
}

/// What [`Op::Attention`] says.
struct Attention {
    layout: CacheLayout,
    start: Int,
    scale: f32,
}

/// By first position and by sizes of tokens and positions.
type Masks = HashMap<(Int, [Int; 2]), ValueId>;

fn positions_of(graph: &Graph, cache: ValueId, layout: CacheLayout) -> Int {
    graph.value(cache).shape[if layout == CacheLayout::HeadMajor { 2 } else { 1 }]
}

fn check_tables(graph: &Graph) -> Result<()> {
    for node in &graph.nodes {
        let Op::Attention { layout, .. } = node.op else { continue };
        let positions = graph.bounds(positions_of(graph, node.inputs[1], layout)).1;
        if node.inputs.len() == 3 && positions.checked_mul(positions).is_none_or(|count| count > MAX_TABLE) {
            let why = format!("{}: a causal table of {positions} positions is too large", node.origin);
            return Err(Error::new(Status::NotSupported, why));
        }
    }
    Ok(())
}

fn update(graph: &mut Graph, root: &Node, layout: CacheLayout, start: Int) -> Option<Vec<Node>> {
    let mut parts = Parts::of(graph, root)?;
    let &[cache, new] = parts.inputs() else { return None };
    if layout == CacheLayout::PositionMajor {
        return Some(parts.finish(Op::SliceUpdate { axis: 1, start }, &[cache, new]));
    }
    let new = swap(&mut parts, "new", new);
    Some(parts.finish(Op::SliceUpdate { axis: 2, start }, &[cache, new]))
}

/// Axes 1 and 2 of four, swapped.
fn swap(parts: &mut Parts<'_>, name: &str, x: ValueId) -> ValueId {
    let mut shape = parts.shape(x);
    shape.swap(1, 2);
    parts.emit(name, Op::Permute { perm: vec![0, 2, 1, 3] }, &[x], shape)
}

fn attention(mut parts: Parts<'_>, masks: &mut Masks, attention: Attention) -> Option<Vec<Node>> {
    let &[q, k, v, ref given @ ..] = parts.inputs() else { return None };
    let &[Int::Const(batch), tokens, Int::Const(heads), d] = &parts.shape(q)[..] else { return None };
    let positions = positions_of(parts.graph, k, attention.layout);
    // A cache of unknown length has no causal table.
    if given.is_empty() && !matches!(positions, Int::Const(_)) {
        return None;
    }
    let matrices = Int::Const(batch * heads);
    let scale = parts.scalar("scale", attention.scale);
    let q = swap(&mut parts, "query.by_head", q);
    let q_shape = parts.shape(q);
    let q = parts.emit("query.scaled", Op::Binary(BinaryOp::Multiply), &[q, scale], q_shape);
    let q = parts.emit("query", Op::Reshape, &[q], vec![matrices, tokens, d]);
    let [k, v] = [("key", k), ("value", v)].map(|(name, cache)| {
        let by_head = match attention.layout {
            CacheLayout::HeadMajor => cache,
            CacheLayout::PositionMajor => swap(&mut parts, &format!("{name}.by_head"), cache),
        };
        repeated(&mut parts, name, by_head, heads)
    });
    let k = parts.emit("key.transposed", Op::Permute { perm: vec![0, 2, 1] }, &[k], vec![matrices, d, positions]);
    let product = Op::MatMul { transpose_b: false };
    let products = parts.emit("products", product.clone(), &[q, k], vec![matrices, tokens, positions]);
    let by_head = vec![Int::Const(batch), Int::Const(heads), tokens, positions];
    let scores = parts.emit("scores", Op::Reshape, &[products], by_head.clone());
    let mask = match given {
        &[mask] => mask,
        _ => causal_mask(&mut parts, masks, attention.start, [tokens, positions]),
    };
    let masked = parts.emit("masked", Op::Binary(BinaryOp::Add), &[scores, mask], by_head.clone());
    let mut weights = parts.emit("weights", Op::Softmax { axis: 3 }, &[masked], by_head.clone());
    if !given.is_empty() {
        weights = guarded(&mut parts, masked, weights);
    }
    let weights = parts.emit("weights.flat", Op::Reshape, &[weights], vec![matrices, tokens, positions]);
    let mixed = parts.emit("mixed", product, &[weights, v], vec![matrices, tokens, d]);
    let mixed =
        parts.emit("mixed.by_head", Op::Reshape, &[mixed], vec![Int::Const(batch), Int::Const(heads), tokens, d]);
    Some(parts.finish(Op::Permute { perm: vec![0, 2, 1, 3] }, &[mixed]))
}

/// `cache [batch, kv_heads, positions, d]` → `[batch * heads, positions, d]`, each head as often as queries share it.
fn repeated(parts: &mut Parts<'_>, name: &str, cache: ValueId, heads: i64) -> ValueId {
    let &[batch, kv_heads, positions, d] = &parts.shape(cache)[..] else { return cache };
    let known = |int: Int| parts.graph.bounds(int).1;
    let (batch, kv_heads) = (known(batch), known(kv_heads));
    let mut x = cache;
    if heads > kv_heads {
        let mut shape = vec![Int::Const(batch), Int::Const(kv_heads), Int::Const(1), positions, d];
        x = parts.emit(&format!("{name}.grouped"), Op::Reshape, &[x], shape.clone());
        shape[2] = Int::Const(heads / kv_heads);
        x = parts.emit(&format!("{name}.repeated"), Op::Expand, &[x], shape);
    }
    parts.emit(name, Op::Reshape, &[x], vec![Int::Const(batch * heads), positions, d])
}

/// 0 where a token sees a position, −∞ where not: `[tokens, positions]`.
fn causal_mask(parts: &mut Parts<'_>, masks: &mut Masks, start: Int, sizes: [Int; 2]) -> ValueId {
    if let Some(&mask) = masks.get(&(start, sizes)) {
        return mask;
    }
    let positions = parts.graph.bounds(sizes[1]).1.max(0) as usize;
    let data = Blob::from_vec((0..positions * positions).map(|i| u8::from(i % positions <= i / positions)).collect());
    let table = parts.name("mask.table");
    let table = parts.graph.add_constant(table, DType::Bool, &[positions, positions], None, data);
    let rows = Op::Slice { axis: 0, start, step: 1 };
    let visible = parts.emit("mask.visible", rows, &[table], sizes.to_vec());
    let [shown, hidden] = [parts.scalar("mask.shown", 0.0), parts.scalar("mask.hidden", f32::NEG_INFINITY)];
    let mask = parts.emit("mask", Op::Where, &[visible, shown, hidden], sizes.to_vec());
    masks.insert((start, sizes), mask);
    mask
}

/// Zeros instead of NaN where all of a row of `masked` is −∞.
fn guarded(parts: &mut Parts<'_>, masked: ValueId, weights: ValueId) -> ValueId {
    let shape = parts.shape(masked);
    let mut row = shape.clone();
    row[3] = Int::Const(1);
    let hidden = parts.scalar("hidden", f32::NEG_INFINITY);
    let not = || Op::Unary(UnaryOp::LogicalNot);
    let is_hidden = parts.emit("is_hidden", Op::Binary(BinaryOp::Equal), &[masked, hidden], shape.clone());
    let seen = parts.emit("seen", not(), &[is_hidden], shape.clone());
    let any = parts.emit("any_seen", Op::Any { axis: 3 }, &[seen], row.clone());
    let none = parts.emit("none_seen", not(), &[any], row);
    let zeros = parts.emit("zeros", Op::Fill { value: 0.0 }, &[], shape.clone());
    parts.emit("weights.guarded", Op::Where, &[none, zeros, weights], shape)
}
