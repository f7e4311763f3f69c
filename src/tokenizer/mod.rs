//! Text to token ids and back, for the four tokenizer files of the field.
//!
//! [`load()`] finds the format by content. Encoding takes time (nearly) linear in the text, whichever file it is; the
//! token ids equal those of the reference: `meta-pytorch/tokenizers` for llama2.c, SentencePiece and tiktoken files,
//! Hugging Face `tokenizers` for `tokenizer.json`. [`Utf8Stream`] makes whole characters of what tokens decode to.

mod error;
mod huggingface;
mod llama2c;
mod load;
mod merge;
mod sentencepiece;
mod stream;
mod tiktoken;

pub use error::{Attempt, Defect, TokenizerError};
pub use huggingface::HuggingFace;
pub use llama2c::Llama2c;
pub use load::{MAX_FILE, from_bytes, load};
pub use sentencepiece::SentencePiece;
pub use stream::{Utf8Stream, complete_prefix_len};
pub use tiktoken::Tiktoken;

use crate::error::Result;

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

    /// Encodes `text`. Nothing is added but what `specials` asks for, and of that nothing that the file has no token
    /// for; of several end-of-sequence tokens the first is used.
    fn encode(&self, text: &str, specials: Specials) -> Result<Vec<TokenId>>;

    /// The bytes that `token` adds to the text after token `previous`, possibly part of a UTF-8 character. Without
    /// `previous`, or after the beginning-of-sequence token, the text begins with `token`. An id outside the
    /// vocabulary is an error.
    fn decode(&self, previous: Option<TokenId>, token: TokenId) -> Result<Vec<u8>>;
}

/// Most special tokens of one kind that [`Tokenizer::encode`] adds.
const MAX_SPECIALS: usize = 1 << 16;

/// Longest token text, in bytes, that a file may have; it bounds the time that encoding takes for each character.
const MAX_PIECE: usize = 4096;

/// Longest text, in bytes, before and after normalization: positions fit 32 bits.
const MAX_TEXT: usize = 1 << 30;

/// Refuses texts longer than [`MAX_TEXT`].
fn check_length(length: usize) -> Result<(), TokenizerError> {
    if length > MAX_TEXT { Err(TokenizerError::TextTooLong { length }) } else { Ok(()) }
}

/// `body` with special tokens around it.
fn surround(
    tokenizer: &dyn Tokenizer,
    specials: Specials,
    body: impl Iterator<Item = TokenId>,
) -> Result<Vec<TokenId>, TokenizerError> {
    let count = specials.bos.max(specials.eos);
    if count > MAX_SPECIALS {
        return Err(TokenizerError::TooManySpecials { count, limit: MAX_SPECIALS });
    }
    let bos = tokenizer.bos().into_iter().flat_map(|id| std::iter::repeat_n(id, specials.bos));
    let eos = tokenizer.eos().first().into_iter().flat_map(|id| std::iter::repeat_n(*id, specials.eos));
    let ids: Vec<TokenId> = bos.chain(body).chain(eos).collect();
    if let [first, second, ..] = ids[..]
        && first == second
        && tokenizer.bos() == Some(first)
    {
        crate::log_warning!("tokenizer: the text begins with more than one beginning-of-sequence token ({first})");
    }
    Ok(ids)
}

/// The index of `token` in a vocabulary of `vocab`, or the error that says it has none.
fn check_id(token: TokenId, vocab: usize) -> Result<usize, TokenizerError> {
    let unknown = TokenizerError::UnknownId { id: token, vocab };
    usize::try_from(token).ok().filter(|index| *index < vocab).ok_or(unknown)
}

/// The byte that a token of the form `<0x0A>` stands for.
fn byte_of(piece: &[u8]) -> Option<u8> {
    match piece {
        [b'<', b'0', b'x', high, low, b'>'] => {
            let digit = |hex: u8| char::from(hex).to_digit(16);
            Some((digit(*high)? * 16 + digit(*low)?) as u8)
        }
        _ => None,
    }
}

/// The text up to its first NUL: upstream hands texts on as C strings, and ids must equal its.
fn until_nul(text: &str) -> &str {
    let end = text.find('\0').unwrap_or(text.len());
    if end < text.len() {
        crate::log_warning!("tokenizer: {} bytes of text from a NUL character on are left out", text.len() - end);
    }
    &text[..end]
}
