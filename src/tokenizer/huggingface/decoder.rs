//! The file's decoder as a function of one token, so that text can be given out token by token.

use super::super::byte_of;
use super::super::error::Defect;
use serde_json::Value;
use std::collections::HashMap;
use tokenizers::DecoderWrapper;

/// What turns a token's name into its bytes, step by step.
pub(super) struct Decoder {
    steps: Vec<Step>,
}

enum Step {
    /// GPT-2's printable stand-ins for bytes.
    ByteLevel(HashMap<char, u8>),
    /// `<0x0A>` is a byte.
    ByteFallback,
    Replace {
        from: String,
        to: String,
    },
    /// `replacement` is a space; in the first token it is nothing, if the encoder put one there.
    Metaspace {
        replacement: String,
        prepended: bool,
    },
    /// Up to `start` times `content` at the front and `stop` times at the end; of the first token only where the
    /// whole text is meant.
    Strip {
        content: String,
        start: u64,
        stop: u64,
        first_only: bool,
    },
    /// Without a decoder the library puts a space between tokens.
    Join,
}

impl Decoder {
    /// Reads the library's decoder.
    pub(super) fn new(decoder: Option<&DecoderWrapper>) -> Result<Self, Defect> {
        let Some(decoder) = decoder else { return Ok(Self { steps: vec![Step::Join] }) };
        let value = serde_json::to_value(decoder).map_err(|error| Defect::Json { reason: error.to_string() })?;
        let (mut steps, mut fused) = (Vec::new(), false);
        collect(&value, &mut steps, &mut fused)?;
        Ok(Self { steps })
    }

    /// The bytes of a token; `first` where the text begins with it.
    pub(super) fn render(&self, token: &str, first: bool) -> Vec<u8> {
        self.steps.iter().fold(token.as_bytes().to_vec(), |bytes, step| step.apply(bytes, first))
    }
}

fn collect(value: &Value, steps: &mut Vec<Step>, fused: &mut bool) -> Result<(), Defect> {
    let name = value["type"].as_str().unwrap_or_default();
    let unsupported = |reason| Defect::UnsupportedDecoder { name: name.to_owned(), reason };
    let text = |key: &str| value[key].as_str().map(str::to_owned).ok_or(unsupported("a field is missing"));
    let number = |key: &str| value[key].as_u64().ok_or(unsupported("a field is missing"));
    if *fused && !matches!(name, "Sequence" | "Fuse" | "Strip") {
        return Err(unsupported("it works on the joined text"));
    }
    match name {
        "Sequence" => {
            let parts = value["decoders"].as_array().ok_or(unsupported("a field is missing"))?;
            return parts.iter().try_for_each(|part| collect(part, steps, fused));
        }
        "ByteLevel" => {
            steps.push(Step::ByteLevel(byte_level()));
            *fused = true;
        }
        "ByteFallback" => steps.push(Step::ByteFallback),
        "Fuse" => *fused = true,
        "Replace" => {
            let from = value["pattern"]["String"].as_str().filter(|from| !from.is_empty());
            let from = from.ok_or(unsupported("its pattern is not a text"))?;
            steps.push(Step::Replace { from: from.to_owned(), to: text("content")? });
        }
        "Metaspace" => {
            let prepended = value["prepend_scheme"] != "never";
            steps.push(Step::Metaspace { replacement: text("replacement")?, prepended });
        }
        "Strip" => {
            let (content, start, stop) = (text("content")?, number("start")?, number("stop")?);
            if *fused && stop > 0 {
                return Err(unsupported("the end of the text is not known while it streams"));
            }
            steps.push(Step::Strip { content, start, stop, first_only: *fused });
        }
        _ => return Err(unsupported("no language model's tokenizer has it")),
    }
    Ok(())
}

impl Step {
    fn apply(&self, bytes: Vec<u8>, first: bool) -> Vec<u8> {
        match self {
            Self::ByteLevel(table) => {
                let name = String::from_utf8_lossy(&bytes);
                let mapped: Option<Vec<u8>> = name.chars().map(|c| table.get(&c).copied()).collect();
                mapped.unwrap_or(bytes)
            }
            Self::ByteFallback => byte_of(&bytes).map_or(bytes, |byte| vec![byte]),
            Self::Replace { from, to } => on_text(bytes, |text| text.replace(from, to)),
            Self::Metaspace { replacement, prepended } => {
                let space = if first && *prepended { "" } else { " " };
                on_text(bytes, |text| text.replace(replacement, space))
            }
            Self::Strip { first_only: true, .. } if !first => bytes,
            Self::Strip { content, start, stop, .. } => {
                let mut rest = &bytes[..];
                for _ in 0..*start {
                    let Some(shorter) = rest.strip_prefix(content.as_bytes()) else { break };
                    rest = shorter;
                }
                for _ in 0..*stop {
                    let Some(shorter) = rest.strip_suffix(content.as_bytes()) else { break };
                    rest = shorter;
                }
                rest.to_vec()
            }
            Self::Join if first => bytes,
            Self::Join => [b" ", &bytes[..]].concat(),
        }
    }
}

/// `change` applied to a token that is text; single bytes from byte fallback stay as they are.
fn on_text(bytes: Vec<u8>, change: impl FnOnce(&str) -> String) -> Vec<u8> {
    match std::str::from_utf8(&bytes) {
        Ok(text) => change(text).into_bytes(),
        Err(_) => bytes,
    }
}

/// GPT-2's table: printable Latin-1 characters are themselves, the other bytes follow from U+0100.
fn byte_level() -> HashMap<char, u8> {
    let printable = |byte: &u8| matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    let others = (0..=255).filter(|byte| !printable(byte)).zip('\u{100}'..);
    let same = (0..=255).filter(printable).map(|byte| (char::from(byte), byte));
    same.chain(others.map(|(byte, stand_in)| (stand_in, byte))).collect()
}
