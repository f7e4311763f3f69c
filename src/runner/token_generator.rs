//! TokenGenerator: the decode loop. One step, one token.

use super::event::FinishReason;
use super::model::Model;
use super::turn::{Source, Turn};
use crate::error::Result;

/// Decodes until the turn ends. The last token of a turn is not fed; the next turn continues without it.
///
/// The decode method may take several tokens a step; only its first row is used.
pub(crate) fn generate(model: &mut Model, turn: &mut Turn<'_>) -> Result<FinishReason> {
    let Model { decoder, kv, decode: Some(stage), .. } = model else { return Ok(FinishReason::ContextFull) };
    stage.begin(&mut decoder.arena, kv);
    loop {
        let position = kv.len();
        if let Some(reason) = turn.end_at(position) {
            return Ok(reason);
        }
        stage.feed(&mut decoder.arena, &[turn.last()], position);
        stage.step(decoder, kv)?;
        let end = turn.take(stage.logits(&decoder.arena, 0), Source { position, row: 0 })?;
        stage.append(&mut decoder.arena, kv, 1);
        match end {
            Some(reason) => return Ok(reason),
            None if kv.len() == position => return Ok(FinishReason::ContextFull),
            None => {}
        }
    }
}
