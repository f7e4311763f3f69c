//! KvManager: where keys and values lie, for both I/O generations and both ways of updating.
//!
//! Every cache tensor is `rows` × `cache_len` × `inner`: a key tensor has a row for each element of each head and an
//! inner length of 1, a value tensor a row for each head and an inner length of head_dim. Position p of a row is always
//! at column p of that row, and unused columns are zero. What differs is where the method's tensor begins:
//!
//! * `SmartMask`: at column 0 of the first row. The mask uncovers a column once it is written.
//! * `ShiftPointer`: one row of padding lies in front, and the tensor begins `cache_len - n_past` columns before the
//!   first row. The past is then right-aligned, what a step writes falls just behind the tensor's rows, and moving the
//!   start by the number of new tokens takes it in. A tensor of one row needs no copy at all: the method writes its
//!   output right behind its input.

use super::buffer_alloc::BufferAlloc;
use super::config::KvUpdater;
use super::error::RunnerError;
use crate::base::aligned::ALIGNMENT;
use crate::runtime::{IoArena, IoSlice};
use std::ops::Range;

/// Sizes of one cache tensor, the cache length apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheShape {
    /// Independent sequences of positions: heads × head_dim for keys, heads for values.
    pub rows: usize,
    /// Elements of one position in a row: 1 for keys, head_dim for values.
    pub inner: usize,
    /// Bytes of an element.
    pub element_size: usize,
}

/// The largest sizes that any method of the runner asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheLimits {
    /// Positions in a cache tensor.
    pub cache_len: usize,
    /// Tokens of a step.
    pub ar: usize,
}

#[derive(Debug)]
struct CacheTensor {
    rows: usize,
    /// Bytes of one position in one row.
    step: usize,
    /// The cache, followed from `split` on by the output. Without an output of its own (`split` at the end) the method
    /// writes into the cache.
    memory: IoSlice,
    split: usize,
}

impl CacheTensor {
    fn in_place(&self) -> bool {
        self.split == self.memory.len
    }

    fn slice(&self, offset: usize, len: usize) -> IoSlice {
        self.memory.part(offset..offset + len).expect("sized by plan for the largest method")
    }
}

/// Sizes in bytes of a tensor's memory.
struct Sizes {
    step: usize,
    split: usize,
    total: usize,
}

impl Sizes {
    /// `None` when they overflow.
    fn new(updater: KvUpdater, shape: CacheShape, limits: CacheLimits) -> Option<Self> {
        let CacheLimits { cache_len, ar } = limits;
        let step = shape.inner.checked_mul(shape.element_size)?;
        let aligned = |positions: usize| positions.checked_mul(step)?.checked_next_multiple_of(ALIGNMENT);
        let output = ar.checked_mul(shape.rows)?.checked_mul(step)?;
        match updater {
            KvUpdater::ShiftPointer if shape.rows == 1 => {
                // Padding, cache, and a whole step behind the last position.
                let total = aligned(cache_len.checked_mul(2)?.checked_add(ar)?)?;
                Some(Self { step, split: total, total })
            }
            _ => {
                let padding = usize::from(updater == KvUpdater::ShiftPointer);
                let split = aligned(cache_len.checked_mul(shape.rows.checked_add(padding)?)?)?;
                Some(Self { step, split, total: split.checked_add(output)? })
            }
        }
    }
}

/// All key and value tensors of a runner.
#[derive(Debug)]
pub struct KvManager {
    updater: KvUpdater,
    tensors: Vec<CacheTensor>,
    cache_len: usize,
    ar: usize,
    n_past: usize,
}

impl KvManager {
    /// Reserves memory for tensors of these shapes, all keys first. The cache is empty and arranged for `limits`.
    pub fn plan(
        buffers: &mut BufferAlloc,
        updater: KvUpdater,
        shapes: &[CacheShape],
        limits: CacheLimits,
    ) -> Result<Self, RunnerError> {
        let tensors = shapes.iter().map(|&shape| {
            let sizes = Sizes::new(updater, shape, limits).ok_or(RunnerError::TooLarge)?;
            let memory = buffers.reserve(sizes.total)?;
            Ok(CacheTensor { rows: shape.rows, step: sizes.step, memory, split: sizes.split })
        });
        let tensors = tensors.collect::<Result<_, RunnerError>>()?;
        Ok(Self { updater, tensors, cache_len: limits.cache_len, ar: limits.ar, n_past: 0 })
    }

    /// Positions in the cache.
    pub fn len(&self) -> usize {
        self.n_past
    }

    /// True when no position is.
    pub fn is_empty(&self) -> bool {
        self.n_past == 0
    }

