//! What the turns start from: texts in the model family's chat template, or token ids from a file.

use crate::settings::{Input, Settings};
use llama_runner::runner::{Family, Prompt};
use llama_runner::tokenizer::{TokenId, Tokenizer};
use llama_runner::{Error, Result, Status};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Most tokens that a file may hold; far above any context.
const MAX_TOKENS: u64 = 1 << 24;

/// The start of one turn.
#[derive(Debug, Clone, PartialEq)]
pub enum TurnPrompt {
    /// In the family's template.
    Text(String),
    /// Not empty.
    Tokens(Vec<TokenId>),
}

impl TurnPrompt {
    /// As the runner takes it.
    pub fn as_prompt(&self) -> Prompt<'_> {
        match self {
            Self::Text(text) => Prompt::Text(text),
            Self::Tokens(tokens) => Prompt::Tokens(tokens),
        }
    }

    /// The bytes that stand for it in the output file.
    pub fn echo(&self, tokenizer: &dyn Tokenizer) -> Result<Vec<u8>> {
        let tokens = match self {
            Self::Text(text) => return Ok(text.clone().into_bytes()),
            Self::Tokens(tokens) => tokens,
        };
        let mut text = Vec::new();
        let mut previous = None;
        for &token in tokens {
            // A text prompt is echoed without the beginning-of-sequence token too.
            if previous.is_some() || tokenizer.bos() != Some(token) {
                text.extend_from_slice(&tokenizer.decode(previous, token)?);
            }
            previous = Some(token);
        }
        Ok(text)
    }
}

/// The turns of one iteration.
pub fn turns(settings: &Settings) -> Result<Vec<TurnPrompt>> {
    match &settings.input {
        Input::Tokens(path) => Ok(vec![TurnPrompt::Tokens(read_tokens(path)?)]),
        Input::Texts(texts) => {
            let family = Family::from_name(&settings.family)?;
            let prompt = |text: &String| match text.as_str() {
                // Stays empty, so that the runner refuses it instead of answering a bare template.
                "" => TurnPrompt::Text(String::new()),
                text => TurnPrompt::Text(family.format_prompt(text, &settings.system_prompt)),
            };
            Ok(texts.iter().map(prompt).collect())
        }
    }
}

/// The 64-bit little-endian ids of the file at `path`.
fn read_tokens(path: &Path) -> Result<Vec<TokenId>> {
    let fail = |status, why: String| Error::new(status, format!("tokenized prompt {}: {why}", path.display()));
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(8 * MAX_TOKENS + 1).read_to_end(&mut bytes))
        .map_err(|error| fail(Status::AccessFailed, error.to_string()))?;
    let (ids, rest) = bytes.as_chunks::<8>();
    if bytes.len() as u64 > 8 * MAX_TOKENS {
        return Err(fail(Status::InvalidExternalData, format!("it holds more than {MAX_TOKENS} ids")));
    }
    if !rest.is_empty() {
        let why = format!("its size of {} bytes is no multiple of 8 (64-bit ids)", bytes.len());
        return Err(fail(Status::InvalidExternalData, why));
    }
    if ids.is_empty() {
        return Err(fail(Status::InvalidExternalData, "it is empty".to_owned()));
    }
    Ok(ids.iter().map(|&id| u64::from_le_bytes(id)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use llama_runner::tokenizer::Specials;

    /// Token 1 begins a sequence; token n is the letter n.
    struct Letters;

    impl Tokenizer for Letters {
        fn format(&self) -> &'static str {
            "letters"
        }
        fn vocab_size(&self) -> usize {
            128
        }
        fn bos(&self) -> Option<TokenId> {
            Some(1)
        }
        fn eos(&self) -> &[TokenId] {
            &[]
        }
        fn id_of(&self, _piece: &str) -> Option<TokenId> {
            None
        }
        fn encode(&self, text: &str, _specials: Specials) -> Result<Vec<TokenId>> {
            Ok(text.bytes().map(TokenId::from).collect())
        }
        fn decode(&self, _previous: Option<TokenId>, token: TokenId) -> Result<Vec<u8>> {
            Ok(vec![token as u8])
        }
    }

    #[test]
    fn the_echo_of_tokens_is_their_text_without_the_first_bos() {
        let echo = |tokens: &[TokenId]| TurnPrompt::Tokens(tokens.to_vec()).echo(&Letters).unwrap();
        assert_eq!(echo(&[1, 104, 105]), b"hi");
        assert_eq!(echo(&[104, 1, 105]), b"h\x01i");
        assert_eq!(TurnPrompt::Text("hé".into()).echo(&Letters).unwrap(), "hé".as_bytes());
    }

    #[test]
    fn texts_are_in_the_familys_template_and_empty_ones_stay_empty() {
        let line = ["--decoder_model_version=phi_4_mini", "--system_prompt=S", "--prompt=U", "--prompt="];
        let parsed = crate::gflags::parse(crate::settings::FLAGS, line.map(Into::into)).unwrap();
        let prompts = turns(&Settings::new(&parsed).unwrap()).unwrap();
        let want = ["<|system|>S<|end|><|user|>U<|end|><|assistant|>", ""];
        assert_eq!(prompts, want.map(|text| TurnPrompt::Text(text.to_owned())));
    }

    #[test]
    fn ids_are_little_endian() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ids.bin");
        std::fs::write(&path, [1, 0, 0, 0, 0, 0, 0, 0, 0x93, 1, 0, 0, 0, 0, 0, 0]).unwrap();
        assert_eq!(read_tokens(&path).unwrap(), [1, 403]);
    }

    #[test]
    fn each_way_a_token_file_can_be_wrong_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ids.bin");
        assert_eq!(read_tokens(&path).unwrap_err().status(), Status::AccessFailed);
        assert_eq!(read_tokens(dir.path()).unwrap_err().status(), Status::AccessFailed);
        for (size, want) in
            [(0, "it is empty"), (7, "7 bytes is no multiple of 8"), (17, "17 bytes is no multiple of 8")]
        {
            std::fs::write(&path, vec![0u8; size]).unwrap();
            let error = read_tokens(&path).unwrap_err();
            assert_eq!(error.status(), Status::InvalidExternalData);
            assert!(error.chain().contains(want) && error.chain().contains("ids.bin"), "{}", error.chain());
        }
    }
}
