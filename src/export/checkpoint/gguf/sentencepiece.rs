//! A GGUF tokenizer of SentencePiece's kind as a Hugging Face `tokenizer.json`: BPE with byte fallback, whose merges
//! follow from the scores.
//!
//! SentencePiece merges the two neighbours whose union has the best score; merges sorted by the score of their union
//! say the same, which is how Hugging Face's converters do it too.

use super::pieces::{Kind, MAX_PIECE, Piece, Pieces};
use super::tokenizer::wrong;
use crate::export::checkpoint::error::CheckpointError;
use serde_json::{Value, json};
use std::collections::HashMap;

/// The file. `prefix`: a space goes before each text.
pub(super) fn tokenizer(pieces: &Pieces<'_>, prefix: bool) -> Result<Value, CheckpointError> {
    let unknown = pieces.all.iter().find(|piece| piece.kind == Kind::Unknown).map(|piece| piece.text);
    let bytes = pieces.all.iter().filter(|piece| piece.kind == Kind::Byte).count();
    let prepend = prefix.then(|| json!({"type": "Prepend", "prepend": "▁"}));
    let strip = prefix.then(|| json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}));
    let replace =
        |pattern: &str, content: &str| json!({"type": "Replace", "pattern": {"String": pattern}, "content": content});
    let before: Vec<_> = prepend.into_iter().chain([replace(" ", "▁")]).collect();
    let behind = [replace("▁", " "), json!({"type": "ByteFallback"}), json!({"type": "Fuse"})];
    let behind: Vec<_> = behind.into_iter().chain(strip).collect();
    Ok(json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": pieces.added(),
        "normalizer": {"type": "Sequence", "normalizers": before},
        "pre_tokenizer": null,
        "post_processor": null,
        "decoder": {"type": "Sequence", "decoders": behind},
        "model": {
            "type": "BPE",
            "dropout": null,
            "unk_token": unknown,
            "continuing_subword_prefix": null,
            "end_of_word_suffix": null,
            "fuse_unk": true,
            "byte_fallback": bytes == 256,
            "ignore_merges": false,
            "vocab": pieces.vocabulary(),
            "merges": merges(pieces)?,
        },
    }))
}

/// Every way to make a token of two others, those of the best token first.
fn merges(pieces: &Pieces<'_>) -> Result<Vec<Value>, CheckpointError> {
    let normal = |(_, piece): &(usize, &Piece<'_>)| piece.kind == Kind::Normal;
    let by_text: HashMap<&str, usize> =
        pieces.all.iter().enumerate().filter(normal).map(|(id, piece)| (piece.text, id)).collect();
    let mut merges = Vec::new();
    for (id, piece) in pieces.all.iter().enumerate().filter(normal) {
        if piece.text.len() > MAX_PIECE {
            return Err(wrong("tokens", "texts of at most 1024 bytes"));
        }
        for (at, _) in piece.text.char_indices().skip(1) {
            let (left, right) = piece.text.split_at(at);
            if let (Some(&first), Some(&second)) = (by_text.get(left), by_text.get(right)) {
                merges.push((piece.score, id, first, second));
            }
        }
    }
    merges.sort_by(|a, b| b.0.total_cmp(&a.0).then((a.1, a.2, a.3).cmp(&(b.1, b.2, b.3))));
    let text = |id: usize| pieces.all[id].text;
    Ok(merges.into_iter().map(|(_, _, first, second)| json!([text(first), text(second)])).collect())
}
