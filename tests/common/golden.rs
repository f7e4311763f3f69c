//! The recorded runs of the upstream runner, as its README describes them.

use serde_json::Value;
use std::path::{Path, PathBuf};

/// One recorded run.
#[derive(Debug, Clone)]
pub struct Golden {
    /// Its file's name without the ending.
    pub name: String,
    /// The program, below `models/`.
    pub pte: String,
    /// The tokenizer, below `models/`.
    pub tokenizer: String,
    /// Flags of the command line, in the order of their names.
    pub flags: Vec<(String, Value)>,
    /// Upstream's patched limit of decode steps in a turn.
    pub max_decode_steps: Option<usize>,
    /// Texts, one a turn of an iteration; empty when `tokenized_prompt` was used or none was given.
    pub prompts: Vec<String>,
    /// Token ids that were given instead of a text.
    pub tokenized_prompt: Option<Vec<u64>>,
    /// Whether upstream did not fail.
    pub usable: bool,
    /// Whether upstream failed by its own check, so that what it made until then is right.
    pub clean_failure: bool,
    /// Every turn of every iteration.
    pub turns: Vec<Turn>,
    /// Tokens that each turn answered with. In lookahead mode `turns` also hold rows that were only tried.
    pub generated: Vec<Vec<u64>>,
    /// The output file.
    pub output: Option<Vec<u8>>,
}

/// One turn.
#[derive(Debug, Clone)]
pub struct Turn {
    /// Where it began.
    pub position: u64,
    /// What was fed.
    pub prompt_tokens: Vec<u64>,
    /// Sampled rows in order.
    pub steps: Vec<Step>,
}

/// One sampled row of logits.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// Row of the logits; of decode steps upstream records the number of rows.
    pub row: u64,
    /// The token.
    pub token: u64,
    /// FNV-1a 64 of the row's bytes.
    pub hash: String,
    /// Element type.
    pub dtype: String,
    /// Ids and raw values of the five largest.
    pub top5: Vec<(u64, f64)>,
}

impl Golden {
    /// Every run of `dir`, in the order of their names.
    pub fn all(dir: &Path) -> Vec<Self> {
        let entries = std::fs::read_dir(dir).expect("the recorded runs");
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
        paths.retain(|path| path.extension().is_some_and(|ending| ending == "json"));
        paths.sort();
        paths.iter().map(|path| Self::read(path)).collect()
    }

    fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).expect("a recorded run");
        let json: Value = serde_json::from_str(&text).expect("a recorded run is JSON");
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        Self {
            name: path.file_stem().expect("a name").to_string_lossy().into_owned(),
            pte: text_of(&json["pte"]),
            tokenizer: text_of(&json["tokenizer"]),
            flags: json["flags"].as_object().expect("flags").iter().map(|(k, v)| (k.clone(), v.clone())).collect(),
            max_decode_steps: json["max_new_tokens_per_turn"].as_str().map(|steps| steps.parse().expect("a number")),
            prompts: list(&json["prompts"]).iter().map(text_of).collect(),
            // A JSON list, written as a text.
            tokenized_prompt: json["tokenized_prompt"]
                .as_str()
                .map(|ids| numbers(&serde_json::from_str(ids).expect("a list of ids"))),
            usable: json["usable"].as_bool().expect("usable"),
            clean_failure: json["usable"] == false && json["why_not"].is_null(),
            turns: list(&json["turns"]).iter().map(Turn::read).collect(),
            generated: list(&json["generated_tokens"]).iter().map(numbers).collect(),
            output: json["output_file_hex"].as_str().filter(|hex| !hex.is_empty()).map(unhex),
        }
    }

    /// An integer flag.
    pub fn int(&self, name: &str) -> Option<i64> {
        self.flag(name).and_then(Value::as_i64)
    }

    /// Any flag.
    pub fn flag(&self, name: &str) -> Option<&Value> {
        self.flags.iter().find(|(flag, _)| flag == name).map(|(_, value)| value)
    }

    /// Whether tokens are comparable: temperature 0.
    pub fn greedy(&self) -> bool {
        self.flag("temperature").and_then(Value::as_f64) == Some(0.0)
    }

    /// The command line that repeats the run with the models below `models`. Tokens go to `ids`.
    pub fn arguments(&self, models: &Path, ids: &Path) -> Vec<String> {
        let mut args = vec![
            format!("--model_path={}", models.join(&self.pte).display()),
            format!("--tokenizer_path={}", models.join(&self.tokenizer).display()),
        ];
        for (name, value) in &self.flags {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            args.push(format!("--{name}={value}"));
        }
        if let Some(steps) = self.max_decode_steps {
            args.push(format!("--max_decode_steps={steps}"));
        }
        for prompt in &self.prompts {
            args.extend(["--prompt".to_owned(), prompt.clone()]);
        }
        if let Some(tokens) = &self.tokenized_prompt {
            let bytes: Vec<u8> = tokens.iter().flat_map(|token| token.to_le_bytes()).collect();
            std::fs::write(ids, bytes).expect("a file of ids");
            args.push(format!("--tokenized_prompt={}", ids.display()));
        }
        args
    }
}

impl Turn {
    fn read(json: &Value) -> Self {
        let steps = json["steps"].as_array().expect("steps");
        Self {
            position: json["cur_pos"].as_u64().expect("cur_pos"),
            prompt_tokens: numbers(&json["prompt_tokens"]),
            steps: steps.iter().map(Step::read).collect(),
        }
    }

    /// Prompt tokens, and generated ones as upstream counts them: without the one that the prefill makes.
    pub fn counts(&self) -> (u64, u64) {
        (self.prompt_tokens.len() as u64, self.steps.len() as u64 - 1)
    }
}

impl Step {
    /// A recorded step, or a line of our trace, which is in the same terms.
    pub fn read(json: &Value) -> Self {
        // Rows that upstream read beyond the logits have no hash, and numbers that JSON cannot hold.
        let known = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let top5 = json["top5"].as_array().map(Vec::as_slice).unwrap_or_default().iter();
        Self {
            row: json["row"].as_u64().expect("row"),
            token: json["token"].as_u64().expect("token"),
            hash: known(&json["logits_fnv1a64"]),
            dtype: known(&json["dtype"]),
            top5: top5.map(|pair| (pair[0].as_u64().expect("an id"), pair[1].as_f64().unwrap_or(f64::NAN))).collect(),
        }
    }
}

fn text_of(json: &Value) -> String {
    json.as_str().expect("a text").to_owned()
}

/// A list of token ids.
pub fn numbers(json: &Value) -> Vec<u64> {
    json.as_array().expect("a list").iter().map(|number| number.as_u64().expect("an id")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    text.as_bytes()
        .as_chunks::<2>()
        .0
        .iter()
        .map(|digits| u8::from_str_radix(str::from_utf8(digits).expect("ASCII"), 16).expect("a hexadecimal byte"))
        .collect()
}
