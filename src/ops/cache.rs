//! `llama::update_cache`: the keys or values of new positions, written into a cache that is the program's own state.

use super::error::OpError;
use super::layout::check_order;
use crate::error::Result;
use crate::runtime::{Inputs, KernelArgs, KernelRegistry, Tensor};
use crate::tensor::DType;

pub(super) fn register(registry: &mut KernelRegistry) {
    registry.register("llama::update_cache.out", |args| {
        let start = args.int(2)?;
        update(args, 0, 1, start)
    });
    registry.register("llama::update_cache_with_indices.out", update_with_indices);
}

/// A value `[batch, positions, heads, dim]` beside the cache `[batch, room, heads, dim]` that takes it, in bytes.
struct Rows {
    batch: usize,
    positions: usize,
    room: usize,
    width: usize,
}

impl Rows {
    fn new(value: &Tensor, cache: &Tensor) -> Result<Self> {
        for (what, tensor) in [("the value", value), ("the cache", cache)] {
            check_order(what, tensor)?;
            if tensor.dims.len() != 4 {
                return Err(OpError::Shape { what, dims: tensor.dims.clone() }.into());
            }
        }
        if value.dtype != cache.dtype {
            return Err(OpError::TypesDiffer { what: "the value", have: value.dtype, want: cache.dtype }.into());
        }
        if value.dims[0] != cache.dims[0] || value.dims[2..] != cache.dims[2..] {
            return Err(OpError::Shapes { a: value.dims.clone(), b: cache.dims.clone() }.into());
        }
        let width = match value.is_empty() {
            // The other sizes may then be beyond all bounds.
            true => 0,
            false => value.dims[2] * value.dims[3] * value.dtype.size(),
        };
        Ok(Self { batch: value.dims[0], positions: value.dims[1], room: cache.dims[1], width })
    }
}

fn pair<'a>(inputs: &Inputs<'a>, value: usize, cache: &Tensor) -> Result<(&'a Tensor, Rows)> {
    let value = inputs.tensor(value)?;
    Ok((value, Rows::new(value, cache)?))
}

/// Writes argument `value` to argument `cache` from position `start` on.
pub(super) fn update(args: &mut KernelArgs<'_>, value: usize, cache: usize, start: i64) -> Result<()> {
    let (inputs, cache) = args.split(cache)?;
    let (value, Rows { batch, positions, room, width }) = pair(&inputs, value, cache)?;
    let first = usize::try_from(start).ok().filter(|&first| first < room && positions <= room - first);
    let first = first.ok_or(OpError::CachePosition { start, len: positions, room })?;
    if value.is_empty() {
        return Ok(());
    }
    let (value, cache) = (value.bytes()?, cache.bytes_mut()?);
    let len = positions * width;
    for batch in 0..batch {
        let to = (batch * room + first) * width;
        cache[to..to + len].copy_from_slice(&value[batch * len..][..len]);
    }
    Ok(())
}

/// (value, cache, start, indices [batch, positions], …): position by position where the indices say.
fn update_with_indices(args: &mut KernelArgs<'_>) -> Result<()> {
    let (inputs, cache) = args.split(1)?;
    let (value, Rows { batch, positions, room, width }) = pair(&inputs, 0, cache)?;
    let indices = inputs.tensor(3)?;
    check_order("the indices", indices)?;
    if indices.dims != [batch, positions] {
        return Err(OpError::Shape { what: "the indices", dims: indices.dims.clone() }.into());
    }
    if indices.dtype != DType::I64 {
        return Err(OpError::Type { what: "an index", dtype: indices.dtype }.into());
    }
    if value.is_empty() {
        return Ok(());
    }
    let (value, cache) = (value.bytes()?, cache.bytes_mut()?);
    for (row, &index) in indices.view::<i64>()?.iter().enumerate() {
        let place = usize::try_from(index).ok().filter(|&place| place < room);
        let place = place.ok_or(OpError::Index { index, len: room })?;
        let to = (row / positions * room + place) * width;
        cache[to..to + width].copy_from_slice(&value[row * width..][..width]);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Call, elements};
    use super::*;

    const VALUES: [f32; 4] = [1.0, 2.0, 3.0, 4.0];

    /// Two positions of one head with one element, for two sequences, into caches of three.
    fn call() -> Call {
        Call::new().constant(DType::F32, &[2, 2, 1, 1], &VALUES).state(DType::F32, &[2, 3, 1, 1], &[0.0f32; 6])
    }

    fn at(start: i64) -> Result<Vec<f32>> {
        let call = call().int(start).side_output(DType::F32, &[1]);
        call.run("llama::update_cache", "out").map(|(_, bytes)| elements(&bytes))
    }

    #[test]
    fn positions_are_written_in_each_sequence() {
        assert_eq!(at(0).unwrap(), [1.0, 2.0, 0.0, 3.0, 4.0, 0.0]);
        assert_eq!(at(1).unwrap(), [0.0, 1.0, 2.0, 0.0, 3.0, 4.0]);
    }

    #[test]
    fn indices_say_where() {
        let run = |indices: &[i64]| {
            let call = call().int(0).constant(DType::I64, &[2, 2], indices).side_output(DType::F32, &[1]);
            call.run("llama::update_cache_with_indices", "out").map(|(_, bytes)| elements::<f32>(&bytes))
        };
        assert_eq!(run(&[2, 0, 1, 1]).unwrap(), [2.0, 0.0, 1.0, 0.0, 4.0, 0.0]);
        for index in [3, -1] {
            let text = run(&[0, 0, index, 0]).unwrap_err().chain();
            assert!(text.ends_with(&format!("index {index} is outside 0..3")), "{text}");
        }
    }

    #[test]
    fn defects_are_named() {
        for start in [2, 3, -1, i64::MAX, i64::MIN] {
            let text = at(start).unwrap_err().chain();
            let want = format!("positions from {start} on, 2 of them, are not in a cache of 3");
            assert!(text.ends_with(&want), "{text}");
        }
        let into = |dtype, dims: &[usize]| {
            let call = Call::new().constant(DType::F32, &[2, 2, 1, 1], &VALUES);
            let call = match dtype {
                DType::F32 => call.state(dtype, dims, &[0.0f32; 6]),
                _ => call.state(dtype, dims, &[0i32; 6]),
            };
            call.int(0).side_output(DType::F32, &[1]).run("llama::update_cache", "out")
        };
        for (result, want) in [
            (into(DType::F32, &[2, 3, 1]), "the cache cannot have the sizes [2, 3, 1]"),
            (into(DType::F32, &[1, 3, 2, 1]), "sizes [2, 2, 1, 1] and [1, 3, 2, 1] do not go together"),
            (into(DType::I32, &[2, 3, 1, 1]), "the value has f32 elements, its type says i32"),
        ] {
            let text = result.unwrap_err().chain();
            assert!(text.ends_with(want), "{text}");
        }
    }
}
