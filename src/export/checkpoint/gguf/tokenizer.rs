//! A GGUF file's tokenizer and chat template as the two files that Hugging Face models have.

use super::byte_level::{self, Split};
use super::metadata::Metadata;
use super::pieces::Pieces;
use super::sentencepiece;
use crate::export::checkpoint::TokenizerFiles;
use crate::export::checkpoint::error::CheckpointError;
use serde_json::{Map, Value};

/// The files, for any of the two kinds of tokenizers.
pub(in crate::export::checkpoint) fn tokenizer_files(metadata: &Metadata) -> Result<TokenizerFiles, CheckpointError> {
    let model = metadata.text("tokenizer.ggml.model").ok_or_else(|| wrong("model", "gpt2 or llama"))?;
    let pieces = Pieces::read(metadata)?;
    let (tokenizer, adds_bos) = match model {
        "gpt2" => {
            let split = Split::of(metadata.text("tokenizer.ggml.pre").unwrap_or("default"))?;
            let merges = metadata.texts("tokenizer.ggml.merges").ok_or_else(|| wrong("merges", "a list of texts"))?;
            (byte_level::tokenizer(&pieces, &merges, split)?, split == Split::Llama3)
        }
        "llama" => {
            let prefix = metadata.flag("tokenizer.ggml.add_space_prefix").unwrap_or(true);
            (sentencepiece::tokenizer(&pieces, prefix)?, true)
        }
        other => {
            let (value, supported) = (other.into(), "gpt2, llama");
            return Err(CheckpointError::Unsupported { feature: "GGUF tokenizer", value, supported });
        }
    };
    let config = config(metadata, &pieces, adds_bos)?;
    Ok(TokenizerFiles { tokenizer: tokenizer.to_string().into(), config: Value::from(config).to_string().into() })
}

fn config(metadata: &Metadata, pieces: &Pieces<'_>, adds_bos: bool) -> Result<Map<String, Value>, CheckpointError> {
    let mut config = Map::new();
    for (name, key) in [("bos_token", "bos"), ("eos_token", "eos"), ("unk_token", "unknown"), ("pad_token", "padding")]
    {
        let text = match metadata.count(&format!("tokenizer.ggml.{key}_token_id")) {
            Some(id) => {
                let text = pieces.text(id);
                Some(text.ok_or_else(|| wrong(&format!("{key}_token_id"), "the number of a token"))?)
            }
            None => None,
        };
        config.insert(name.into(), text.into());
    }
    for (name, default) in [("add_bos_token", adds_bos), ("add_eos_token", false)] {
        config.insert(name.into(), metadata.flag(&format!("tokenizer.ggml.{name}")).unwrap_or(default).into());
    }
    if let Some(template) = metadata.text("tokenizer.chat_template") {
        config.insert("chat_template".into(), template.into());
    }
    Ok(config)
}

/// A value of the tokenizer that is missing or not what it should be.
pub(super) fn wrong(key: &str, expected: &'static str) -> CheckpointError {
    let (file, value) = ("GGUF".into(), "missing or something else".into());
    CheckpointError::Field { file, field: format!("tokenizer.ggml.{key}"), value, expected }
}
