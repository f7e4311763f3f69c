//! What components may cost. Replacements upon replacements make a text of any length out of a few letters, and some
//! numbers make the library work without end, take memory without end or divide by zero.

use super::super::error::Defect;
use base64::Engine;
use serde_json::Value;

/// Most times that a text may become longer. Files of the field have 3, for `▁` in the place of a space.
const MAX_GROWTH: usize = 1024;
/// Longest word, in characters, that WordPiece may look up every part of. Usual is 100.
const MAX_WORD: u64 = 256;

/// The keys under which a `Sequence` holds its parts.
const PARTS: [&str; 4] = ["normalizers", "pretokenizers", "processors", "decoders"];

/// Refuses a component that may cost too much.
pub(super) fn check(section: &'static str, component: &Value) -> Result<(), Defect> {
    let growth = growth(component);
    if growth > MAX_GROWTH {
        return Err(Defect::Growth { section, growth, limit: MAX_GROWTH });
    }
    check_charsmap(section, component)?;
    check_number(section, component, "max_input_chars_per_word", 0..=MAX_WORD)?;
    if section == "pre_tokenizer" {
        check_number(section, component, "length", 1..=u64::MAX)?;
    }
    Ok(())
}

fn parts(component: &Value) -> impl Iterator<Item = &Value> {
    PARTS.iter().filter_map(|key| component.get(key)?.as_array()).flatten()
}

/// How many times as long a text may become.
fn growth(component: &Value) -> usize {
    let own = match (component.get("pattern"), component.get("content").and_then(Value::as_str)) {
        (Some(pattern), Some(content)) => match shortest_match(pattern) {
            0 => content.len() + 1,
            shortest => content.len().div_ceil(shortest).max(1),
        },
        _ => charsmap(component).map_or(1, |(size, rest)| longest_replacement(rest.get(size..).unwrap_or_default())),
    };
    // The parser's depth limit bounds this recursion.
    parts(component).fold(own, |product, part| product.saturating_mul(growth(part)))
}

/// Bytes that a pattern takes at least; a regular expression may take none.
fn shortest_match(pattern: &Value) -> usize {
    pattern.as_str().or(pattern.get("String").and_then(Value::as_str)).map_or(0, str::len)
}

/// SentencePiece's table of replacements: the size that its trie says it has, and the bytes of the trie with the texts
/// behind it.
fn charsmap(component: &Value) -> Option<(usize, Vec<u8>)> {
    let table = component.get("precompiled_charsmap")?.as_str()?;
    let table = base64::engine::general_purpose::STANDARD.decode(table).ok()?;
    let (size, rest) = table.split_first_chunk::<4>()?;
    Some((u32::from_le_bytes(*size) as usize, rest.to_vec()))
}

/// The longest of texts that end with a NUL each.
fn longest_replacement(texts: &[u8]) -> usize {
    texts.split(|&byte| byte == 0).map(<[u8]>::len).max().unwrap_or(1).max(1)
}

/// The library takes memory for the trie before it looks whether there is one.
fn check_charsmap(section: &'static str, component: &Value) -> Result<(), Defect> {
    match charsmap(component) {
        Some((size, rest)) if size > rest.len() => {
            Err(Defect::Number { section, field: "precompiled_charsmap size", value: size as u64 })
        }
        _ => parts(component).try_for_each(|part| check_charsmap(section, part)),
    }
}

fn check_number(
    section: &'static str,
    component: &Value,
    field: &'static str,
    allowed: std::ops::RangeInclusive<u64>,
) -> Result<(), Defect> {
    match component.get(field).and_then(Value::as_u64) {
        Some(value) if !allowed.contains(&value) => Err(Defect::Number { section, field, value }),
        _ => parts(component).try_for_each(|part| check_number(section, part, field, allowed.clone())),
    }
}
