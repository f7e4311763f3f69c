//! PromptProcessor: feeds the prompt in blocks, fills the cache, and makes the first token from the last row.

use super::decoder_runner::DecoderRunner;
use super::event::FinishReason;
use super::kv_manager::KvManager;
use super::model::Model;
use super::stage::{LastRow, Part, Stage};
use super::turn::{Source, Turn};
use crate::error::Result;
use crate::tokenizer::TokenId;
use std::sync::atomic::{AtomicBool, Ordering};

/// Processes the turn's prompt, which must fit [`Model::prompt_limit`]. Says whether the turn ends already; when that is
/// a cancellation before the first token, the context is as it was.
pub(crate) fn process_prompt(model: &mut Model, turn: &mut Turn<'_>) -> Result<Option<FinishReason>> {
    match feed_prompt(model, turn.prompt, turn.cancelled)? {
        None => Ok(Some(FinishReason::Cancelled)),
        Some(last) => {
            let source = Source { position: model.kv.len() - 1, row: last.row };
            turn.take(model.logits(last), source)
        }
    }
}

/// Takes `tokens`, which must fit [`Model::prompt_limit`], into the cache. Says where the last one's logits are; `None`
/// when there was a cancellation, and the context is as it was then.
///
/// The prefill method takes the prompt as far as its cache reaches, which is less than the context by a whole block;
/// the decode method takes the rest.
pub(crate) fn feed_prompt(model: &mut Model, tokens: &[TokenId], cancelled: &AtomicBool) -> Result<Option<LastRow>> {
    let Model { decoder, kv, prefill, decode, .. } = model;
    let start = kv.len();
    let mut rest = tokens;
    let mut last = None;
    let parts = [(Part::Prefill, prefill), (Part::Decode, decode)];
    for (by, stage) in parts.into_iter().filter_map(|(by, stage)| Some((by, stage.as_mut()?))) {
        if kv.len() < stage.reach(kv.len()) && !rest.is_empty() {
            last = feed_blocks(stage, decoder, kv, &mut rest, cancelled)?.map(|row| LastRow { by, row });
        }
    }
    if !rest.is_empty() {
        kv.rewind(&mut decoder.arena, start);
    }
    Ok(last)
}

/// Feeds as much of `rest` as the stage's cache takes. With the last of it, gives its row.
fn feed_blocks(
    stage: &mut Stage,
    decoder: &mut DecoderRunner,
    kv: &mut KvManager,
    rest: &mut &[TokenId],
    cancelled: &AtomicBool,
) -> Result<Option<usize>> {
    let reach = stage.reach(kv.len());
    stage.begin(&mut decoder.arena, kv);
    while !rest.is_empty() && kv.len() < reach && !cancelled.load(Ordering::Acquire) {
        let n = stage.ar().min(rest.len()).min(reach - kv.len());
        let (block, after) = rest.split_at(n);
        stage.feed(&mut decoder.arena, block, kv.len());
        stage.step(decoder, kv)?;
        stage.append(&mut decoder.arena, kv, n);
        *rest = after;
        if rest.is_empty() {
            return Ok(Some(n - 1));
        }
    }
    Ok(None)
}
