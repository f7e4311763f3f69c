//! Which tokens of a `tokenizer.json` begin and end a sequence: the file itself does not say.

use super::super::TokenId;
use super::super::error::Defect;
use super::CONFIG;
use serde_json::Value;
use tokenizers::Tokenizer;

const BOS_NAMES: [&str; 7] = [
    "<|begin_of_text|>",
    "<s>",
    "<bos>",
    "<|startoftext|>",
    "<\u{ff5c}begin\u{2581}of\u{2581}sentence\u{ff5c}>",
    "[BOS]",
    "<BOS>",
];
const EOS_NAMES: [&str; 9] = [
    "<|end_of_text|>",
    "</s>",
    "<eos>",
    "<|endoftext|>",
    "<|im_end|>",
    "<\u{ff5c}end\u{2581}of\u{2581}sentence\u{ff5c}>",
    "<|eot_id|>",
    "[EOS]",
    "<EOS>",
];

type Pair<T> = (T, T);

/// BOS and EOS, by the rules of [`HuggingFace`](super::HuggingFace).
pub(super) fn find(tokenizer: &Tokenizer, config: Option<&[u8]>) -> Result<Pair<Option<TokenId>>, Defect> {
    let config: Value = match config {
        Some(bytes) => serde_json::from_slice(bytes)
            .map_err(|error| Defect::Companion { file: CONFIG, reason: error.to_string() })?,
        None => Value::Null,
    };
    let template = template(tokenizer);
    let choose = |key: &str, from_template: Option<String>, names: &[&str]| {
        let id = |name: &str| tokenizer.token_to_id(name).map(TokenId::from);
        let Some(named) = config.get(key) else {
            let from_template = from_template.and_then(|name| id(&name));
            return from_template.or_else(|| names.iter().find_map(|name| special(tokenizer, name)));
        };
        // Either the text itself or an object that describes the token.
        let name = named.as_str().or_else(|| named["content"].as_str())?;
        let found = id(name);
        if found.is_none() {
            crate::log_warning!("tokenizer: {key} {name} of {CONFIG} is not in the vocabulary");
        }
        found
    };
    Ok((choose("bos_token", template.0, &BOS_NAMES), choose("eos_token", template.1, &EOS_NAMES)))
}

fn special(tokenizer: &Tokenizer, name: &str) -> Option<TokenId> {
    let id = tokenizer.token_to_id(name)?;
    let added = tokenizer.get_added_vocabulary().get_added_tokens_decoder();
    added.get(&id).filter(|token| token.special).map(|_| id.into())
}

/// The special tokens that the post-processor's template has before and behind the text.
fn template(tokenizer: &Tokenizer) -> Pair<Option<String>> {
    let processor = tokenizer.get_post_processor().and_then(|processor| serde_json::to_value(processor).ok());
    let single = processor.as_ref().and_then(single).map(Vec::as_slice).unwrap_or_default();
    let Some(text) = single.iter().position(|part| part.get("Sequence").is_some()) else { return (None, None) };
    let name = |part: &Value| part["SpecialToken"]["id"].as_str().map(str::to_owned);
    (single[..text].iter().find_map(name), single[text + 1..].iter().find_map(name))
}

fn single(processor: &Value) -> Option<&Vec<Value>> {
    match processor["type"].as_str()? {
        "TemplateProcessing" => processor["single"].as_array(),
        "Sequence" => processor["processors"].as_array()?.iter().find_map(single),
        _ => None,
    }
}
