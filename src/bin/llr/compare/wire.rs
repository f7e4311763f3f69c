//! What a comparison and the child process of a side say to each other: a JSON object a line, and behind a step's line
//! the row of logits that it announces, as little-endian f32.

use llama_runner::tensor::Encoding;
use llama_runner::tokenizer::TokenId;
use llama_runner::{Error, Result, Status};
use serde_json::{Value, json};
use std::io::{BufRead, Write};

/// Longest row that is read: far above any vocabulary.
const MAX_VOCAB: usize = 1 << 24;

/// One turn to run. What limits a turn is as in `GenerationConfig`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Request {
    /// What is fed.
    pub prompt: Vec<TokenId>,
    /// Whether the context is to be forgotten before.
    pub reset: bool,
    /// What to take instead of the likeliest tokens.
    pub forced: Vec<TokenId>,
    /// Most tokens to make.
    pub max_new_tokens: Option<usize>,
    /// Length of the context at which it ends; 0: the model's.
    pub seq_len: usize,
    /// Whether end tokens are tokens like others.
    pub ignore_eos: bool,
}

/// What a side is.
#[derive(Debug, Clone, PartialEq)]
pub struct Hello {
    /// The program's mode or methods, in one line.
    pub description: String,
    /// Logits in a row.
    pub vocab: usize,
    /// Element type of the logits.
    pub dtype: String,
    /// What their codes stand for, if they are codes and it is known.
    pub encoding: Option<Encoding>,
    /// Milliseconds that loading took.
    pub load_ms: u64,
}

/// How a turn went.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct End {
    /// Why it ended: `eos`, `seq_len`, `context_full`, `length`.
    pub reason: String,
    /// Until the first token was there.
    pub prefill_seconds: f64,
    /// From the first token to the last.
    pub decode_seconds: f64,
}

/// What a side says.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    /// First of all.
    Hello(Hello),
    /// A token of the turn.
    Step {
        /// The token.
        token: TokenId,
        /// FNV-1a 64 of the row as the model wrote it.
        hash: u64,
        /// The row, `[vocab]`: real values, codes where nothing says what they stand for.
        row: Vec<f32>,
    },
    /// The turn is over.
    End(End),
    /// Nothing more comes.
    Failed(String),
}

impl Request {
    /// Sends it.
    pub fn write(&self, to: &mut impl Write) -> std::io::Result<()> {
        let Self { prompt, reset, forced, max_new_tokens, seq_len, ignore_eos } = self;
        let line = json!({
            "prompt": prompt, "reset": reset, "forced": forced, "max_new_tokens": max_new_tokens, "seq_len": seq_len,
            "ignore_eos": ignore_eos,
        });
        writeln!(to, "{line}")?;
        to.flush()
    }

    /// The request in a line.
    pub fn parse(line: &str) -> Result<Self> {
        let json = object(line)?;
        let tokens = |name| -> Result<Vec<TokenId>> {
            let list = json[name].as_array().ok_or_else(|| broken(line))?;
            list.iter().map(|id| id.as_u64().ok_or_else(|| broken(line))).collect()
        };
        let size = |value: &Value| value.as_u64().and_then(|size| usize::try_from(size).ok());
        Ok(Self {
            prompt: tokens("prompt")?,
            reset: json["reset"] == true,
            forced: tokens("forced")?,
            max_new_tokens: size(&json["max_new_tokens"]),
            seq_len: size(&json["seq_len"]).ok_or_else(|| broken(line))?,
            ignore_eos: json["ignore_eos"] == true,
        })
    }
}

impl Reply {
    /// Sends it.
    pub fn write(&self, to: &mut impl Write) -> std::io::Result<()> {
        match self {
            Self::Hello(Hello { description, vocab, dtype, encoding, load_ms }) => {
                let encoding = encoding.map(|e| json!([e.scale, e.zero_point]));
                let hello = json!({
                    "description": description, "vocab": vocab, "dtype": dtype, "encoding": encoding, "load_ms": load_ms,
                });
                writeln!(to, "{}", json!({ "hello": hello }))?;
            }
            Self::Step { token, hash, row } => {
                writeln!(to, "{}", json!({ "token": token, "hash": hash, "row": row.len() }))?;
                let bytes: Vec<u8> = row.iter().flat_map(|logit| logit.to_le_bytes()).collect();
                to.write_all(&bytes)?;
            }
            Self::End(End { reason, prefill_seconds, decode_seconds }) => {
                writeln!(to, "{}", json!({ "end": reason, "prefill": prefill_seconds, "decode": decode_seconds }))?;
            }
            Self::Failed(why) => writeln!(to, "{}", json!({ "failed": why }))?,
        }
        to.flush()
    }

