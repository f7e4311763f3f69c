//! The tokenizer of an export: where it is found, what is written of it, and the calibration tokens that it makes.

use super::ModelConfig;
use super::checkpoint::{Checkpoint, TokenizerFiles};
use super::options::{Calibration, Mode, Options, OptionsError};
use crate::base::whole_file;
use crate::error::{Context, Error, Result, Status};
use crate::tokenizer::{self, HuggingFace, Specials, TokenId, Tokenizer};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Names of tokenizers beside a checkpoint, the first of which is taken.
const BESIDE: [&str; 3] = ["tokenizer.json", "tokenizer.model", "tokenizer.bin"];

/// Text of many kinds, written for this.
const PROSE: &str = include_str!("prose.txt");

/// Longest calibration file, in bytes.
const MAX_CALIBRATION: u64 = 64 << 20;

/// A tokenizer and where it comes from.
pub struct Found {
    /// The tokenizer.
    pub tokenizer: Arc<dyn Tokenizer>,
    /// Its file; for one out of a GGUF file, the file that [`Found::save`] writes.
    pub path: PathBuf,
    made: Option<TokenizerFiles>,
}

impl Found {
    /// The tokenizer that was named, that of the checkpoint itself, or one beside it; `None` without any.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn of(options: &Options, checkpoint: &Checkpoint) -> Result<Option<Self>> {
        let file = |path: PathBuf| Ok(Some(Self { tokenizer: tokenizer::load(&path)?, path, made: None }));
        if let Some(path) = &options.tokenizer {
            return file(path.clone());
        }
        if let Some(made) = checkpoint.tokenizer_files()? {
            let path = options.output.with_file_name("tokenizer.json");
            // Not a tokenizer_config.json that happens to lie where this one will: it is of an earlier export.
            let tokenizer = HuggingFace::from_bytes(&made.tokenizer, Some(&made.config))
                .map_err(|defect| Error::from_source(Status::InvalidExternalData, defect))
                .with_context(|| format!("the tokenizer of {}", options.checkpoint.display()))?;
            return Ok(Some(Self { tokenizer: Arc::new(tokenizer), path, made: Some(made) }));
        }
        let folder = match options.checkpoint.is_dir() {
            true => options.checkpoint.as_path(),
            false => options.checkpoint.parent().unwrap_or(Path::new("")),
        };
        match BESIDE.map(|name| folder.join(name)).into_iter().find(|path| path.is_file()) {
            Some(path) => file(path),
            None => Ok(None),
        }
    }

    /// Writes what the checkpoint held beside the program; nothing for a tokenizer that is a file already.
    ///
    /// # Errors
    /// `AccessFailed`; names the file.
    pub fn save(&self) -> Result<Vec<PathBuf>> {
        let Some(made) = &self.made else { return Ok(Vec::new()) };
        let config = self.path.with_file_name("tokenizer_config.json");
        for (path, bytes) in [(&self.path, &made.tokenizer), (&config, &made.config)] {
            write_whole(path, bytes)?;
        }
        Ok(vec![self.path.clone(), config])
    }
}

/// Writes a file of which nobody ever sees a part.
///
/// # Errors
/// `AccessFailed`; names the file.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    whole_file::write(path, &|out| out.write_all(bytes))
        .map_err(|error| Error::new(Status::AccessFailed, format!("cannot write {}: {error}", path.display())))
}

/// Whether the program will be able to read what it is to be asked.
///
/// # Errors
/// [`OptionsError`] when there is no tokenizer, it makes tokens that the model does not know, or the context is too
/// short.
pub fn check_questions(options: &Options, config: &ModelConfig, found: Option<&Found>) -> Result<()> {
    let (context, mut tokens) = (options.lengths.context(), 0);
    for (question, number) in options.questions.iter().zip(1..) {
        let found = found.ok_or(OptionsError::NoTokenizer)?;
        // A program that reads whole contexts is asked anew each time.
        let is_first = number == 1 || options.mode == Mode::Prefill;
        let read = found.tokenizer.encode(question, Specials { bos: usize::from(is_first), eos: 0 })?;
        if let Some(&token) = read.iter().find(|&&token| token >= config.vocab as u64) {
            let (vocab, tokenizer) = (config.vocab, found.path.clone());
            return Err(OptionsError::StrangeQuestion { number, token, vocab, tokenizer }.into());
        }
        tokens = read.len() + if is_first { 0 } else { tokens };
        if tokens >= context {
            return Err(OptionsError::QuestionTooLong { number, tokens, context }.into());
        }
    }
    Ok(())
}

/// The texts that the model is calibrated on. Each begins with the beginning-of-sequence token.
///
/// # Errors
/// A file that cannot be read, is no text or no list of tokens; a text without a tokenizer to read it.
pub fn calibration(options: &Options, tokenizer: Option<&dyn Tokenizer>) -> Result<Vec<Vec<TokenId>>> {
    let encode = |text: &str| match tokenizer {
        Some(tokenizer) => tokenizer.encode(text, Specials { bos: 1, eos: 0 }),
        None => Err(Error::new(
            Status::InvalidArgument,
            "there is no tokenizer to read the calibration text with: name one, or calibrate on a file of tokens",
        )),
    };
    match &options.calibration {
        Calibration::Prompts(texts) => texts.iter().map(|text| encode(text)).collect(),
        Calibration::TextFile(path) => {
            let text = String::from_utf8(read(path)?);
            let text = text.map_err(|error| {
                let at = error.utf8_error().valid_up_to();
                damaged(path, format!("it is not UTF-8 at byte {at}"))
            })?;
            Ok(vec![encode(&text)?])
        }
        Calibration::TokenFile(path) => {
            let bytes = read(path)?;
            let (ids, rest) = bytes.as_chunks::<8>();
            match rest.is_empty() {
                true => Ok(vec![ids.iter().map(|id| TokenId::from_le_bytes(*id)).collect()]),
                false => Err(damaged(path, format!("{} bytes are no 64-bit tokens", bytes.len()))),
            }
        }
    }
}

