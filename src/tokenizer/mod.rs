//! Text to token ids and back, for the four tokenizer files of the field.

use crate::error::{Error, Result, Status};
use std::path::Path;
use std::sync::Arc;

/// A token's number.
pub type TokenId = u64;

/// How many beginning- and end-of-sequence tokens to add around a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Specials {
    /// Beginning-of-sequence tokens in front.
    pub bos: usize,
    /// End-of-sequence tokens behind.
    pub eos: usize,
}

/// A tokenizer. Encoding takes time linear in the text.
pub trait Tokenizer: Send + Sync {
    /// Which file format it came from, for the log: `llama2.c`, `SentencePiece`, `tiktoken`, `tokenizer.json`.
    fn format(&self) -> &'static str;

    /// Number of tokens; ids are below it.
    fn vocab_size(&self) -> usize;

    /// The beginning-of-sequence token, if there is one.
    fn bos(&self) -> Option<TokenId>;

    /// The end-of-sequence tokens; empty when the file names none.
    fn eos(&self) -> &[TokenId];

    /// The id of the token whose whole text is `piece` (`<|eot_id|>`); never its first sub-token.
    fn id_of(&self, piece: &str) -> Option<TokenId>;

    /// Encodes `text`.
    fn encode(&self, text: &str, specials: Specials) -> Result<Vec<TokenId>>;

    /// The bytes that `token` adds to the text after token `previous`, possibly part of a UTF-8 character. An id outside
    /// the vocabulary is an error.
    fn decode(&self, previous: Option<TokenId>, token: TokenId) -> Result<Vec<u8>>;
}

/// Loads the tokenizer file at `path`, whichever format it has.
pub fn load(path: &Path) -> Result<Arc<dyn Tokenizer>> {
    Err(Error::new(Status::TokenizerFailed, format!("cannot read {}", path.display())))
}
