//! PromptProcessor: feeds the prompt in blocks, fills the cache, and makes the first token from the last row.

use super::decoder_runner::DecoderRunner;
use super::event::FinishReason;
use super::kv_manager::KvManager;
use super::model::Model;
use super::stage::Stage;
use super::turn::{Source, Turn};
use crate::error::Result;
use crate::tokenizer::TokenId;

/// Processes the turn's prompt, which must fit [`Model::prompt_limit`]. Says whether the turn ends already; when that is
/// a cancellation before the first token, the context is as it was.
///
/// The prefill method takes the prompt as far as its cache reaches, which is less than the context by a whole block;
/// the decode method takes the rest.
pub(crate) fn process_prompt(model: &mut Model, turn: &mut Turn<'_>) -> Result<Option<FinishReason>> {
    let Model { decoder, kv, prefill, decode, .. } = model;
    let start = kv.len();
    let mut rest = turn.prompt;
    let mut end = None;
    for stage in prefill.iter_mut().chain(decode) {
        if kv.len() < stage.reach(kv.len()) && !rest.is_empty() {
            end = feed_blocks(stage, decoder, kv, &mut rest, turn)?;
        }
    }
    if !rest.is_empty() {
        kv.rewind(&mut decoder.arena, start);
        return Ok(Some(FinishReason::Cancelled));
    }
    Ok(end)
}

/// Feeds as much of `rest` as the stage's cache takes. With the last of it, makes the first token.
fn feed_blocks(
    stage: &mut Stage,
    decoder: &mut DecoderRunner,
    kv: &mut KvManager,
    rest: &mut &[TokenId],
    turn: &mut Turn<'_>,
) -> Result<Option<FinishReason>> {
    let reach = stage.reach(kv.len());
    stage.begin(&mut decoder.arena, kv);
    while !rest.is_empty() && kv.len() < reach && !turn.is_cancelled() {
        let n = stage.ar().min(rest.len()).min(reach - kv.len());
        let (block, after) = rest.split_at(n);
        stage.feed(&mut decoder.arena, block, kv.len());
        stage.step(decoder, kv)?;
        stage.append(&mut decoder.arena, kv, n);
        *rest = after;
        if rest.is_empty() {
            let logits = stage.logits(&decoder.arena, n - 1);
            return turn.take(logits, Source { position: kv.len() - 1, row: n - 1 });
        }
    }
    Ok(None)
}
