//! TextDecoderRunner: one method with its buffers. Tokens and a position go in, a row of logits comes out.

use super::signature::{Positions, TextIo};
use crate::error::{Context, Result};
use crate::runner::buffer_alloc::BufferAlloc;
use crate::runner::decoder_runner::DecoderRunner;
use crate::runner::error::RunnerError;
use crate::runner::event::LogitsRow;
use crate::runner::io::{IoError, Place};
use crate::runner::stage::write_ints;
use crate::runtime::IoSlice;
use crate::tokenizer::TokenId;

/// A method, and where its tokens, positions and logits lie.
#[derive(Debug)]
pub(super) struct TextDecoderRunner {
    io: TextIo,
    tokens: IoSlice,
    positions: Option<IoSlice>,
    /// `None` when the program has memory for them.
    logits: Option<IoSlice>,
    /// Most tokens that a prompt gives in one call.
    chunk: usize,
    /// Current size of a dynamic token input; 0 before the first call.
    size: usize,
    /// Tokens of the last call.
    fed: usize,
}

impl TextDecoderRunner {
    /// Reserves the buffers of a method, which is given at most `chunk` prompt tokens a call.
    pub fn plan(io: TextIo, chunk: usize, buffers: &mut BufferAlloc) -> Result<Self, RunnerError> {
        // Every product is the size of a tensor that the module has accepted, so none overflows.
        let tokens = buffers.reserve(io.most * io.tokens.dtype.size())?;
        let positions = match io.positions {
            None => None,
            Some(Positions::Start(slot)) => Some(buffers.reserve(slot.dtype.size())?),
            Some(Positions::Each { slot, bound, .. }) => Some(buffers.reserve(bound * slot.dtype.size())?),
        };
        let logits = io.unplanned_logits.map(|len| buffers.reserve(len)).transpose()?;
        let chunk = if io.dynamic { chunk.min(io.most) } else { io.most };
        Ok(Self { io, tokens, positions, logits, chunk, size: 0, fed: 0 })
    }

    /// Binds everything.
    pub fn bind(&self, decoder: &mut DecoderRunner) -> Result<()> {
        let id = self.io.id;
        decoder.bind_input(id, self.io.tokens.index, self.tokens)?;
        if let (Some(Positions::Start(slot) | Positions::Each { slot, .. }), Some(place)) =
            (self.io.positions, self.positions)
        {
            decoder.bind_input(id, slot.index, place)?;
        }
        match self.logits {
            Some(place) => decoder.bind_output(id, self.io.logits.index, place),
            None => Ok(()),
        }
    }

    /// How many of `rest` prompt tokens the next call takes; 0 when it can take none, for they fill no call of a fixed
    /// number.
    pub fn takes_of(&self, rest: usize) -> usize {
        match self.io.dynamic {
            true => rest.min(self.chunk),
            false if rest >= self.chunk => self.chunk,
            false => 0,
        }
    }

    /// Runs the method on `tokens`, of which the first goes to position `start`. A call of a fixed number is filled up
    /// with zeros behind them.
    pub fn step(&mut self, decoder: &mut DecoderRunner, tokens: &[TokenId], start: usize) -> Result<()> {
        let io = &self.io;
        let shown = if io.dynamic { tokens.len() } else { io.most };
        let filled = tokens.iter().map(|&token| token as i64).chain(std::iter::repeat(0)).take(shown);
        write_ints(&mut decoder.arena, io.tokens.dtype, self.tokens, filled);
        if let (Some(positions), Some(place)) = (io.positions, self.positions) {
            let (slot, count) = match positions {
                Positions::Start(slot) => (slot, 1),
                Positions::Each { slot, .. } => (slot, shown),
            };
            write_ints(&mut decoder.arena, slot.dtype, place, (start..start + count).map(|position| position as i64));
        }
        if io.dynamic && self.size != shown {
            decoder.resize_input(io.id, io.tokens.index, &[1, shown])?;
            if let Some(Positions::Each { slot, rank, dynamic: true, .. }) = io.positions {
                let dims = [1, shown];
                decoder.resize_input(io.id, slot.index, &dims[2 - rank..])?;
            }
            self.size = shown;
        }
        let place = || format!("running {} on {} tokens at position {start}", self.io.name, tokens.len());
        decoder.step(self.io.id).with_context(place)?;
        self.fed = tokens.len();
        Ok(())
    }

    /// The logits of the last token of the last call, and their row.
    pub fn logits<'a>(&self, decoder: &'a DecoderRunner) -> Result<(usize, LogitsRow<'a>)> {
        let TextIo { vocab, every_row, .. } = self.io;
        let dtype = self.io.logits.dtype;
        let (dims, bytes) = decoder.output(self.io.id, self.io.logits.index)?;
        let rows = match every_row {
            false => 1,
            true if self.io.dynamic => self.fed,
            true => self.io.most,
        };
        let row = if every_row { self.fed - 1 } else { 0 };
        let len = vocab * dtype.size();
        match bytes.get(row * len..(row + 1) * len) {
            Some(row_bytes) if dims.iter().product::<usize>() == rows * vocab && bytes.len() == rows * len => {
                Ok((row, LogitsRow { dtype, encoding: self.io.format.encoding, bytes: row_bytes }))
            }
            _ => Err(IoError::Mismatch {
                method: self.io.name.clone(),
                place: Place::Output(self.io.logits.index),
                found: format!("{dtype}{dims:?}"),
                wanted: format!("logits of {} tokens, [1, {rows}, {vocab}]", self.fed),
            }
            .into()),
        }
    }
}
