//! SentencePiece `.model` files, BPE and unigram, as the reference library encodes and as upstream's `SPTokenizer` decodes.

mod charsmap;
mod normalizer;
mod proto;
mod trie;
mod unigram;

use self::normalizer::Normalizer;
use self::proto::{Kind, Model, ModelKind};
use self::trie::Trie;
use self::unigram::Unigram;
use super::error::Defect;
use super::merge::{Pair, Parts, highest_first};
use super::{Specials, TokenId, Tokenizer, byte_of, check_id, check_length, surround, until_nul};
use crate::error::Result;
use std::collections::HashMap;
use std::ops::Range;

const SPACE_SYMBOL: &str = "\u{2581}";

/// A SentencePiece model.
///
/// Decoding keeps the ways of upstream's `SPTokenizer`, which hosts compare with: a control token (`<s>`) gives one
/// space, the byte token `<0x0A>` a newline, every other byte token its name in plain text (`<0xF0>`), and one space is
/// taken from the front of the first token.
pub struct SentencePiece {
    tokens: Vec<Token>,
    /// Normal, user-defined and unused tokens by text.
    words: HashMap<Box<[u8]>, u32>,
    /// Control, byte and unknown tokens by text.
    reserved: HashMap<Box<[u8]>, u32>,
    longest: usize,
    unknown: u32,
    bos: Option<TokenId>,
    eos: Vec<TokenId>,
    /// Tokens of the 256 bytes; empty without byte fallback.
    bytes: Vec<u32>,
    normalizer: Normalizer,
    user_defined: Trie,
    unigram: Option<Unigram>,
}

struct Token {
    kind: Kind,
    score: f32,
    /// What it decodes to; the space in front included.
    text: Box<[u8]>,
}

impl SentencePiece {
    /// Reads a `.model` file: a protobuf `ModelProto`.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Defect> {
        let model = Model::parse(bytes)?;
        let (mut words, mut reserved) = (HashMap::new(), HashMap::new());
        let mut byte_tokens = vec![None; 256];
        let (mut unknowns, mut user_defined) = (Vec::new(), Trie::new());
        for (index, piece) in model.pieces.iter().enumerate() {
            let map = if piece.kind.is_word() { &mut words } else { &mut reserved };
            if let Some(first) = map.insert(Box::from(piece.text), index as u32) {
                return Err(Defect::DuplicatePiece { first: first as usize, second: index });
            }
            match piece.kind {
                Kind::Unknown => unknowns.push(index as u32),
                Kind::UserDefined => user_defined.insert(piece.text, index as u32),
                Kind::Byte => {
                    let byte = byte_of(piece.text).filter(|_| model.byte_fallback);
                    byte_tokens[usize::from(byte.ok_or(Defect::BytePiece { index })?)] = Some(index as u32);
                }
                Kind::Normal | Kind::Control | Kind::Unused => {}
            }
        }
        let &[unknown] = &unknowns[..] else { return Err(Defect::UnknownPieces { count: unknowns.len() }) };
        let with_token = |(byte, id): (usize, &Option<u32>)| id.ok_or(Defect::MissingByte { byte: byte as u8 });
        let bytes = if model.byte_fallback {
            byte_tokens.iter().enumerate().map(with_token).collect::<Result<_, _>>()?
        } else {
            Vec::new()
        };
        let unigram = match model.kind {
            ModelKind::Unigram => Some(Unigram::new(&model.pieces, unknown)),
            ModelKind::Bpe => None,
        };
        let control = |text: &[u8]| {
            let id = *reserved.get(text)?;
            (model.pieces[id as usize].kind == Kind::Control).then_some(TokenId::from(id))
        };
        Ok(Self {
            bos: control(model.bos_piece),
            eos: control(model.eos_piece).into_iter().collect(),
            tokens: model.pieces.iter().map(Token::new).collect(),
            longest: model.pieces.iter().map(|piece| piece.text.len()).max().unwrap_or(0),
            normalizer: Normalizer::new(&model)?,
            words,
            reserved,
            unknown,
            bytes,
            user_defined,
            unigram,
        })
    }

    /// Cuts normalized text into ranges with their ids, by merging pairs of the best score.
    fn merge(&self, text: &[u8]) -> Vec<(Range<usize>, u32)> {
        let mut parts = Parts::new();
        let mut at = 0;
        while at < text.len() {
            let word = self.user_defined.longest(&text[at..]);
            let len = word.map_or_else(|| character_len(&text[at..]), |(len, _)| len);
            parts.push(len, word.is_some());
            at += len;
        }
        // How an unused token came to be, to take it apart again.
        let mut halves: HashMap<&[u8], Pair> = HashMap::new();
        parts.merge(|pair| {
            let range = pair.whole();
            // Longer than any token: not worth hashing.
            let id = if range.len() > self.longest { None } else { self.words.get(&text[range.clone()]) };
            let token = &self.tokens[*id? as usize];
            if token.kind == Kind::Unused {
                halves.insert(&text[range], pair);
            }
            Some(highest_first(token.score))
        });
        let mut pieces = Vec::new();
        for (range, _) in parts.ranges() {
            let mut open = vec![range];
            while let Some(range) = open.pop() {
                let id = self.id_of_bytes(&text[range.clone()]).unwrap_or(self.unknown);
                match halves.get(&text[range.clone()]) {
                    Some(pair) if self.tokens[id as usize].kind == Kind::Unused => {
                        let middle = range.start + (pair.middle - pair.start);
                        open.extend([middle..range.end, range.start..middle]);
                    }
                    _ => pieces.push((range, id)),
                }
            }
        }
        pieces
    }

    fn id_of_bytes(&self, text: &[u8]) -> Option<u32> {
        self.reserved.get(text).or_else(|| self.words.get(text)).copied()
    }
}

