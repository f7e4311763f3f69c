//! The prompt set: from the command line, a text file or a file of JSON lines.

use llama_runner::runner::Family;
use llama_runner::tokenizer::{Specials, TokenId, Tokenizer};
use llama_runner::{Error, Result, Status};
use serde_json::Value;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Longest file that is read.
const MAX_FILE: u64 = 1 << 28;

/// What a turn starts from.
#[derive(Debug, Clone, PartialEq)]
pub enum TurnPrompt {
    /// A text, in the family's template.
    Text(String),
    /// Token ids.
    Tokens(Vec<TokenId>),
    /// A trace does not say.
    Unknown,
}

/// Turns that share a context, from its start.
#[derive(Debug, Clone, PartialEq)]
pub struct Conversation {
    /// What the report calls it, where it has a name.
    pub name: Option<String>,
    /// At least one.
    pub turns: Vec<TurnPrompt>,
}

impl TurnPrompt {
    /// In the report.
    pub fn show(&self) -> String {
        match self {
            Self::Text(text) => format!("{text:?}"),
            Self::Tokens(tokens) => format!("{} token ids", tokens.len()),
            Self::Unknown => "a recorded prompt".to_owned(),
        }
    }

    /// What is fed; `None` where nothing says.
    pub fn encode(&self, tokenizer: &dyn Tokenizer, bos: usize) -> Result<Option<Vec<TokenId>>> {
        match self {
            Self::Text(text) => tokenizer.encode(text, Specials { bos, eos: 0 }).map(Some),
            Self::Tokens(tokens) => Ok(Some(tokens.clone())),
            Self::Unknown => Ok(None),
        }
    }
}

/// How texts become prompts.
#[derive(Debug, Clone)]
pub struct Template<'a> {
    /// The family whose chat template is used.
    pub family: &'a Family,
    /// What kind of assistant the model should be.
    pub system: &'a str,
}

impl Template<'_> {
    /// A turn that begins with `text`.
    pub fn turn(&self, text: &str) -> TurnPrompt {
        TurnPrompt::Text(self.family.format_prompt(text, self.system))
    }

    /// The conversations of a set: an object a line, with `prompt` (a text), `turns` (texts) or `tokens` (ids), and a
    /// `name` where one is wanted.
    pub fn set(&self, path: &Path) -> Result<Vec<Conversation>> {
        let text = read(path)?;
        let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        let set: Vec<Conversation> = lines
            .map(|(index, line)| {
                let why = "it is no object with one of prompt (a text), turns (texts) and tokens (ids)";
                self.conversation(line).ok_or_else(|| damaged(path, format!("line {}: {why}", index + 1)))
            })
            .collect::<Result<_>>()?;
        if set.is_empty() { Err(damaged(path, "it holds no prompt")) } else { Ok(set) }
    }

    fn conversation(&self, line: &str) -> Option<Conversation> {
        let json: Value = serde_json::from_str(line).ok()?;
        let name = json["name"].as_str().map(str::to_owned);
        let turns = match (json.get("prompt"), json.get("turns"), json.get("tokens")) {
            (Some(text), None, None) => vec![self.turn(text.as_str()?)],
            (None, Some(turns), None) => {
                turns.as_array()?.iter().map(|text| Some(self.turn(text.as_str()?))).collect::<Option<_>>()?
            }
            (None, None, Some(ids)) => {
                let ids: Option<Vec<TokenId>> = ids.as_array()?.iter().map(Value::as_u64).collect();
                vec![TurnPrompt::Tokens(ids?)]
            }
            _ => return None,
        };
        (!turns.is_empty()).then_some(Conversation { name, turns })
    }
}

/// The text of the file at `path`.
pub fn read(path: &Path) -> Result<String> {
    let fail =
        |error: std::io::Error| Error::new(Status::AccessFailed, format!("cannot read {}: {error}", path.display()));
    let mut bytes = Vec::new();
    File::open(path).and_then(|file| file.take(MAX_FILE + 1).read_to_end(&mut bytes)).map_err(fail)?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(damaged(path, format!("it is longer than {MAX_FILE} bytes")));
    }
    String::from_utf8(bytes)
        .map_err(|error| damaged(path, format!("it is not UTF-8 at byte {}", error.utf8_error().valid_up_to())))
}

/// The error for a file that is not what it should be.
pub fn damaged(path: &Path, why: impl std::fmt::Display) -> Error {
    Error::new(Status::InvalidExternalData, format!("{}: {why}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(text: &str) -> Result<Vec<Conversation>> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("set.jsonl");
        std::fs::write(&path, text).unwrap();
        let family = Family::from_name("phi_4_mini").unwrap();
        Template { family, system: "" }.set(&path)
    }

    #[test]
    fn a_set_is_an_object_a_line() {
        let text = "{\"prompt\":\"a\",\"name\":\"first\"}\n\n{\"turns\":[\"b\",\"c\"]}\n{\"tokens\":[1,2]}\n";
        let in_template = |text: &str| TurnPrompt::Text(format!("<|user|>{text}<|end|><|assistant|>"));
        let want = [
            Conversation { name: Some("first".into()), turns: vec![in_template("a")] },
            Conversation { name: None, turns: vec![in_template("b"), in_template("c")] },
            Conversation { name: None, turns: vec![TurnPrompt::Tokens(vec![1, 2])] },
        ];
        assert_eq!(set(text).unwrap(), want);
    }

    #[test]
    fn a_line_that_is_no_prompt_is_named() {
        for line in [
            "nonsense",
            "{}",
            "{\"prompt\":1}",
            "{\"turns\":[]}",
            "{\"tokens\":[-1]}",
            "{\"prompt\":\"a\",\"turns\":[]}",
        ] {
            let error = set(&format!("{{\"prompt\":\"a\"}}\n{line}\n")).unwrap_err();
            assert!(error.chain().contains("set.jsonl: line 2: it is no object"), "{}", error.chain());
        }
        assert!(set("\n").unwrap_err().chain().contains("it holds no prompt"));
    }
}
