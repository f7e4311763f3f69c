//! Components that the library does not have: it takes some of them for others that have the same fields, and names none.

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

/// The section and type of the first component that the library does not have. A file that is no JSON has none.
pub(super) fn unknown(bytes: &[u8]) -> Option<(&'static str, String)> {
    // Vocabularies are large, so they are passed over and not parsed.
    type Fields<'a> = BTreeMap<String, &'a RawValue>;
    let file: Fields<'_> = serde_json::from_slice(bytes).ok()?;
    SECTIONS.into_iter().find_map(|(section, known, parts)| {
        let raw = file.get(section)?.get();
        let component = if section == "model" {
            let model: Fields<'_> = serde_json::from_str(raw).ok()?;
            Value::from_iter([("type", serde_json::from_str::<Value>(model.get("type")?.get()).ok()?)])
        } else {
            serde_json::from_str(raw).ok()?
        };
        unknown_within(&component, known, parts).map(|name| (section, name))
    })
}

fn unknown_within(component: &Value, known: &[&str], parts: &str) -> Option<String> {
    let name = component.get("type")?.as_str()?;
    if !known.contains(&name) {
        return Some(name.to_owned());
    }
    // The parser's depth limit bounds this recursion.
    component.get(parts)?.as_array()?.iter().find_map(|part| unknown_within(part, known, parts))
}
