//! TextTokenGenerator: the decode loop. One call, one token.

use super::model::TextModel;
use crate::error::Result;
use crate::runner::event::FinishReason;
use crate::runner::stage::Part;
use crate::runner::turn::{Source, Turn};

/// Decodes until the turn ends. The last token of a turn is not fed; the next turn continues without it.
pub(crate) fn generate(model: &mut TextModel, turn: &mut Turn<'_>) -> Result<FinishReason> {
    loop {
        let position = model.position();
        if let Some(reason) = turn.end_at(position) {
            return Ok(reason);
        }
        model.feed(Part::Decode, &[turn.last()])?;
        let (row, logits) = model.logits(Part::Decode)?;
        if let Some(reason) = turn.take(logits, Source { position, row })? {
            return Ok(reason);
        }
    }
}
