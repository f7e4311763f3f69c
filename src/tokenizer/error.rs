//! Every way in which a tokenizer file or a request to a tokenizer can be wrong.

use crate::error::{Error, Status};
use std::fmt;
use std::io;
use std::path::PathBuf;

/// A tokenizer could not be loaded, or could not do what was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenizerError {
    /// The file cannot be opened or read.
    #[error("cannot read tokenizer {}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// The path names a directory or a device.
    #[error("tokenizer {} is not a regular file", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// The file is larger than any tokenizer.
    #[error("tokenizer {} has {size} bytes, at most {limit} are read", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its size.
        size: u64,
        /// The limit.
        limit: u64,
    },
    /// No format fits.
    #[error("{} is no tokenizer that can be read; {}", path.display(), Reasons(attempts))]
    Unrecognized {
        /// The file.
        path: PathBuf,
        /// The formats that were tried, in order, each with the reason why it is not that.
        attempts: Vec<Attempt>,
    },
    /// The token number is not in the vocabulary.
    #[error("token {id} is outside the vocabulary of {vocab}")]
    UnknownId {
        /// The number.
        id: u64,
        /// Tokens in the vocabulary.
        vocab: usize,
    },
    /// A character has no token and the vocabulary has no token for its bytes.
    #[error("the vocabulary has no token for byte {byte:#04x} of the text")]
    NoTokenForByte {
        /// The byte.
        byte: u8,
    },
    /// The text is longer than positions can count.
    #[error("a text of {length} bytes is too long to encode")]
    TextTooLong {
        /// Its length.
        length: usize,
    },
    /// More special tokens were asked for than any model has use for.
    #[error("{count} special tokens asked for, at most {limit} are added")]
    TooManySpecials {
        /// The number asked for.
        count: usize,
        /// The limit.
        limit: usize,
    },
    /// The pattern that splits the text gave up, or the Hugging Face library refused the text.
    #[error("the text cannot be split into tokens: {reason}")]
    Split {
        /// What the pattern engine or library said.
        reason: String,
    },
}

impl From<TokenizerError> for Error {
    fn from(error: TokenizerError) -> Self {
        let status = match &error {
            TokenizerError::Unreadable { .. } | TokenizerError::NotAFile { .. } => Status::AccessFailed,
            TokenizerError::TooLarge { .. } | TokenizerError::Unrecognized { .. } => Status::InvalidExternalData,
            TokenizerError::UnknownId { .. }
            | TokenizerError::NoTokenForByte { .. }
            | TokenizerError::TextTooLong { .. }
            | TokenizerError::TooManySpecials { .. }
            | TokenizerError::Split { .. } => Status::TokenizerFailed,
        };
        Error::from_source(status, error)
    }
}

/// One format that was tried on a file.
#[derive(Debug)]
pub struct Attempt {
    /// The format: `tokenizer.json`, `tiktoken`, `SentencePiece`, `llama2.c`.
    pub format: &'static str,
    /// Why the file is not that.
    pub defect: Defect,
}

struct Reasons<'a>(&'a [Attempt]);

impl fmt::Display for Reasons<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, attempt) in self.0.iter().enumerate() {
            let separator = if i == 0 { "" } else { "; " };
            write!(f, "{separator}as {}: {}", attempt.format, attempt.defect)?;
        }
        Ok(())
    }
}

