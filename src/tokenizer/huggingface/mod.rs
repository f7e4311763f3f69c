//! Hugging Face `tokenizer.json`: the reference library encodes, this file gives it a border and a streaming decoder.

mod component;
mod decoder;
mod limits;
mod specials;

use self::decoder::Decoder;
use super::error::{Defect, TokenizerError};
use super::{Specials, TokenId, Tokenizer, check_id, check_length, surround};
use crate::error::Result;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// The file beside `tokenizer.json` that names its special tokens.
const CONFIG: &str = "tokenizer_config.json";
/// Most bytes of it that are read; chat templates make it long.
const MAX_CONFIG: u64 = 16 << 20;

/// A `tokenizer.json`.
///
/// Ids equal those of the Hugging Face `tokenizers` library without its own special tokens; truncation and padding
/// that the file asks for are left out. BOS and EOS are, the first that applies:
/// 1. `bos_token` and `eos_token` of a `tokenizer_config.json` in the same directory; `null` means there is none;
/// 2. the special tokens that the post-processor's template puts before and behind a text;
/// 3. the first special token with a well-known name, `<|begin_of_text|>`, `<s>`, `<bos>` … and `<|end_of_text|>`,
///    `</s>`, `<eos>`, `<|endoftext|>`, `<|im_end|>` ….
///
/// Decoding gives each token its own bytes: those of a byte-level token or of a byte-fallback token (`<0xF0>`) are one
/// part of a character. A space that the encoder put before the text is taken away again from the first token where
/// the file's decoder does so.
pub struct HuggingFace {
    tokenizer: tokenizers::Tokenizer,
    /// By id: what a token adds to a text, `None` for numbers that are left out.
    pieces: Vec<Option<Piece>>,
    bos: Option<TokenId>,
    eos: Vec<TokenId>,
}

struct Piece {
    bytes: Box<[u8]>,
    /// The same for the first token of a text, where that differs.
    first: Option<Box<[u8]>>,
}

impl HuggingFace {
    /// Whether the first character is `{`.
    pub(super) fn sniff(bytes: &[u8]) -> bool {
        bytes.trim_ascii_start().first() == Some(&b'{')
    }

    /// Reads the bytes of the file at `path`, and `tokenizer_config.json` beside it if there is one.
    pub(super) fn from_file_bytes(bytes: &[u8], path: &Path) -> Result<Self, Defect> {
        let companion = |reason| Defect::Companion { file: CONFIG, reason };
        let config = path.with_file_name(CONFIG);
        let config = match std::fs::metadata(&config) {
            Ok(metadata) if metadata.is_file() && metadata.len() <= MAX_CONFIG => {
                Some(std::fs::read(&config).map_err(|error| companion(error.to_string()))?)
            }
            Ok(_) => return Err(companion("it is not a regular file of at most 16 MB".into())),
            Err(_) => None,
        };
        Self::from_bytes(bytes, config.as_deref())
    }

    /// Reads `tokenizer.json` and, if there is one, `tokenizer_config.json`.
    pub fn from_bytes(bytes: &[u8], config: Option<&[u8]>) -> Result<Self, Defect> {
        component::check(bytes)?;
        let mut tokenizer =
            fenced(|| tokenizers::Tokenizer::from_bytes(bytes)).map_err(|reason| Defect::Json { reason })?;
        tokenizer.with_padding(None);
        tokenizer.with_truncation(None).map_err(|error| Defect::Json { reason: error.to_string() })?;

        let decoder = Decoder::new(tokenizer.get_decoder())?;
        let vocab = tokenizer.get_vocab(true);
        let highest = vocab.values().max().copied().ok_or(Defect::VocabSize { vocab: 0 })?;
        // Padded vocabularies leave out some numbers; a table for 2^32 of them is no tokenizer.
        if highest as usize > 4 * vocab.len() + (1 << 16) {
            return Err(Defect::SparseIds { highest: highest.into(), count: vocab.len() });
        }
        let mut pieces: Vec<Option<Piece>> = (0..=highest).map(|_| None).collect();
        for (text, id) in vocab {
            let (bytes, first) = (decoder.render(&text, false), decoder.render(&text, true));
            let first = (first != bytes).then(|| first.into());
            pieces[id as usize] = Some(Piece { bytes: bytes.into(), first });
        }
        let (bos, eos) = specials::find(&tokenizer, config)?;
        Ok(Self { tokenizer, pieces, bos, eos: eos.into_iter().collect() })
    }
}

impl Tokenizer for HuggingFace {
    fn format(&self) -> &'static str {
        "tokenizer.json"
    }

    fn vocab_size(&self) -> usize {
        self.pieces.len()
    }

    fn bos(&self) -> Option<TokenId> {
        self.bos
    }

    fn eos(&self) -> &[TokenId] {
        &self.eos
    }

    fn id_of(&self, piece: &str) -> Option<TokenId> {
        self.tokenizer.token_to_id(piece).map(TokenId::from)
    }

    fn encode(&self, text: &str, specials: Specials) -> Result<Vec<TokenId>> {
        check_length(text.len())?;
        let encoding = fenced(|| self.tokenizer.encode_fast(text, false));
        let encoding = encoding.map_err(|reason| TokenizerError::Split { reason })?;
        let body = encoding.get_ids().iter().map(|id| TokenId::from(*id));
        Ok(surround(self, specials, body)?)
    }

    fn decode(&self, previous: Option<TokenId>, token: TokenId) -> Result<Vec<u8>> {
        let vocab = self.pieces.len();
        let piece = self.pieces[check_id(token, vocab)?].as_ref();
        let piece = piece.ok_or(TokenizerError::UnknownId { id: token, vocab })?;
        let is_first = previous.is_none() || previous == self.bos;
        let bytes = piece.first.as_ref().filter(|_| is_first).unwrap_or(&piece.bytes);
        Ok(bytes.to_vec())
    }
}

/// Runs the library's code, which panics on some damaged files instead of refusing them.
fn fenced<T>(work: impl FnOnce() -> tokenizers::Result<T>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(result) => result.map_err(|error| error.to_string()),
        Err(_) => Err("the tokenizers library panicked".into()),
    }
}

#[cfg(test)]
mod tests;
