//! Attention out of plain operators, as exports without the custom operator have it: `softmax(scale · q·kᵀ + mask)·v`
//! with its repeated heads, its transposes and its guard becomes one node over the caches as they lie, and the writes
//! into these become cache updates.

use super::Pass;
use super::causal::causal_start;
use super::matching::{is_plain_f32, orders, scaled, unary, volume};
use super::simplify::swaps_last_two;
use crate::error::Result;
use crate::graph::{Before, BinaryOp, CacheLayout, Graph, Int, Node, NodeId, Op, Replacement, UnaryOp, ValueId};
use std::collections::HashMap;

/// See the module. A token that may see nothing gets zeros, also where the plain operators had no guard and gave NaN.
pub struct FuseAttention;

impl Pass for FuseAttention {
    fn name(&self) -> &'static str {
        "fuse-attention"
    }

    fn after(&self) -> &'static [&'static str] {
        &["simplify", "fuse-rotary"]
    }

    fn run(&self, graph: &mut Graph) -> Result<usize> {
        let before = Before::of(graph);
        let mut starts = HashMap::new();
        let mut found: HashMap<NodeId, Found> = HashMap::new();
        for id in 0..before.nodes().len() {
            if let Some(mut attention) = find(graph, &before, id) {
                let mask = attention.mask;
                let start =
                    mask.and_then(|mask| *starts.entry(mask).or_insert_with(|| causal_start(graph, &before, mask)));
                if let Some(start) = start {
                    (attention.start, attention.mask) = (start, None);
                }
                found.insert(id, attention);
            }
        }
        let caches = found.values().flat_map(|found| [(found.k, found.layout), (found.v, found.layout)]);
        let updates: HashMap<NodeId, CacheLayout> =
            caches.filter_map(|(cache, layout)| Some((before.producer_id(cache)?, layout))).collect();
        let count = graph.rewrite(|graph, before, id| {
            let root = &before.nodes()[id];
            match (found.get(&id), updates.get(&id)) {
                (Some(found), _) => replace(graph, root, found),
                (None, Some(&layout)) => update(graph, root, layout),
                (None, None) => None,
            }
        });
        graph.remove_dead_nodes();
        Ok(count)
    }
}

/// An attention that was recognized.
struct Found {
    /// `[batch × heads.., tokens, d]`.
    q: ValueId,
    k: ValueId,
    v: ValueId,
    /// Of keys and of values, in `layout`.
    cache: [Int; 4],
    layout: CacheLayout,
    scale: f32,
    start: Int,
    /// Unless it is causal.
    mask: Option<ValueId>,
    /// batch, tokens, heads, d, positions
    sizes: [Int; 5],
}

fn find(graph: &Graph, before: &Before, id: NodeId) -> Option<Found> {
    let root = &before.nodes()[id];
    let Op::MatMul { transpose_b } = root.op else { return None };
    let weights = unguarded(graph, before, same_matrices(graph, before, root.inputs[0]).value)?;
    let Node { op: Op::Softmax { axis }, inputs, .. } = before.producer(weights)? else { return None };
    let masked = inputs[0];
    let (&[tokens, positions], rank) = (graph.value(masked).shape.last_chunk()?, graph.value(masked).shape.len());
    if axis + 1 != rank || !is_plain_f32(graph, masked) {
        return None;
    }
    let sum = before.made_by(masked, &Op::Binary(BinaryOp::Add))?;
    orders(sum).into_iter().find_map(|(scores, mask)| {
        let product = same_matrices(graph, before, scores);
        let Some(Node { op: Op::MatMul { transpose_b: transpose_k }, inputs, .. }) = before.producer(product.value)
        else {
            return None;
        };
        let q = same_matrices(graph, before, inputs[0]);
        let (k, v, layout) = key_and_value(graph, before, [(inputs[1], !transpose_k), (root.inputs[1], transpose_b)])?;
        if v.scale != 1.0 || !fits_mask(graph, mask, [tokens, positions]) {
            return None;
        }
        let cache = k.shape;
        let (batch, kv_heads, cached, d) = match layout {
            CacheLayout::PositionMajor => (cache[0], cache[2], cache[1], cache[3]),
            CacheLayout::HeadMajor => (cache[0], cache[1], cache[2], cache[3]),
        };
        let Int::Const(kv_heads) = kv_heads else { return None };
        let heads = Int::Const(kv_heads.checked_mul(k.group)?);
        let (q_shape, out) = (&graph.value(q.value).shape, &graph.value(root.outputs[0]).shape);
        let leading = volume(&[batch, heads]);
        let fits = |shape: &[Int]| {
            shape.len() >= 2 && shape.ends_with(&[tokens, d]) && volume(&shape[..shape.len() - 2]) == leading
        };
        let plain = [q.value, k.value, v.value].iter().all(|&id| is_plain_f32(graph, id));
        if !plain || !fits(q_shape) || !fits(out) || cached != positions || v.shape != cache {
            return None;
        }
        Some(Found {
            q: q.value,
            k: k.value,
            v: v.value,
            cache,
            layout,
            scale: q.scale * k.scale * product.scale,
            start: Int::Const(0),
            mask: Some(mask),
            sizes: [batch, tokens, heads, d, positions],
        })
    })
}

