//! TextPrefiller: gives the prompt to the program, in one call or in as few as it takes, and makes the first token.

use super::model::TextModel;
use crate::error::Result;
use crate::runner::event::FinishReason;
use crate::runner::stage::Part;
use crate::runner::turn::{Source, Turn};
use crate::tokenizer::TokenId;
use std::sync::atomic::{AtomicBool, Ordering};

/// Processes the turn's prompt, which must fit the context. Says whether the turn ends already; when that is a
/// cancellation before the first token, the context is as it was.
pub(crate) fn prefill(model: &mut TextModel, turn: &mut Turn<'_>) -> Result<Option<FinishReason>> {
    let Some(part) = feed_prompt(model, turn.prompt, turn.cancelled)? else {
        return Ok(Some(FinishReason::Cancelled));
    };
    let position = model.position() - 1;
    let (row, logits) = model.logits(part)?;
    turn.take(logits, Source { position, row })
}

/// Takes `tokens`, which must fit the context, into it. Says which method has the last one's logits; `None` when there
/// was a cancellation, and the context is as it was then.
pub(crate) fn feed_prompt(model: &mut TextModel, tokens: &[TokenId], cancelled: &AtomicBool) -> Result<Option<Part>> {
    let start = model.position();
    let mut rest = tokens;
    let mut part = Part::Prefill;
    while !rest.is_empty() {
        if cancelled.load(Ordering::Acquire) {
            model.rewind(start);
            return Ok(None);
        }
        let n;
        (part, n) = model.next_call(rest.len());
        let (chunk, after) = rest.split_at(n);
        model.feed(part, chunk)?;
        rest = after;
    }
    Ok(Some(part))
}