/// What is wrong with the bytes of a tokenizer file, and where.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Defect {
    /// There is nothing in it.
    #[error("the file is empty")]
    Empty,
    /// It does not begin as this format does.
    #[error("it does not begin with {expected}")]
    Beginning {
        /// What the format begins with.
        expected: &'static str,
    },
    /// It ends in the middle.
    #[error("{what} at byte {offset} needs {need} bytes, {have} are left")]
    Truncated {
        /// What was being read.
        what: &'static str,
        /// Where.
        offset: usize,
        /// Bytes needed.
        need: u64,
        /// Bytes left.
        have: usize,
    },
    /// It goes on after the last token.
    #[error("{count} bytes follow the last token, from byte {offset}")]
    TrailingBytes {
        /// The first of them.
        offset: usize,
        /// Their number.
        count: usize,
    },
    /// The number of tokens is not positive, or more than the file can hold.
    #[error("a vocabulary of {vocab} tokens, which is not positive or more than the file can hold")]
    VocabSize {
        /// The number in the file.
        vocab: i64,
    },
    /// A special token is not in the vocabulary.
    #[error("the {which} token {id} is outside the vocabulary of {vocab}")]
    SpecialOutside {
        /// `BOS` or `EOS`.
        which: &'static str,
        /// Its number.
        id: i64,
        /// Tokens in the vocabulary.
        vocab: usize,
    },
    /// The header's length of the longest token is not positive or out of all measure.
    #[error("the longest token has {length} bytes, allowed is 1 to {limit}")]
    LongestPiece {
        /// The length in the file.
        length: i64,
        /// The longest possible.
        limit: usize,
    },
    /// A token's text has a length that cannot be.
    #[error("token {index} has a length of {length}, allowed is 1 to {limit}")]
    PieceLength {
        /// The token.
        index: usize,
        /// Its length.
        length: i64,
        /// The longest possible.
        limit: usize,
    },
    /// A token's score is no finite number.
    #[error("token {index} has the score {score}")]
    Score {
        /// The token.
        index: usize,
        /// Its score, as text.
        score: String,
    },
    /// Two tokens have the same text.
    #[error("tokens {first} and {second} have the same text")]
    DuplicatePiece {
        /// The first of the two.
        first: usize,
        /// The second.
        second: usize,
    },
    /// Replacements make texts grow out of all measure.
    #[error("its {section} makes a text up to {growth} times as long, allowed is {limit} times")]
    Growth {
        /// `normalizer` or `decoder`.
        section: &'static str,
        /// How many times.
        growth: usize,
        /// The most that is allowed.
        limit: usize,
    },
    /// A number of a component is out of all measure.
    #[error("its {section} has the {field} {value}, which is out of all measure")]
    Number {
        /// `model` or `pre_tokenizer`.
        section: &'static str,
        /// The number's name.
        field: &'static str,
        /// The number.
        value: u64,
    },
    /// A protobuf field is malformed.
    #[error("protobuf: {problem} at byte {offset}")]
    Protobuf {
        /// What is wrong.
        problem: &'static str,
        /// Where.
        offset: usize,
    },
    /// A SentencePiece token has a type that does not exist.
    #[error("token {index} has the type {kind}, which does not exist")]
    PieceKind {
        /// The token.
        index: usize,
        /// Its type.
        kind: u64,
    },
    /// Not exactly one token stands for the unknown.
    #[error("{count} tokens stand for the unknown, there must be one")]
    UnknownPieces {
        /// How many do.
        count: usize,
    },
    /// A byte token is not of the form `<0x0A>`, or stands in a model without byte fallback.
    #[error("token {index} is no byte token that this model can have")]
    BytePiece {
        /// The token.
        index: usize,
    },
    /// A byte has no token.
    #[error("byte {byte:#04x} has no token")]
    MissingByte {
        /// The byte.
        byte: u8,
    },
    /// A SentencePiece model that is neither BPE nor unigram.
    #[error("model type {kind} (word = 3, character = 4) is not supported")]
    ModelKind {
        /// The number of the type.
        kind: u64,
    },
    /// The table of character replacements is damaged.
    #[error("the character map is damaged: {problem}")]
    Charsmap {
        /// What is wrong.
        problem: &'static str,
    },
    /// A line of a tiktoken file is malformed.
    #[error("line {line}: {problem}")]
    Line {
        /// The line, from 1.
        line: usize,
        /// What is wrong.
        problem: &'static str,
    },
    /// Not JSON, or not what the Hugging Face library takes.
    #[error("{reason}")]
    Json {
        /// What the parser said.
        reason: String,
    },
    /// A component that the Hugging Face library does not have.
    #[error("{section} of type {name} is unknown")]
    UnknownComponent {
        /// `normalizer`, `pre_tokenizer`, `post_processor`, `decoder` or `model`.
        section: &'static str,
        /// The type in the file.
        name: String,
    },
    /// A component that cannot turn one token after the other into text.
    #[error("decoder {name} is not supported: {reason}")]
    UnsupportedDecoder {
        /// The type in the file.
        name: String,
        /// Why not.
        reason: &'static str,
    },
    /// Token numbers with such gaps that the file cannot be meant so.
    #[error("token numbers go up to {highest} with only {count} tokens")]
    SparseIds {
        /// The highest number.
        highest: u64,
        /// Tokens in the file.
        count: usize,
    },
    /// `tokenizer_config.json` beside the file is damaged.
    #[error("{file} beside it: {reason}")]
    Companion {
        /// Its name.
        file: &'static str,
        /// What is wrong.
        reason: String,
    },
}
