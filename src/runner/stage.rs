//! One method with its buffers: the step that prompt processing, decoding and lookahead have in common.

use super::attention_mask::{AttentionMap, AttentionMask, MaskShape};
use super::buffer_alloc::BufferAlloc;
use super::config::KvUpdater;
use super::decoder_runner::DecoderRunner;
use super::error::RunnerError;
use super::event::LogitsRow;
use super::io::{MethodIo, Slot};
use super::kv_manager::KvManager;
use crate::error::{Context, Result};
use crate::runtime::{IoArena, IoSlice};
use crate::tensor::DType;
use crate::tokenizer::TokenId;
use std::num::NonZeroUsize;

/// Which of a program's methods a call goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// The one that takes prompts; for a program of one method, that one.
    Prefill,
    /// The one that continues.
    Decode,
}

/// Where the logits of the last token fed are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LastRow {
    /// Who made them.
    pub by: Part,
    /// Row of its last step.
    pub row: usize,
}

/// A method, its masks, and where its tokens, positions and logits lie.
#[derive(Debug)]
pub(crate) struct Stage {
    io: MethodIo,
    tokens: IoSlice,
    positions: Option<(Slot, IoSlice)>,
    logits: IoSlice,
    mask: AttentionMask,
    window_mask: Option<(Slot, AttentionMask)>,
    map: AttentionMap,
    caches_bound: bool,
}

impl Stage {
    /// Reserves the buffers of a method. `window` is the number of positions that windowed layers see.
    pub fn plan(
        io: MethodIo,
        buffers: &mut BufferAlloc,
        updater: KvUpdater,
        window: Option<NonZeroUsize>,
    ) -> Result<Self, RunnerError> {
        // Every product is the size of a tensor that the module has accepted, so none overflows.
        let ints = |slot: Slot| io.ar * slot.dtype.size();
        let tokens = buffers.reserve(ints(io.tokens))?;
        let positions = io.positions.map(|slot| Ok((slot, buffers.reserve(ints(slot))?))).transpose()?;
        let logits = buffers.reserve(io.ar * io.vocab * io.logits.dtype.size())?;
        let mut plan_mask = |slot: Slot, window| {
            let shape = MaskShape { ar: io.ar, context_len: io.context_len, updater, window };
            let place = buffers.reserve(io.ar * io.context_len * slot.dtype.size())?;
            Ok(AttentionMask::new(place, slot.dtype, shape).expect("resolve accepts only known mask types"))
        };
        let mask = plan_mask(io.mask, None)?;
        let window_mask = io.window_mask.map(|slot| Ok((slot, plan_mask(slot, window)?))).transpose()?;
        let map = AttentionMap::causal(io.ar);
        Ok(Self { io, tokens, positions, logits, mask, window_mask, map, caches_bound: false })
    }

    /// Binds everything that stays where it is.
    pub fn bind(&self, decoder: &mut DecoderRunner) -> Result<()> {
        let id = self.io.id;
        decoder.bind_input(id, self.io.tokens.index, self.tokens)?;
        decoder.bind_input(id, self.io.mask.index, self.mask.place())?;
        if let Some((slot, place)) = &self.positions {
            decoder.bind_input(id, slot.index, *place)?;
        }
        if let Some((slot, mask)) = &self.window_mask {
            decoder.bind_input(id, slot.index, mask.place())?;
        }
        decoder.bind_output(id, self.io.logits.index, self.logits)
    }

    /// Tokens of a step.
    pub fn ar(&self) -> usize {
        self.io.ar
    }

    /// Positions of the cache that it reads; `None` when it reads none.
    pub fn cache_len(&self) -> Option<usize> {
        self.io.cache_len()
    }

    /// Whether some layers see a window only.
    pub fn is_windowed(&self) -> bool {
        self.window_mask.is_some()
    }

    /// Positions that a prompt may fill by way of this method: for one that reads the whole context at once, all of it,
    /// but only from the start.
    pub fn reach(&self, n_past: usize) -> usize {
        match self.io.cache_len() {
            Some(cache_len) => cache_len,
            None if n_past == 0 => self.io.context_len,
            None => n_past,
        }
    }

    /// Arranges the cache for this method and writes the masks for steps of consecutive tokens.
    pub fn begin(&mut self, arena: &mut IoArena, kv: &mut KvManager) {
        self.begin_tree(arena, kv, AttentionMap::causal(self.io.ar));
    }

