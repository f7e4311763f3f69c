//! `llama::` attention over a cache of keys and values, and the writes into it.

use super::call::Call;
use super::index::within;
use super::sizes::{axis, equal};
use super::{Fit, Form, Unfit};
use crate::graph::{CacheLayout, Int, Op, ValueId};
use crate::tensor::DType;

pub(super) const FORMS: &[(&str, Form)] = &[
    ("llama::update_cache.out", |call| {
        let start = call.int(2)?;
        update(call, 0, 1, start)
    }),
    ("llama::custom_sdpa.out", |call| {
        let (key, value) = (call.tensor(1)?, call.tensor(2)?);
        attend(call, Places { start: 3, options: 4, out: 8 }, key, value)
    }),
    ("llama::sdpa_with_kv_cache.out", |call| {
        let start = call.int(5)?;
        update(call, 1, 3, start)?;
        update(call, 2, 4, start)?;
        let (key, value) = (call.tensor(3)?, call.tensor(4)?);
        attend(call, Places { start: 5, options: 7, out: 11 }, key, value)
    }),
    ("llama::custom_quantized_sdpa.out", attend_quantized),
];

/// Writes argument `value` `[batch, tokens, heads, d]` to argument `cache` from position `start` on.
fn update(call: &mut Call<'_, '_>, value: usize, cache: usize, start: Int) -> Fit {
    let (new, old) = (call.tensor(value)?, call.tensor(cache)?);
    let (of_new, of_old) = (call.shape(new), call.shape(old));
    if of_new.len() != 4 || of_old.len() != 4 || call.dtype(new) != call.dtype(old) {
        return Unfit::why("a cache, or what goes into it, without four dimensions of one type");
    }
    for axis in [0, 2, 3] {
        equal(of_new[axis], of_old[axis])?;
    }
    within(call, start, of_new[1], of_old[1])?;
    let op = Op::CacheUpdate { layout: CacheLayout::PositionMajor, start };
    let updated = call.like(op, &[old, new], of_old);
    call.set(cache, updated)
}

/// Where the arguments of an operator are.
struct Places {
    start: usize,
    /// Mask, dropout (which is for training), whether causal, scale.
    options: usize,
    out: usize,
}

/// What the options of an attention come to.
struct Options {
    mask: Option<ValueId>,
    scale: f32,
}

fn options(call: &mut Call<'_, '_>, first: usize, dim: Int) -> Fit<Options> {
    let (mask, causal) = (call.optional_tensor(first)?, call.bool(first + 2)?);
    if mask.is_some() == causal {
        return Unfit::why("attention that is neither causal nor masked, or both");
    }
    let scale = match (call.is_null(first + 3)?, dim) {
        (false, _) => call.real(first + 3)?,
        (true, Int::Const(dim)) => 1.0 / (dim as f64).sqrt(),
        (true, _) => return Unfit::why("heads of a size that is known only at run time"),
    };
    Ok(Options { mask, scale: scale as f32 })
}

/// Query `[batch, tokens, heads, d]` against caches `[batch, positions, heads, d]`.
fn check_shapes(query: &[Int], key: &[Int], value: &[Int]) -> Fit {
    if [query, key, value].iter().any(|shape| shape.len() != 4) {
        return Unfit::why("queries, keys or values without four dimensions");
    }
    key.iter().zip(value).try_for_each(|(&a, &b)| equal(a, b))?;
    equal(query[0], key[0])?;
    equal(query[3], key[3])?;
    match (query[2], key[2]) {
        (Int::Const(heads), Int::Const(shared)) if shared > 0 && heads % shared == 0 => Ok(()),
        _ => Unfit::why("query heads that do not share key heads evenly"),
    }
}

fn attend(call: &mut Call<'_, '_>, places: Places, key: ValueId, value: ValueId) -> Fit {
    let query = call.tensor(0)?;
    let (shape, positions) = (call.shape(query), call.shape(key));
    check_shapes(&shape, &positions, &call.shape(value))?;
    if [query, key, value].iter().any(|&operand| call.dtype(operand) != DType::F32) {
        return Unfit::why("attention of reals other than f32");
    }
    let Options { mask, scale } = options(call, places.options, shape[3])?;
    let mut start = call.int(places.start)?;
    let mut operands = vec![query, key, value];
    match mask {
        None => within(call, start, shape[1], positions[1])?,
        Some(mask) => {
            let of_mask = call.shape(mask);
            if call.dtype(mask) != DType::F32 || of_mask.len() != 2 {
                return Unfit::why("a mask that is no matrix of f32");
            }
            equal(of_mask[0], shape[1])?;
            equal(of_mask[1], positions[1])?;
            operands.push(mask);
            start = Int::Const(0);
        }
    }
    let op = Op::Attention { layout: CacheLayout::PositionMajor, start, scale };
    let attended = call.like(op, &operands, shape);
    call.set(places.out, attended)
}

/// (query, key, value, start, mask, dropout, causal, scale, zero points and scales of each, whether positions are
/// dimension 2, out)
fn attend_quantized(call: &mut Call<'_, '_>) -> Fit {
    let head_major = !call.is_null(14)? && call.bool(14)?;
    let layout = if head_major { CacheLayout::HeadMajor } else { CacheLayout::PositionMajor };
    let mut query = call.tensor(0)?;
    let (key, value) = (call.tensor(1)?, call.tensor(2)?);
    let mut parameters = Vec::new();
    for (operand, arg) in [(query, 8), (key, 10), (value, 12)] {
        let (Some(zero_points), Some(scales)) = (call.optional_tensor(arg)?, call.optional_tensor(arg + 1)?) else {
            return Unfit::why("codes without scales");
        };
        if call.dtype(operand) != DType::I8 || call.dtype(zero_points) != DType::I8 || call.dtype(scales) != DType::F32
        {
            return Unfit::why("codes and zero points that are not i8, or scales that are not f32");
        }
        parameters.push([scales, zero_points]);
    }
    if head_major {
        query = swapped(call, query)?;
        parameters[0] = [swapped(call, parameters[0][0])?, swapped(call, parameters[0][1])?];
    }
    let shape = call.shape(query);
    let as_positions = |mut shape: Vec<Int>| {
        if head_major {
            shape.swap(1, 2);
        }
        shape
    };
    let of_key = call.shape(key);
    if of_key.len() != 4 || call.shape(value).len() != 4 {
        return Unfit::why("keys or values without four dimensions");
    }
    let of_key = as_positions(of_key);
    check_shapes(&shape, &of_key, &as_positions(call.shape(value)))?;
    let Options { mask, scale } = options(call, 4, shape[3])?;
    if mask.is_some() {
        return Unfit::why("a mask beside codes");
    }
    let start = call.int(3)?;
    within(call, start, shape[1], of_key[1])?;
    let operands: Vec<ValueId> =
        [query, key, value].into_iter().chain([1, 2, 0].into_iter().flat_map(|of| parameters[of])).collect();
    let op = Op::QuantizedAttention { layout, start, scale };
    let mut attended = call.emit(op, &operands, DType::F32, shape);
    if head_major {
        attended = swapped(call, attended)?;
    }
    call.set(15, attended)
}

/// `[batch, a, b, d]` → `[batch, b, a, d]`
fn swapped(call: &mut Call<'_, '_>, x: ValueId) -> Fit<ValueId> {
    let mut shape = call.shape(x);
    axis(3, shape.len())?;
    shape.swap(1, 2);
    Ok(call.like(Op::Permute { perm: vec![0, 2, 1, 3] }, &[x], shape))
}
