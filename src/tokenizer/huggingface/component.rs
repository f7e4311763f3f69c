//! Components that the library does not have: it takes some of them for others that have the same fields, and names none.

use super::super::error::Defect;
use super::limits;
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::BTreeMap;

const NORMALIZERS: &[&str] = &[
    "BertNormalizer",
    "ByteLevel",
    "Lowercase",
    "NFC",
    "NFD",
    "NFKC",
    "NFKD",
    "Nmt",
    "Precompiled",
    "Prepend",
    "Replace",
    "Sequence",
    "Strip",
    "StripAccents",
];
const PRE_TOKENIZERS: &[&str] = &[
    "BertPreTokenizer",
    "ByteLevel",
    "CharDelimiterSplit",
    "Digits",
    "FixedLength",
    "Metaspace",
    "Punctuation",
    "Sequence",
    "Split",
    "UnicodeScripts",
    "Whitespace",
    "WhitespaceSplit",
];
const POST_PROCESSORS: &[&str] =
    &["BertProcessing", "ByteLevel", "RobertaProcessing", "Sequence", "TemplateProcessing"];
const DECODERS: &[&str] = &[
    "BPEDecoder",
    "ByteFallback",
    "ByteLevel",
    "CTC",
    "Fuse",
    "Metaspace",
    "Replace",
    "Sequence",
    "Strip",
    "WordPiece",
];
const MODELS: &[&str] = &["BPE", "Unigram", "WordLevel", "WordPiece"];

/// Each section of the file, its known types, and the key under which a `Sequence` holds its parts.
const SECTIONS: [(&str, &[&str], &str); 5] = [
    ("normalizer", NORMALIZERS, "normalizers"),
    ("pre_tokenizer", PRE_TOKENIZERS, "pretokenizers"),
    ("post_processor", POST_PROCESSORS, "processors"),
    ("decoder", DECODERS, "decoders"),
    ("model", MODELS, ""),
];

/// Refuses what is no JSON, on which parts of the library panic, and the first component that it does not have or that
/// may cost too much.
pub(super) fn check(bytes: &[u8]) -> Result<(), Defect> {
    // Vocabularies are large, so they are passed over and not kept.
    type Fields<'a> = BTreeMap<String, &'a RawValue>;
    let json = |error: serde_json::Error| Defect::Json { reason: error.to_string() };
    let file: Fields<'_> = serde_json::from_slice(bytes).map_err(json)?;
    for (section, known, parts) in SECTIONS {
        let Some(raw) = file.get(section).map(|raw| raw.get()) else { continue };
        let component = if section == "model" {
            let model: Fields<'_> = serde_json::from_str(raw).map_err(json)?;
            let fields = ["type", "max_input_chars_per_word"].into_iter();
            let fields = fields.filter_map(|key| Some((key.to_owned(), model.get(key)?.get())));
            let fields = fields.map(|(key, raw)| Ok((key, serde_json::from_str(raw)?)));
            Value::Object(fields.collect::<Result<_, _>>().map_err(json)?)
        } else {
            serde_json::from_str(raw).map_err(json)?
        };
        if let Some(name) = unknown_within(&component, known, parts) {
            return Err(Defect::UnknownComponent { section, name });
        }
        limits::check(section, &component)?;
    }
    Ok(())
}

/// The type of the first component that is not `known`.
fn unknown_within(component: &Value, known: &[&str], parts: &str) -> Option<String> {
    let name = component.get("type")?.as_str()?;
    if !known.contains(&name) {
        return Some(name.to_owned());
    }
    // The parser's depth limit bounds this recursion.
    component.get(parts)?.as_array()?.iter().find_map(|part| unknown_within(part, known, parts))
}
