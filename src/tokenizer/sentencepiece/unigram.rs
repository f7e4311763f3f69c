//! The unigram model: of all ways to cut a text into tokens, the one with the highest sum of scores.

use super::character_len;
use super::proto::{Kind, Piece};
use super::trie::Trie;
use std::ops::Range;

/// How much worse than the worst token an unknown character is.
const UNKNOWN_PENALTY: f32 = 10.0;

pub(super) struct Unigram {
    words: Trie,
    /// Score and whether user-defined, by token.
    scores: Vec<(f32, bool)>,
    lowest: f32,
    highest: f32,
    unknown: u32,
}

/// The best way to cut the text up to some place.
#[derive(Clone, Copy)]
struct Best {
    /// Where its last token begins.
    start: u32,
    id: u32,
    score: f32,
}

impl Unigram {
    pub(super) fn new(pieces: &[Piece<'_>], unknown: u32) -> Self {
        let mut words = Trie::new();
        for (id, piece) in pieces.iter().enumerate() {
            if matches!(piece.kind, Kind::Normal | Kind::UserDefined) {
                words.insert(piece.text, id as u32);
            }
        }
        let normal = || pieces.iter().filter(|piece| piece.kind == Kind::Normal).map(|piece| piece.score);
        Self {
            words,
            scores: pieces.iter().map(|piece| (piece.score, piece.kind == Kind::UserDefined)).collect(),
            lowest: normal().fold(f32::MAX, f32::min),
            // The reference library begins with the smallest positive number; sums must be the same to the last bit.
            highest: normal().fold(f32::MIN_POSITIVE, f32::max),
            unknown,
        }
    }

    /// Cuts normalized text into ranges with their ids; a character without a token has the unknown one.
    pub(super) fn segment(&self, text: &[u8]) -> Vec<(Range<usize>, u32)> {
        // Indexed by where the way ends.
        let mut best: Vec<Option<Best>> = vec![None; text.len() + 1];
        let mut start = 0;
        while start < text.len() {
            let before = best[start].map_or(0.0, |best| best.score);
            let character = character_len(&text[start..]);
            let mut has_character = false;
            let mut offer = |len: usize, id: u32, score: f64| {
                let end = &mut best[start + len];
                if end.is_none_or(|best| score > f64::from(best.score)) {
                    *end = Some(Best { start: start as u32, id, score: score as f32 });
                }
            };
            for (len, id) in self.words.prefixes(&text[start..]) {
                let score = match self.scores[id as usize] {
                    (_, true) => f64::from(len as f32 * self.highest) - 0.1 + f64::from(before),
                    (score, false) => f64::from(score) + f64::from(before),
                };
                offer(len, id, score);
                has_character |= len == character;
            }
            if !has_character {
                offer(character, self.unknown, f64::from(self.lowest - UNKNOWN_PENALTY + before));
            }
            start += character;
        }
        let mut pieces = Vec::new();
        let mut end = text.len();
        while let Some(Best { start, id, .. }) = best[end] {
            pieces.push((start as usize..end, id));
            end = start as usize;
        }
        pieces.reverse();
        pieces
    }
}
