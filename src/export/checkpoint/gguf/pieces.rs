//! The tokens of a GGUF file: texts, types and scores.

use super::metadata::Metadata;
use super::tokenizer::wrong;
use crate::export::checkpoint::error::CheckpointError;
use serde_json::{Map, Value, json};
use std::collections::HashMap;

/// Longest token from which merges are derived, in bytes.
pub(super) const MAX_PIECE: usize = 1024;

/// What a token is, `tokenizer.ggml.token_type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Normal,
    Unknown,
    Control,
    UserDefined,
    Unused,
    Byte,
}

/// A token.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Piece<'a> {
    pub text: &'a str,
    pub kind: Kind,
    /// Higher merges first; 0 where the file has none.
    pub score: f64,
}

/// All tokens by number, each text once.
#[derive(Debug)]
pub(super) struct Pieces<'a> {
    pub all: Vec<Piece<'a>>,
}

impl<'a> Pieces<'a> {
    pub fn read(metadata: &'a Metadata) -> Result<Self, CheckpointError> {
        let texts = metadata.texts("tokenizer.ggml.tokens");
        let texts = texts.filter(|texts| !texts.is_empty()).ok_or_else(|| wrong("tokens", "a list of texts"))?;
        let numbers = |key: &'static str, expected: &'static str| match metadata
            .get(&format!("tokenizer.ggml.{key}"))
            .map(|_| metadata.numbers(&format!("tokenizer.ggml.{key}")))
        {
            None => Ok(None),
            Some(Some(numbers)) if numbers.len() == texts.len() => Ok(Some(numbers)),
            Some(_) => Err(wrong(key, expected)),
        };
        let kinds = numbers("token_type", "a number from 1 to 6 for each token")?;
        let scores = numbers("scores", "a finite number for each token")?;
        if scores.iter().flatten().any(|score| !score.is_finite()) {
            return Err(wrong("scores", "a finite number for each token"));
        }
        let mut first = HashMap::with_capacity(texts.len());
        let piece = |(id, &text): (usize, &&'a str)| {
            let kind = kinds.as_ref().map_or(Ok(Kind::Normal), |kinds| kind(kinds[id]))?;
            if text.is_empty() || first.insert(text, id).is_some() {
                return Err(wrong("tokens", "texts of at least one byte, each once"));
            }
            Ok(Piece { text, kind, score: scores.as_ref().map_or(0.0, |scores| scores[id]) })
        };
        Ok(Self { all: texts.iter().enumerate().map(piece).collect::<Result<_, _>>()? })
    }

    /// The text of token `id`.
    pub fn text(&self, id: u64) -> Option<&'a str> {
        self.all.get(usize::try_from(id).ok()?).map(|piece| piece.text)
    }

    /// `model.vocab`
    pub fn vocabulary(&self) -> Map<String, Value> {
        self.all.iter().enumerate().map(|(id, piece)| (piece.text.to_owned(), id.into())).collect()
    }

    /// `added_tokens`: those that are taken out of a text before it is split.
    pub fn added(&self) -> Vec<Value> {
        let whole = |(id, piece): (usize, &Piece<'_>)| {
            let special = matches!(piece.kind, Kind::Control | Kind::Unknown);
            (special || piece.kind == Kind::UserDefined).then(|| {
                json!({
                    "id": id,
                    "content": piece.text,
                    "single_word": false,
                    "lstrip": false,
                    "rstrip": false,
                    "normalized": false,
                    "special": special,
                })
            })
        };
        self.all.iter().enumerate().filter_map(whole).collect()
    }
}

fn kind(number: f64) -> Result<Kind, CheckpointError> {
    Ok(match number as i64 {
        1 => Kind::Normal,
        2 => Kind::Unknown,
        3 => Kind::Control,
        4 => Kind::UserDefined,
        5 => Kind::Unused,
        6 => Kind::Byte,
        _ => return Err(wrong("token_type", "a number from 1 to 6 for each token")),
    })
}