    /// The next reply; `None` when the child is gone.
    pub fn read(from: &mut impl BufRead) -> Result<Option<Self>> {
        let mut line = String::new();
        match from.read_line(&mut line) {
            Ok(0) => return Ok(None),
            Ok(_) => {}
            Err(error) => return Err(Error::new(Status::AccessFailed, format!("reading from it: {error}"))),
        }
        let json = object(&line)?;
        let lacks = || broken(&line);
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let reply = if let Some(hello) = json.get("hello") {
            let encoding = match (hello["encoding"][0].as_f64(), hello["encoding"][1].as_i64()) {
                (Some(scale), Some(zero)) => {
                    Some(Encoding { scale: scale as f32, zero_point: i32::try_from(zero).map_err(|_| lacks())? })
                }
                _ => None,
            };
            Self::Hello(Hello {
                description: text(&hello["description"]).ok_or_else(lacks)?,
                vocab: hello["vocab"].as_u64().ok_or_else(lacks)? as usize,
                dtype: text(&hello["dtype"]).ok_or_else(lacks)?,
                encoding,
                load_ms: hello["load_ms"].as_u64().ok_or_else(lacks)?,
            })
        } else if let Some(length) = json.get("row") {
            let length = length.as_u64().and_then(|length| usize::try_from(length).ok());
            let length = length.filter(|&length| length <= MAX_VOCAB).ok_or_else(lacks)?;
            let mut bytes = vec![0; 4 * length];
            if from.read_exact(&mut bytes).is_err() {
                return Ok(None);
            }
            Self::Step {
                token: json["token"].as_u64().ok_or_else(lacks)?,
                hash: json["hash"].as_u64().ok_or_else(lacks)?,
                row: bytes.as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect(),
            }
        } else if let Some(reason) = json.get("end") {
            Self::End(End {
                reason: text(reason).ok_or_else(lacks)?,
                prefill_seconds: json["prefill"].as_f64().ok_or_else(lacks)?,
                decode_seconds: json["decode"].as_f64().ok_or_else(lacks)?,
            })
        } else {
            Self::Failed(text(&json["failed"]).ok_or_else(lacks)?)
        };
        Ok(Some(reply))
    }
}

fn object(line: &str) -> Result<Value> {
    serde_json::from_str(line).ok().filter(Value::is_object).ok_or_else(|| broken(line))
}

fn broken(line: &str) -> Error {
    let start: String = line.trim_end().chars().take(80).collect();
    Error::new(Status::Internal, format!("it said what this program does not understand: {start:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_is_said_is_understood() {
        let replies = [
            Reply::Hello(Hello {
                description: "kv mode".into(),
                vocab: 3,
                dtype: "u16".into(),
                encoding: Some(Encoding { scale: 0.25, zero_point: 7 }),
                load_ms: 12,
            }),
            Reply::Step { token: 2, hash: u64::MAX, row: vec![1.5, f32::NAN, -0.0] },
            Reply::End(End { reason: "eos".into(), prefill_seconds: 0.5, decode_seconds: 0.0 }),
            Reply::Failed("no \"file\"\nhere".into()),
        ];
        let mut bytes = Vec::new();
        replies.iter().for_each(|reply| reply.write(&mut bytes).unwrap());
        let mut from = bytes.as_slice();
        for reply in &replies {
            // Compared as text, for NaN is unequal to itself.
            assert_eq!(format!("{:?}", Reply::read(&mut from).unwrap()), format!("{:?}", Some(reply)));
        }
        assert_eq!(Reply::read(&mut from).unwrap(), None);
        let request = Request { prompt: vec![1, 2], forced: vec![3], max_new_tokens: Some(4), ..Request::default() };
        let mut line = Vec::new();
        request.write(&mut line).unwrap();
        assert_eq!(Request::parse(str::from_utf8(&line).unwrap()).unwrap(), request);
    }

    #[test]
    fn a_child_that_breaks_off_or_babbles_is_no_panic() {
        let mut step = Vec::new();
        Reply::Step { token: 1, hash: 2, row: vec![0.0; 4] }.write(&mut step).unwrap();
        assert_eq!(Reply::read(&mut &step[..step.len() - 1]).unwrap(), None);
        for line in ["hello\n", "{}\n", "[1]\n", "{\"row\":99999999999,\"token\":1,\"hash\":1}\n", "{\"row\":1}\nabcd"]
        {
            assert!(Reply::read(&mut line.as_bytes()).unwrap_err().chain().contains("does not understand"), "{line}");
        }
        assert!(Request::parse("{\"prompt\":[\"a\"]}").is_err());
    }
}