impl Tokenizer for SentencePiece {
    fn format(&self) -> &'static str {
        "SentencePiece"
    }

    fn vocab_size(&self) -> usize {
        self.tokens.len()
    }

    fn bos(&self) -> Option<TokenId> {
        self.bos
    }

    fn eos(&self) -> &[TokenId] {
        &self.eos
    }

    fn id_of(&self, piece: &str) -> Option<TokenId> {
        self.id_of_bytes(piece.as_bytes()).map(TokenId::from)
    }

    fn encode(&self, text: &str, specials: Specials) -> Result<Vec<TokenId>> {
        check_length(text.len())?;
        let text = self.normalizer.normalize(until_nul(text), &self.user_defined)?;
        let pieces = self.unigram.as_ref().map_or_else(|| self.merge(&text), |unigram| unigram.segment(&text));
        let mut body = Vec::with_capacity(pieces.len());
        let mut after_unknown = false;
        for (range, id) in pieces {
            let is_unknown = id == self.unknown;
            if is_unknown && !self.bytes.is_empty() {
                body.extend(text[range].iter().map(|byte| TokenId::from(self.bytes[usize::from(*byte)])));
            } else if !(is_unknown && after_unknown) {
                // A run of unknown characters is one token.
                body.push(TokenId::from(id));
            }
            after_unknown = is_unknown;
        }
        Ok(surround(self, specials, body.into_iter())?)
    }

    fn decode(&self, previous: Option<TokenId>, token: TokenId) -> Result<Vec<u8>> {
        let token = &self.tokens[check_id(token, self.tokens.len())?];
        let mut text = &*token.text;
        if token.kind != Kind::Control && (previous.is_none() || previous == self.bos) {
            text = text.strip_prefix(b" ").unwrap_or(text);
        }
        Ok(text.to_vec())
    }
}

impl Token {
    fn new(piece: &proto::Piece<'_>) -> Self {
        let text = match piece.kind {
            Kind::Control => b" ".to_vec(),
            _ => replace(&replace(piece.text, SPACE_SYMBOL.as_bytes(), b" "), b"<0x0A>", b"\n"),
        };
        Self { kind: piece.kind, score: piece.score, text: text.into() }
    }
}

fn replace(text: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut replaced = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, after @ ..] = rest {
        if let Some(behind) = rest.strip_prefix(from) {
            replaced.extend_from_slice(to);
            rest = behind;
        } else {
            replaced.push(*first);
            rest = after;
        }
    }
    replaced
}

/// The length of the UTF-8 character that begins with the first byte, at most what is left.
fn character_len(text: &[u8]) -> usize {
    let len = match text.first() {
        Some(0xC0..=0xDF) => 2,
        Some(0xE0..=0xEF) => 3,
        Some(0xF0..) => 4,
        _ => 1,
    };
    len.min(text.len())
}

#[cfg(test)]
mod tests;