/// General prose, for models that cannot be asked for a text of their own; empty without a tokenizer.
///
/// # Errors
/// Those of the tokenizer.
pub fn prose(tokenizer: Option<&dyn Tokenizer>) -> Result<Vec<TokenId>> {
    tokenizer.map_or(Ok(Vec::new()), |tokenizer| tokenizer.encode(PROSE, Specials { bos: 0, eos: 0 }))
}

fn read(path: &Path) -> Result<Vec<u8>> {
    let fail = |error: std::io::Error| {
        Error::new(Status::AccessFailed, format!("calibration file {}: {error}", path.display()))
    };
    let metadata = std::fs::metadata(path).map_err(fail)?;
    if !metadata.is_file() {
        return Err(damaged(path, "it is not a regular file".into()));
    }
    if metadata.len() > MAX_CALIBRATION {
        return Err(damaged(path, format!("it is longer than {MAX_CALIBRATION} bytes")));
    }
    std::fs::read(path).map_err(fail)
}

fn damaged(path: &Path, why: String) -> Error {
    Error::new(Status::InvalidExternalData, format!("calibration file {}: {why}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::options::Backend;
    use crate::export::testing::tiny_config;

    fn tokens(calibration_of: Calibration) -> Result<Vec<Vec<TokenId>>> {
        let mut options = Options::new("model.bin".into(), "model.pte".into(), Backend::Qnn);
        options.calibration = calibration_of;
        calibration(&options, None)
    }

    #[test]
    fn what_will_be_asked_must_be_readable_and_fit() {
        let mut options = Options::new("model.bin".into(), "model.pte".into(), Backend::Qnn);
        options.lengths.max_seq_len = 16;
        let config = ModelConfig { vocab: 300, ..tiny_config() };
        let check = |questions: &[&str], mode| {
            let options =
                Options { questions: questions.iter().map(|&text| text.into()).collect(), mode, ..options.clone() };
            let bytes = include_bytes!("../../assets/tokenizer.json");
            let tokenizer = tokenizer::from_bytes(bytes, Path::new("t.bin")).unwrap();
            let found = Found { tokenizer, path: "t.bin".into(), made: None };
            check_questions(&options, &config, Some(&found)).map_err(|error| error.chain())
        };
        let long = "\n".repeat(9);
        assert_eq!(check(&[], Mode::Hybrid), Ok(()));
        assert_eq!(check(&[&long], Mode::Hybrid), Ok(()));
        assert_eq!(check(&[&long, &long], Mode::Prefill), Ok(()));
        let error = check(&[&long, &long], Mode::Hybrid).unwrap_err();
        assert_eq!(error, "prompt 2 needs 19 tokens with what is before it, a context of 16 has room for 15");
        let error = check(&["Once upon a time"], Mode::Kv).unwrap_err();
        assert!(error.contains("is outside the model's vocabulary of 300: is t.bin its tokenizer?"), "{error}");
        let asked = Options { questions: vec!["x".into()], ..options.clone() };
        let error = check_questions(&asked, &config, None).unwrap_err();
        assert_eq!(error.find(), Some(&OptionsError::NoTokenizer));
    }

    #[test]
    fn token_files_are_little_endian_and_whole() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let ids = |bytes: &[u8]| {
            std::fs::write(file.path(), bytes).unwrap();
            tokens(Calibration::TokenFile(file.path().into()))
        };
        assert_eq!(ids(&[1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0]).unwrap(), [[1, 256]]);
        let error = ids(&[0; 9]).unwrap_err();
        assert_eq!(error.status(), Status::InvalidExternalData);
        assert!(error.chain().ends_with("9 bytes are no 64-bit tokens"), "{error:?}");
    }

    #[test]
    fn files_that_are_no_text_are_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("text.txt");
        let refused = |path: &Path| tokens(Calibration::TextFile(path.into())).unwrap_err();
        let error = refused(&path);
        assert!(error.status() == Status::AccessFailed && error.chain().contains("text.txt"), "{error:?}");
        assert!(refused(folder.path()).chain().ends_with("it is not a regular file"));
        std::fs::write(&path, b"ab\xff").unwrap();
        assert!(refused(&path).chain().ends_with("it is not UTF-8 at byte 2"));
        std::fs::File::create(&path).unwrap().set_len(MAX_CALIBRATION + 1).unwrap();
        assert!(refused(&path).chain().contains("it is longer than"));
    }

    #[test]
    fn a_text_without_a_tokenizer_is_an_error() {
        let error = tokens(Calibration::Prompts(vec!["Once".into()])).unwrap_err();
        assert!(error.status() == Status::InvalidArgument && error.chain().contains("no tokenizer"), "{error:?}");
    }

    #[test]
    fn a_failed_write_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("file");
        std::fs::create_dir(&place).unwrap();
        assert_eq!(write_whole(&place, b"x").unwrap_err().status(), Status::AccessFailed);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        write_whole(&folder.path().join("other"), b"xy").unwrap();
        assert_eq!(std::fs::read(folder.path().join("other")).unwrap(), b"xy");
    }
}
