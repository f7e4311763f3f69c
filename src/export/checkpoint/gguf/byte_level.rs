//! A GGUF tokenizer of GPT-2's kind as a Hugging Face `tokenizer.json`: byte-level BPE whose merges are in the file.

use super::pieces::Pieces;
use crate::export::checkpoint::error::CheckpointError;
use serde_json::{Value, json};

/// Words as GPT-4's tokenizer splits them; Llama 3 takes up to three digits together, Qwen2 one.
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN2: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// How text is split before merging, `tokenizer.ggml.pre`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Split {
    Gpt2,
    SmolLm,
    Llama3,
    Qwen2,
}

impl Split {
    /// By llama.cpp's name.
    pub fn of(name: &str) -> Result<Self, CheckpointError> {
        match name {
            "gpt-2" | "phi-2" | "default" => Ok(Self::Gpt2),
            "smollm" => Ok(Self::SmolLm),
            "llama-bpe" | "llama3" | "llama-v3" => Ok(Self::Llama3),
            "qwen2" | "deepseek-r1-qwen" => Ok(Self::Qwen2),
            other => Err(CheckpointError::Unsupported {
                feature: "GGUF pre-tokenizer",
                value: other.into(),
                supported: "gpt-2, smollm, llama-bpe, qwen2",
            }),
        }
    }

    fn pre_tokenizer(self) -> Value {
        let byte_level = |use_regex| json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": use_regex});
        let sequence = |first| json!({"type": "Sequence", "pretokenizers": first});
        let pattern = |regex| {
            let split = json!({"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": false});
            sequence([split, byte_level(false)])
        };
        match self {
            Self::Gpt2 => byte_level(true),
            Self::SmolLm => sequence([json!({"type": "Digits", "individual_digits": true}), byte_level(true)]),
            Self::Llama3 => pattern(LLAMA3),
            Self::Qwen2 => pattern(QWEN2),
        }
    }
}

/// The file. `merges`: two tokens with a space between, best first.
pub(super) fn tokenizer(pieces: &Pieces<'_>, merges: &[&str], split: Split) -> Result<Value, CheckpointError> {
    let pair = |merge: &&str| {
        // The space of the pair is never its first character: byte-level tokens write a space as another letter.
        let (left, right) = merge.split_once(' ').filter(|(left, right)| !left.is_empty() && !right.is_empty())?;
        Some(json!([left, right]))
    };
    let merges: Option<Vec<Value>> = merges.iter().map(pair).collect();
    let merges = merges.ok_or_else(|| super::tokenizer::wrong("merges", "two tokens with a space between"))?;
    Ok(json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": pieces.added(),
        "normalizer": if split == Split::Qwen2 { json!({"type": "NFC"}) } else { Value::Null },
        "pre_tokenizer": split.pre_tokenizer(),
        "post_processor": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": false, "use_regex": true},
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {
            "type": "BPE",
            "dropout": null,
            "unk_token": null,
            "continuing_subword_prefix": null,
            "end_of_word_suffix": null,
            "fuse_unk": false,
            "byte_fallback": false,
            "ignore_merges": split == Split::Llama3,
            "vocab": pieces.vocabulary(),
            "merges": merges,
        },
    }))
}
