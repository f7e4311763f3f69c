//! Caches of keys and values, and attention over them.

use super::{Call, Result, movement};
use crate::graph::{CacheLayout, Int, ValueId, ValueKind};
use crate::tensor::DType;

/// True where writing over the old contents of `target` harms nobody: it is a state that this node alone reads, and
/// what the node makes is the state's next contents.
fn may_overwrite(call: &Call<'_, '_, '_>, target: ValueId) -> bool {
    let graph = call.graph;
    let ValueKind::State(state) = graph.value(target).kind else { return false };
    let operands = graph.nodes.iter().flat_map(|node| &node.inputs);
    let results = graph.outputs.iter().chain(graph.state_updates.iter().map(|(_, value)| value));
    let reads = operands.chain(results).filter(|&&id| graph.value(id).kind == ValueKind::State(state)).count();
    reads == 1 && graph.state_updates.contains(&(state, call.output()))
}

/// `values`, `count` long along `axis`, over the target from `start` on.
struct Write {
    values: u32,
    axis: usize,
    start: Int,
    count: Int,
}

pub(super) fn slice_update(call: &mut Call<'_, '_, '_>, axis: usize, start: Int) -> Result {
    let count = call.graph.value(call.input(1)).shape[axis];
    let values = call.operand(1)?;
    put(call, Write { values, axis, start, count })
}

/// `index_put` takes the places along an axis as numbers.
fn put(call: &mut Call<'_, '_, '_>, Write { values, axis, start, count }: Write) -> Result {
    let places = match call.plan.range(start, count) {
        Some(places) => places,
        None => {
            let args = [call.plan.integer(start), movement::end(call, start, count, 1)?, call.plan.int(1)];
            let places = call.plan.temporary(DType::I64, &[count]);
            call.plan.call("aten::arange.start_out", &args, places);
            call.plan.remember_range((start, count), places);
            places
        }
    };
    let indices = (0..=axis).map(|at| (at == axis).then_some(places)).collect();
    let target = call.input(0);
    let args = [call.plan.operand(target)?, call.plan.optional_tensors(indices), values, call.plan.bool(false)];
    if may_overwrite(call, target) {
        let [state, ..] = args;
        call.plan.kernel("aten::index_put_", &[args[0], args[1], args[2], args[3], state]);
        call.plan.set(call.output(), state);
        return Ok(());
    }
    let out = call.result()?;
    call.plan.call("aten::index_put.out", &args, out);
    Ok(())
}

pub(super) fn update(call: &mut Call<'_, '_, '_>, layout: CacheLayout, start: Int) -> Result {
    let new = call.graph.value(call.input(1));
    let count = new.shape[1];
    let (target, values) = (call.input(0), call.operand(1)?);
    if layout == CacheLayout::HeadMajor {
        let &[batch, tokens, heads, dim] = &new.shape[..] else { return call.unsupported("values of another rank") };
        let perm = call.plan.ints(&[0, 2, 1, 3]);
        let swapped = call.plan.temporary(new.dtype, &[batch, heads, tokens, dim]);
        call.plan.call("aten::permute_copy.out", &[values, perm], swapped);
        return put(call, Write { values: swapped, axis: 2, start, count });
    }
    if !may_overwrite(call, target) {
        return put(call, Write { values, axis: 1, start, count });
    }
    let state = call.plan.operand(target)?;
    let args = [values, state, call.plan.integer(start)];
    // The operator returns a tensor without meaning.
    let out = call.plan.temporary(new.dtype, &[Int::Const(1)]);
    call.plan.call("llama::update_cache.out", &args, out);
    call.plan.set(call.output(), state);
    Ok(())
}

pub(super) fn attention(call: &mut Call<'_, '_, '_>, layout: CacheLayout, start: Int, scale: f32) -> Result {
    if layout != CacheLayout::PositionMajor {
        return call.unsupported("attention as one operation over a head-major cache");
    }
    let [q, k, v] = [call.operand(0)?, call.operand(1)?, call.operand(2)?];
    let mask = if call.node.inputs.len() > 3 { Some(call.operand(3)?) } else { None };
    let causal = call.plan.bool(mask.is_none());
    let mask = mask.unwrap_or_else(|| call.plan.null());
    let args = [q, k, v, call.plan.integer(start), mask, call.plan.double(0.0), causal, call.plan.double(scale.into())];
    let out = call.result()?;
    call.plan.call("llama::custom_sdpa.out", &args, out);
    Ok(())
}
