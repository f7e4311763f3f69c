//! Which of the four formats a file has is found from its bytes, never from its name.

use super::error::{Attempt, Defect, TokenizerError};
use super::{HuggingFace, Llama2c, SentencePiece, Tiktoken, Tokenizer};
use crate::error::Result;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

/// Largest tokenizer file that is read, in bytes. The largest in the field has 40 MB.
pub const MAX_FILE: u64 = 256 << 20;

/// Loads the tokenizer file at `path`, whichever format it has.
///
/// The order, by content:
/// 1. the first character is `{`: Hugging Face `tokenizer.json`;
/// 2. the first line is base64, a space and a number: tiktoken;
/// 3. otherwise the first of these that fits to the last byte: SentencePiece `.model`, llama2.c with ExecuTorch's
///    header (vocabulary size, BOS, EOS, longest token), llama2.c as its author writes it (longest token only).
///
/// # Errors
/// [`TokenizerError::Unreadable`] and [`TokenizerError::NotAFile`] as [`AccessFailed`](crate::Status::AccessFailed);
/// a file that is none of these, or is damaged, as [`InvalidExternalData`](crate::Status::InvalidExternalData) with
/// the path, the formats tried and why each does not fit. Memory stays a small multiple of the file's size.
pub fn load(path: &Path) -> Result<Arc<dyn Tokenizer>> {
    from_bytes(&read(path)?, path)
}

/// As [`load`], from the file's bytes; `path` is for messages and says where files beside it would be.
///
/// # Errors
/// As [`load`], but for those of reading.
pub fn from_bytes(bytes: &[u8], path: &Path) -> Result<Arc<dyn Tokenizer>> {
    let tokenizer =
        parse(bytes, path).map_err(|attempts| TokenizerError::Unrecognized { path: path.into(), attempts })?;
    crate::log_info!(
        "tokenizer {}: {}, {} tokens, BOS {:?}, EOS {:?}",
        path.display(),
        tokenizer.format(),
        tokenizer.vocab_size(),
        tokenizer.bos(),
        tokenizer.eos(),
    );
    Ok(tokenizer)
}

fn read(path: &Path) -> Result<Vec<u8>, TokenizerError> {
    let unreadable = |source: io::Error| TokenizerError::Unreadable { path: path.into(), source };
    // Opening a pipe would wait for a writer, so the kind is looked at first.
    let metadata = std::fs::metadata(path).map_err(unreadable)?;
    if !metadata.is_file() {
        return Err(TokenizerError::NotAFile { path: path.into() });
    }
    let too_large = |size| TokenizerError::TooLarge { path: path.into(), size, limit: MAX_FILE };
    if metadata.len() > MAX_FILE {
        return Err(too_large(metadata.len()));
    }
    let mut bytes = Vec::new();
    File::open(path).and_then(|file| file.take(MAX_FILE + 1).read_to_end(&mut bytes)).map_err(unreadable)?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(too_large(bytes.len() as u64));
    }
    Ok(bytes)
}

fn parse(bytes: &[u8], path: &Path) -> Result<Arc<dyn Tokenizer>, Vec<Attempt>> {
    type Parsed = Result<Arc<dyn Tokenizer>, Defect>;
    let json = || -> Parsed { Ok(Arc::new(HuggingFace::from_file_bytes(bytes, path)?)) };
    let tiktoken = || -> Parsed { Ok(Arc::new(Tiktoken::from_bytes(bytes)?)) };
    let sentencepiece = || -> Parsed { Ok(Arc::new(SentencePiece::from_bytes(bytes)?)) };
    let with_header = || -> Parsed { Ok(Arc::new(Llama2c::from_bytes_with_header(bytes)?)) };
    let raw = || -> Parsed { Ok(Arc::new(Llama2c::from_raw_bytes(bytes)?)) };
    let empty = || -> Parsed { Err(Defect::Empty) };
    let no_json = || -> Parsed { Err(Defect::Beginning { expected: "{" }) };
    let no_tiktoken = || -> Parsed { Err(Defect::Beginning { expected: "a line of base64, a space and a number" }) };

    let candidates: &[(&'static str, &dyn Fn() -> Parsed)] = if bytes.is_empty() {
        &[("any format", &empty)]
    } else if HuggingFace::sniff(bytes) {
        &[("tokenizer.json", &json)]
    } else if Tiktoken::sniff(bytes) {
        &[("tiktoken", &tiktoken)]
    } else {
        &[
            ("tokenizer.json", &no_json),
            ("tiktoken", &no_tiktoken),
            ("SentencePiece", &sentencepiece),
            ("llama2.c with header", &with_header),
            ("llama2.c", &raw),
        ]
    };
    let mut attempts = Vec::new();
    for (format, parse) in candidates {
        match parse() {
            Ok(tokenizer) => return Ok(tokenizer),
            Err(defect) => attempts.push(Attempt { format, defect }),
        }
    }
    Err(attempts)
}