    /// The same for steps whose tokens hang together as `map` says.
    pub fn begin_tree(&mut self, arena: &mut IoArena, kv: &mut KvManager, map: AttentionMap) {
        self.map = map;
        kv.arrange(arena, self.io.ar, self.io.cache_len());
        for mask in self.masks() {
            mask.fill(arena, &self.map, kv.len());
        }
    }

    /// Puts `tokens`, at most AR of them, into the first rows, and every row's position behind the past. Rows beyond
    /// keep their tokens; no row that counts attends to them.
    pub fn feed(&self, arena: &mut IoArena, tokens: &[TokenId], n_past: usize) {
        let tokens = tokens.iter().map(|&token| token as i64);
        write_ints(arena, self.io.tokens.dtype, self.tokens, tokens);
        if let Some((slot, place)) = &self.positions {
            let positions = (0..self.io.ar).map(|row| (n_past + self.map.depth(row)) as i64);
            write_ints(arena, slot.dtype, *place, positions);
        }
    }

    /// Runs the method on what was fed.
    pub fn step(&mut self, decoder: &mut DecoderRunner, kv: &KvManager) -> Result<()> {
        if !self.caches_bound || kv.moves() {
            self.bind_caches(decoder, kv)?;
        }
        decoder.step(self.io.id).with_context(|| format!("running {} at position {}", self.io.name, kv.len()))
    }

    fn bind_caches(&mut self, decoder: &mut DecoderRunner, kv: &KvManager) -> Result<()> {
        for (index, cache) in self.io.caches.iter().enumerate() {
            if let Some(input) = cache.input {
                decoder.bind_input(self.io.id, input, kv.input(index))?;
            }
            decoder.bind_output(self.io.id, cache.output, kv.output(index))?;
        }
        self.caches_bound = true;
        Ok(())
    }

    /// The logits of row `row` of the last step.
    pub fn logits<'a>(&self, arena: &'a IoArena, row: usize) -> LogitsRow<'a> {
        let dtype = self.io.logits.dtype;
        let len = self.io.vocab * dtype.size();
        let row = self.logits.part(row * len..(row + 1) * len).expect("a row of the step");
        LogitsRow { dtype, encoding: self.io.format.encoding, bytes: arena.bytes(row) }
    }

    /// Takes the first `n` tokens of the last step into the past. Where fewer fit, as many as fit.
    pub fn append(&self, arena: &mut IoArena, kv: &mut KvManager, n: usize) {
        let n_past = kv.len();
        kv.append(arena, n.min(kv.room()));
        self.follow(arena, n_past, kv);
    }

    /// Takes the tokens in rows `selected`, in ascending order, into the past. Where fewer fit, as many as fit.
    pub fn append_selected(&self, arena: &mut IoArena, kv: &mut KvManager, selected: &[usize]) {
        let n_past = kv.len();
        kv.append_selected(arena, &selected[..selected.len().min(kv.room())]);
        self.follow(arena, n_past, kv);
    }

    fn follow(&self, arena: &mut IoArena, n_past: usize, kv: &KvManager) {
        if self.io.cache_len().is_some() {
            for mask in self.masks() {
                mask.follow(arena, &self.map, n_past..kv.len());
            }
        }
    }

    /// Zeroes the tokens, so that what a block is padded with is the same in each context.
    pub fn reset(&self, arena: &mut IoArena) {
        arena.bytes_mut(self.tokens).fill(0);
    }

    fn masks(&self) -> impl Iterator<Item = &AttentionMask> {
        std::iter::once(&self.mask).chain(self.window_mask.as_ref().map(|(_, mask)| mask))
    }
}

/// Writes `values` to the first elements of an i32 or i64 tensor. Tokens and positions are below 2^31: they index a
/// table and a context that are in memory.
pub(crate) fn write_ints(arena: &mut IoArena, dtype: DType, place: IoSlice, values: impl Iterator<Item = i64>) {
    if dtype == DType::I64 {
        arena.typed_mut::<i64>(place).iter_mut().zip(values).for_each(|(to, value)| *to = value);
    } else {
        arena.typed_mut::<i32>(place).iter_mut().zip(values).for_each(|(to, value)| *to = value as i32);
    }
}