/// The mask is the same for every head and can be broadcast to `[tokens, positions]`.
fn fits_mask(graph: &Graph, mask: ValueId, sizes: [Int; 2]) -> bool {
    let shape = &graph.value(mask).shape;
    let (leading, last) = shape.split_at(shape.len().saturating_sub(2));
    let one = Int::Const(1);
    let broadcasts = last.iter().rev().zip(sizes.iter().rev()).all(|(dim, size)| *dim == one || dim == size);
    is_plain_f32(graph, mask) && broadcasts && leading.iter().all(|&dim| dim == one)
}

/// A value behind scalings and reshapes, and the product of the factors.
struct Scaled {
    value: ValueId,
    scale: f32,
}

/// Looks through what keeps the last two axes: scalings, reshapes of the leading axes, expansions to the same shape.
fn same_matrices(graph: &Graph, before: &Before, value: ValueId) -> Scaled {
    let mut found = Scaled { value, scale: 1.0 };
    while let Some(node) = before.producer(found.value) {
        if let Some((x, factor)) = scaled(graph, node) {
            found = Scaled { value: x, scale: found.scale * factor };
        } else if keeps_matrices(graph, node) {
            found.value = node.inputs[0];
        } else {
            break;
        }
    }
    found
}

fn keeps_matrices(graph: &Graph, node: &Node) -> bool {
    let shape = |id: ValueId| &graph.value(id).shape[..];
    let shapes = || Some((shape(*node.inputs.first()?), shape(node.outputs[0])));
    match (&node.op, shapes()) {
        (Op::Expand, Some((from, to))) => from == to,
        (Op::Reshape, Some((from, to))) if from.len() >= 2 && to.len() >= 2 => {
            let ((from, rows), (to, same_rows)) = (from.split_at(from.len() - 2), to.split_at(to.len() - 2));
            rows == same_rows && volume(from) == volume(to)
        }
        _ => false,
    }
}

/// Keys or values as they lie in the cache.
struct Cached {
    value: ValueId,
    scale: f32,
    /// Query heads of one head of the cache.
    group: i64,
    position_major: bool,
    /// The shape of rank 4 to give it; most have it.
    shape: [Int; 4],
}

/// Keys and values in one layout: position-major only if both are.
fn key_and_value(graph: &Graph, before: &Before, used: [(ValueId, bool); 2]) -> Option<(Cached, Cached, CacheLayout)> {
    for (turn, layout) in [(true, CacheLayout::PositionMajor), (false, CacheLayout::HeadMajor)] {
        let [k, v] = used.map(|(value, transposed)| cached(graph, before, value, transposed, turn));
        if let (Some(k), Some(v)) = (k, v)
            && k.group == v.group
            && k.position_major == turn
            && v.position_major == turn
        {
            return Some((k, v, layout));
        }
    }
    None
}

/// Follows the matrices `[positions, d]` (`[d, positions]` if `transposed`) of every query head back to where they come
/// from; with `turn`, through the transpose of a position-major value.
fn cached(graph: &Graph, before: &Before, value: ValueId, mut transposed: bool, turn: bool) -> Option<Cached> {
    let mut found = Cached { value, scale: 1.0, group: 1, position_major: false, shape: [Int::Const(0); 4] };
    loop {
        let Scaled { value, scale } = same_matrices(graph, before, found.value);
        found.value = value;
        found.scale *= scale;
        let Some(node) = before.producer(value) else { break };
        match &node.op {
            Op::Expand if found.group == 1 => match repeats(graph, node) {
                Some(times) => found.group = times,
                None => break,
            },
            Op::Permute { perm } if swaps_last_two(perm) => transposed = !transposed,
            Op::Permute { perm } if turn && perm[..] == if transposed { [0, 2, 3, 1] } else { [0, 2, 1, 3] } => {
                (found.value, found.position_major, transposed) = (node.inputs[0], true, false);
                break;
            }
            Op::Reshape if turn && !transposed && drops_one_head(graph, node) => {
                (found.value, found.position_major) = (node.inputs[0], true);
                break;
            }
            _ => break,
        }
        found.value = node.inputs[0];
    }
    if transposed {
        return None;
    }
    let shape = &graph.value(found.value).shape;
    found.shape = match (shape.len(), shape.last_chunk()?, volume(&shape[..shape.len() - 2])) {
        (4, _, _) => [shape[0], shape[1], shape[2], shape[3]],
        (_, &[positions, d], (1, unknown)) if turn && unknown.is_empty() => {
            found.position_major = true;
            [1.into(), positions, 1.into(), d]
        }
        (_, &[positions, d], (heads, unknown)) if unknown.is_empty() => [1.into(), Int::Const(heads), positions, d],
        _ => return None,
    };
    Some(found)
}