    /// Positions that still fit as the cache is arranged now.
    pub fn room(&self) -> usize {
        self.cache_len - self.n_past
    }

    /// Number of tensors, all keys first.
    pub fn tensor_count(&self) -> usize {
        self.tensors.len()
    }

    /// Whether tensors move as the cache grows, so that they must be bound anew before each step.
    pub fn moves(&self) -> bool {
        self.updater == KvUpdater::ShiftPointer
    }

    /// What the method reads as tensor `index`: `[rows, cache_len, inner]`.
    pub fn input(&self, index: usize) -> IoSlice {
        let tensor = &self.tensors[index];
        let start = if self.moves() { self.n_past } else { 0 };
        tensor.slice(start * tensor.step, tensor.rows * self.cache_len * tensor.step)
    }

    /// Where the method writes tensor `index`: `[rows, ar, inner]`.
    pub fn output(&self, index: usize) -> IoSlice {
        let tensor = &self.tensors[index];
        let start = if tensor.in_place() { (self.cache_len + self.n_past) * tensor.step } else { tensor.split };
        tensor.slice(start, tensor.rows * self.ar * tensor.step)
    }

    /// Prepares the cache for a method of `ar` tokens a step that reads `cache_len` positions, or `None` when it reads
    /// no cache.
    ///
    /// Panics when `cache_len` is less than what is in the cache, or either is above the planned limits.
    pub fn arrange(&mut self, arena: &mut IoArena, ar: usize, cache_len: Option<usize>) {
        self.ar = ar;
        let Some(to_len) = cache_len.filter(|&len| len != self.cache_len) else { return };
        assert!(self.n_past <= to_len, "{} positions do not fit a cache of {to_len}", self.n_past);
        let from_len = std::mem::replace(&mut self.cache_len, to_len);
        for tensor in &self.tensors {
            let cache = &mut arena.bytes_mut(tensor.memory)[..tensor.split];
            let padding = |len: usize| if self.updater == KvUpdater::ShiftPointer { len } else { 0 };
            let used = self.n_past * tensor.step;
            let place = |len: usize, row: usize| (padding(len) + row * len) * tensor.step;
            let move_row = |cache: &mut [u8], row: usize| {
                let (from, to) = (place(from_len, row), place(to_len, row));
                cache.copy_within(from..from + used, to);
                cache[to + used..place(to_len, row + 1)].fill(0);
            };
            // In this order no row is overwritten before it has moved.
            if to_len < from_len {
                (0..tensor.rows).for_each(|row| move_row(cache, row));
                cache[place(to_len, tensor.rows)..].fill(0);
            } else {
                (0..tensor.rows).rev().for_each(|row| move_row(cache, row));
                cache[..place(to_len, 0)].fill(0);
            }
        }
    }

    /// Takes the first `n` tokens of the last step into the cache. Panics when there is no [`room`](Self::room).
    pub fn append(&mut self, arena: &mut IoArena, n: usize) {
        self.copy_tokens(arena, 0..n, 0);
        self.n_past += n;
    }

    /// Takes the tokens of the last step whose rows are `selected`, in ascending order, into the cache. Panics when
    /// there is no [`room`](Self::room).
    pub fn append_selected(&mut self, arena: &mut IoArena, selected: &[usize]) {
        for (place, &row) in selected.iter().enumerate() {
            self.copy_tokens(arena, row..row + 1, place);
        }
        self.n_past += selected.len();
    }

    /// Copies tokens `from` of the last step to the `place`th position behind the past and the ones after it.
    fn copy_tokens(&self, arena: &mut IoArena, from: Range<usize>, place: usize) {
        assert!(from.end <= self.ar && place + from.len() <= self.room(), "{from:?} of {} do not fit", self.ar);
        let home = if self.moves() { self.cache_len } else { 0 };
        for tensor in &self.tensors {
            let step = tensor.step;
            let (cache, output) = arena.bytes_mut(tensor.memory).split_at_mut(tensor.split);
            let to = (home + self.n_past + place) * step;
            if tensor.in_place() {
                let written = (home + self.n_past) * step;
                cache.copy_within(written + from.start * step..written + from.end * step, to);
            } else {
                let to = Lanes { bytes: &mut cache[to..], stride: self.cache_len * step };
                let from_lanes = Lanes { bytes: &output[from.start * step..], stride: self.ar * step };
                copy_lanes(to, from_lanes, Extent { lanes: tensor.rows, len: from.len() * step });
            }
        }
    }

