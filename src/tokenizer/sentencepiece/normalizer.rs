//! What happens to a text before a SentencePiece model cuts it: character replacements and the treatment of spaces.

use super::super::check_length;
use super::super::error::{Defect, TokenizerError};
use super::charsmap::Charsmap;
use super::proto::Model;
use super::trie::Trie;
use super::{SPACE_SYMBOL, character_len};

#[derive(Debug, Clone)]
pub(super) struct Normalizer {
    charsmap: Charsmap,
    /// One space before the text, or behind it.
    dummy: Option<Dummy>,
    remove_extra_spaces: bool,
    space: &'static [u8],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Dummy {
    Prefix,
    Suffix,
}

impl Normalizer {
    pub(super) fn new(model: &Model<'_>) -> Result<Self, Defect> {
        let place = if model.space_is_suffix { Dummy::Suffix } else { Dummy::Prefix };
        Ok(Self {
            charsmap: Charsmap::parse(model.charsmap)?,
            dummy: model.add_dummy_prefix.then_some(place),
            remove_extra_spaces: model.remove_extra_whitespaces,
            space: if model.escape_whitespaces { SPACE_SYMBOL.as_bytes() } else { b" " },
        })
    }

    /// The text as the model sees it. Words of `keep` are not replaced.
    pub(super) fn normalize(&self, text: &str, keep: &Trie) -> Result<Vec<u8>, TokenizerError> {
        let mut input = text.as_bytes();
        let mut output = Vec::with_capacity(input.len() + input.len() / 4);
        if self.remove_extra_spaces {
            while let (b" ", rest) = self.next(input, keep) {
                input = rest;
            }
        }
        if input.is_empty() {
            return Ok(output);
        }
        if self.dummy == Some(Dummy::Prefix) {
            output.extend_from_slice(self.space);
        }
        let mut after_space = self.remove_extra_spaces;
        while !input.is_empty() {
            let (mut piece, rest) = self.next(input, keep);
            input = rest;
            while after_space && let Some(behind) = piece.strip_prefix(b" ") {
                piece = behind;
            }
            if let Some(last) = piece.last() {
                after_space = self.remove_extra_spaces && *last == b' ';
            }
            for byte in piece {
                match byte {
                    b' ' => output.extend_from_slice(self.space),
                    _ => output.push(*byte),
                }
            }
            check_length(output.len())?;
        }
        while self.remove_extra_spaces && output.ends_with(self.space) {
            output.truncate(output.len() - self.space.len());
        }
        if self.dummy == Some(Dummy::Suffix) {
            output.extend_from_slice(self.space);
        }
        Ok(output)
    }

    /// What the beginning of `input` becomes, and what is left of it; empty at the end.
    fn next<'a>(&'a self, input: &'a [u8], keep: &Trie) -> (&'a [u8], &'a [u8]) {
        if let Some((len, _)) = keep.longest(input) {
            return input.split_at(len);
        }
        match self.charsmap.longest(input) {
            Some((len, replacement)) => (replacement, &input[len..]),
            None => input.split_at(character_len(input)),
        }
    }
}
