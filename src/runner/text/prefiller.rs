//! TextPrefiller: gives the prompt to the program, in one call or in as few as it takes, and makes the first token.

use super::model::{Stage, TextModel};
use crate::error::Result;
use crate::runner::event::FinishReason;
use crate::runner::turn::{Source, Turn};

/// Processes the turn's prompt, which must fit the context. Says whether the turn ends already; when that is a
/// cancellation before the first token, the context is as it was.
pub(crate) fn prefill(model: &mut TextModel, turn: &mut Turn<'_>) -> Result<Option<FinishReason>> {
    let start = model.position();
    let mut rest = turn.prompt;
    let mut stage = Stage::Prefill;
    while !rest.is_empty() {
        if turn.is_cancelled() {
            model.rewind(start);
            return Ok(Some(FinishReason::Cancelled));
        }
        let n;
        (stage, n) = model.next_call(rest.len());
        let (chunk, after) = rest.split_at(n);
        model.feed(stage, chunk)?;
        rest = after;
    }
    let position = model.position() - 1;
    let (row, logits) = model.logits(stage)?;
    turn.take(logits, Source { position, row })
}