/// True if `node` makes `[.., positions, d]` of `[batch, positions, 1, d]`: of one head, the transpose is a reshape.
fn drops_one_head(graph: &Graph, node: &Node) -> bool {
    let to = &graph.value(node.outputs[0]).shape;
    match graph.value(node.inputs[0]).shape[..] {
        [batch, positions, Int::Const(1), d] if to.len() >= 2 => {
            to.ends_with(&[positions, d]) && volume(&to[..to.len() - 2]) == volume(&[batch])
        }
        _ => false,
    }
}

/// How often `node` repeats each head: it expands `[batch, heads, 1, .., ..]` along its axis of one.
fn repeats(graph: &Graph, node: &Node) -> Option<i64> {
    let (from, to) = (&graph.value(node.inputs[0]).shape, &graph.value(node.outputs[0]).shape);
    let (Int::Const(1), Int::Const(times)) = (*from.get(2)?, *to.get(2)?) else { return None };
    let others = (0..5).filter(|&axis| axis != 2).all(|axis| from.get(axis) == to.get(axis));
    (from.len() == 5 && to.len() == 5 && others && times > 0).then_some(times)
}

/// The softmax behind `where(no position is visible, 0, softmax)`, or `value` itself.
fn unguarded(graph: &Graph, before: &Before, value: ValueId) -> Option<ValueId> {
    let Some(&[nothing_seen, zeros, weights]) = before.made_by(value, &Op::Where) else { return Some(value) };
    let masked = before.producer(weights)?.inputs.first().copied()?;
    let axis = graph.value(masked).shape.len().checked_sub(1)?;
    let any = before.made_by(unary(before, nothing_seen, UnaryOp::LogicalNot)?, &Op::Any { axis })?[0];
    let hidden = unary(before, any, UnaryOp::LogicalNot)?;
    let compared = before.made_by(hidden, &Op::Binary(BinaryOp::Equal))?;
    let against = orders(compared).into_iter().find(|&(x, _)| x == masked)?.1;
    let fits = filled_with(graph, before, zeros) == Some(0.0)
        && filled_with(graph, before, against) == Some(f32::NEG_INFINITY);
    fits.then_some(weights)
}

/// The one number that all elements of `value` are.
fn filled_with(graph: &Graph, before: &Before, value: ValueId) -> Option<f32> {
    match before.producer(value) {
        Some(Node { op: Op::Fill { value }, .. }) => Some(*value as f32),
        Some(Node { op: Op::Expand | Op::Reshape, inputs, .. }) => graph.scalar_f32(inputs[0]),
        Some(_) => None,
        None => {
            let data = graph.constant(value).filter(|_| is_plain_f32(graph, value))?;
            let (elements, _) = data.as_chunks::<4>();
            let first = elements.first()?;
            elements.iter().all(|element| element == first).then(|| f32::from_le_bytes(*first))
        }
    }
}

fn replace(graph: &mut Graph, root: &Node, found: &Found) -> Option<Vec<Node>> {
    let &Found { layout, start, scale, sizes: [batch, tokens, heads, d, positions], .. } = found;
    let swap = || Op::Permute { perm: vec![0, 2, 1, 3] };
    let mut replacement = Replacement::new();
    let q = replacement.emit(graph, root, Op::Reshape, &[found.q], vec![batch, heads, tokens, d]);
    let q = replacement.emit(graph, root, swap(), &[q], vec![batch, tokens, heads, d]);
    let [k, v] =
        [found.k, found.v].map(|cache| replacement.emit(graph, root, Op::Reshape, &[cache], found.cache.to_vec()));
    let mut inputs = vec![q, k, v];
    if let Some(mask) = found.mask {
        let leading = graph.value(mask).shape.len().saturating_sub(2);
        let shape = [vec![Int::Const(1); leading], vec![tokens, positions]].concat();
        inputs.push(replacement.emit(graph, root, Op::Expand, &[mask], shape));
    }
    let attention = Op::Attention { layout, start, scale };
    let attended = replacement.emit(graph, root, attention, &inputs, vec![batch, tokens, heads, d]);
    let attended = replacement.emit(graph, root, swap(), &[attended], vec![batch, heads, tokens, d]);
    Some(replacement.finish(root, Op::Reshape, &[attended]))
}

/// The write of new rows into a cache, if `root` is one along the axis of positions.
fn update(graph: &mut Graph, root: &Node, layout: CacheLayout) -> Option<Vec<Node>> {
    let Op::SliceUpdate { axis, start } = root.op else { return None };
    let &[cache, new] = &root.inputs[..] else { return None };
    let mut replacement = Replacement::new();
    let new = match (layout, axis) {
        (CacheLayout::PositionMajor, 1) => new,
        (CacheLayout::HeadMajor, 2) => {
            let &[batch, heads, tokens, d] = &graph.value(new).shape[..] else { return None };
            let shape = vec![batch, tokens, heads, d];
            replacement.emit(graph, root, Op::Permute { perm: vec![0, 2, 1, 3] }, &[new], shape)
        }
        _ => return None,
    };
    Some(replacement.finish(root, Op::CacheUpdate { layout, start }, &[cache, new]))
}