    /// Forgets every position from `len` on. Does nothing when the cache is shorter.
    pub fn rewind(&mut self, arena: &mut IoArena, len: usize) {
        if len < self.n_past {
            self.for_each_run(arena, len..self.n_past, |run| run.fill(0));
            self.n_past = len;
        }
    }

    /// Forgets everything; all memory is zero again.
    pub fn reset(&mut self, arena: &mut IoArena) {
        for tensor in &self.tensors {
            arena.bytes_mut(tensor.memory).fill(0);
        }
        self.n_past = 0;
    }

    /// Bytes of one position in all tensors.
    pub fn position_bytes(&self) -> usize {
        self.tensors.iter().map(|tensor| tensor.rows * tensor.step).sum()
    }

    /// Bytes of the memory for all tensors, what a step writes included.
    pub fn memory_bytes(&self) -> usize {
        self.tensors.iter().map(|tensor| tensor.memory.len).sum()
    }

    /// How many tensors of which shape there are: `5 of 32x1, 5 of 4x8`, rows and bytes of a position in each.
    pub fn describe(&self) -> String {
        let shape = |tensor: &CacheTensor| (tensor.rows, tensor.step);
        let runs = self.tensors.chunk_by(|a, b| shape(a) == shape(b));
        let runs = runs.map(|run| format!("{} of {}x{}", run.len(), run[0].rows, run[0].step));
        runs.collect::<Vec<_>>().join(", ")
    }

    /// The contents, independent of arrangement and updater: for each tensor, for each row, every position.
    pub fn save(&self, arena: &mut IoArena) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.position_bytes() * self.n_past);
        self.for_each_run(arena, 0..self.n_past, |run| bytes.extend_from_slice(run));
        bytes
    }

    /// Replaces the contents by `saved`. False, and nothing changed, when `saved` is not of this model or holds more
    /// positions than fit.
    #[must_use]
    pub fn restore(&mut self, arena: &mut IoArena, saved: &[u8]) -> bool {
        let position = self.position_bytes();
        let n = saved.len().checked_div(position).unwrap_or(0);
        if n * position != saved.len() || n > self.cache_len {
            return false;
        }
        self.reset(arena);
        self.n_past = n;
        let mut rest = saved;
        self.for_each_run(arena, 0..n, |run| {
            let (head, tail) = rest.split_at(run.len());
            run.copy_from_slice(head);
            rest = tail;
        });
        true
    }

    /// Calls `visit` with the bytes of `positions` in each row of each tensor.
    fn for_each_run(&self, arena: &mut IoArena, positions: Range<usize>, mut visit: impl FnMut(&mut [u8])) {
        let home = if self.moves() { self.cache_len } else { 0 };
        for tensor in &self.tensors {
            let cache = arena.bytes_mut(tensor.memory);
            for row in 0..tensor.rows {
                let start = home + row * self.cache_len;
                visit(&mut cache[(start + positions.start) * tensor.step..(start + positions.end) * tensor.step]);
            }
        }
    }
}

/// Equally long runs of bytes at equal distances.
struct Lanes<B> {
    bytes: B,
    stride: usize,
}

/// How many runs, and how long each.
struct Extent {
    lanes: usize,
    len: usize,
}

/// Copies every run of `from` to the run of `to` with the same number. Short runs, which are all that a decode step
/// has, get a copy of constant length each.
fn copy_lanes(to: Lanes<&mut [u8]>, from: Lanes<&[u8]>, extent: Extent) {
    match extent.len {
        1 => copy_fixed::<1>(to, from, extent.lanes),
        2 => copy_fixed::<2>(to, from, extent.lanes),
        4 => copy_fixed::<4>(to, from, extent.lanes),
        8 => copy_fixed::<8>(to, from, extent.lanes),
        16 => copy_fixed::<16>(to, from, extent.lanes),
        64 => copy_fixed::<64>(to, from, extent.lanes),
        128 => copy_fixed::<128>(to, from, extent.lanes),
        len => {
            for lane in 0..extent.lanes {
                let (to_start, from_start) = (lane * to.stride, lane * from.stride);
                to.bytes[to_start..to_start + len].copy_from_slice(&from.bytes[from_start..from_start + len]);
            }
        }
    }
}

fn copy_fixed<const N: usize>(to: Lanes<&mut [u8]>, from: Lanes<&[u8]>, lanes: usize) {
    let (mut to_start, mut from_start) = (0, 0);
    for _ in 0..lanes {
        to.bytes[to_start..to_start + N].copy_from_slice(&from.bytes[from_start..from_start + N]);
        to_start += to.stride;
        from_start += from.stride;
    }
}

#[cfg(test)]
mod tests;
