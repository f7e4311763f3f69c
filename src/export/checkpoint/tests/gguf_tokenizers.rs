//! Tokenizers of GGUF files: both kinds against what they must give, and damaged ones.

use super::files::{Gguf, put};
use super::*;
use crate::error::Status;
use crate::export::options::{Backend, Options};
use crate::export::tokens::Found;
use crate::tokenizer::{HuggingFace, SentencePiece, Specials, Tokenizer};

fn files(gguf: &Gguf) -> Result<TokenizerFiles> {
    let folder = tempfile::tempdir().unwrap();
    put(folder.path(), "m.gguf", gguf.bytes());
    Ok(open_at(folder.path())?.tokenizer_files()?.expect("GGUF has a tokenizer"))
}

/// A tokenizer of GPT-2's kind with all printable bytes, a few merges, and two whole tokens.
fn byte_level(pre: &str) -> Gguf {
    let mut tokens: Vec<String> = (b'!'..=b'~').map(|byte| char::from(byte).to_string()).collect();
    tokens.extend(["Ġ", "Ċ", "Ġa", "12", "123", "Ġab", "<|end|>", "[tool]"].map(String::from));
    let kinds = tokens.iter().map(|token| match &token[..] {
        "<|end|>" => 3u32,
        "[tool]" => 4,
        _ => 1,
    });
    let mut gguf = Gguf::tiny();
    gguf.list("tokenizer.ggml.token_type", 5, &kinds.map(u32::to_le_bytes).collect::<Vec<_>>());
    gguf.text("tokenizer.ggml.model", "gpt2");
    gguf.text("tokenizer.ggml.pre", pre);
    gguf.u32("tokenizer.ggml.eos_token_id", tokens.len() as u32 - 2);
    gguf.texts("tokenizer.ggml.tokens", &tokens.iter().map(|token| &token[..]).collect::<Vec<_>>());
    gguf.texts("tokenizer.ggml.merges", &["Ġ a", "1 2", "12 3", "Ġa b"]);
    gguf
}

fn pieces(gguf: &Gguf, text: &str) -> Vec<String> {
    let files = files(gguf).unwrap();
    let tokenizer = HuggingFace::from_bytes(&files.tokenizer, Some(&files.config)).unwrap();
    let ids = tokenizer.encode(text, Specials::default()).unwrap();
    ids.iter().map(|&id| String::from_utf8(tokenizer.decode(Some(0), id).unwrap()).unwrap()).collect()
}

#[test]
fn pre_tokenizers_split_as_their_models_do() {
    for (pre, expected) in [
        ("gpt-2", vec!["123", " ab", "<|end|>", "[tool]"]),
        ("smollm", vec!["1", "2", "3", " ab", "<|end|>", "[tool]"]),
        ("llama-bpe", vec!["123", " ab", "<|end|>", "[tool]"]),
        ("qwen2", vec!["1", "2", "3", " ab", "<|end|>", "[tool]"]),
    ] {
        assert_eq!(pieces(&byte_level(pre), "123 ab<|end|>[tool]"), expected, "{pre}");
    }
    assert_eq!(pieces(&byte_level("llama-bpe"), "1231"), ["123", "1"]);
}

#[test]
fn an_export_reads_the_own_tokenizer_and_not_what_lies_beside_the_output() {
    let folder = tempfile::tempdir().unwrap();
    put(folder.path(), "m.gguf", byte_level("gpt-2").bytes());
    let output = folder.path().join("out.pte");
    let options = Options::new(folder.path().join("m.gguf"), output, Backend::Portable);
    let checkpoint = open_at(folder.path().join("m.gguf")).unwrap();
    let end = |found: Option<Found>| found.unwrap().tokenizer.eos().to_vec();
    let alone = end(Found::of(&options, &checkpoint).unwrap());
    assert_eq!(alone, [100]);
    put(folder.path(), "tokenizer_config.json", r#"{"eos_token": "a"}"#);
    assert_eq!(end(Found::of(&options, &checkpoint).unwrap()), alone);
}

#[test]
fn config_names_special_tokens_and_template() {
    let mut gguf = byte_level("gpt-2");
    gguf.text("tokenizer.chat_template", "{{ messages }}");
    gguf.set("tokenizer.ggml.add_bos_token", 7, vec![1]);
    let config: serde_json::Value = serde_json::from_slice(&files(&gguf).unwrap().config).unwrap();
    assert_eq!(config["eos_token"], "<|end|>");
    assert_eq!((&config["bos_token"], &config["chat_template"]), (&serde_json::Value::Null, &"{{ messages }}".into()));
    assert_eq!((&config["add_bos_token"], &config["add_eos_token"]), (&true.into(), &false.into()));
}

#[test]
fn unknown_kinds_of_tokenizers_are_refused_by_name() {
    let error = files(&byte_level("deepseek-coder")).unwrap_err();
    assert_eq!(error.status(), Status::NotSupported);
    assert!(error.chain().contains("pre-tokenizer deepseek-coder"), "{error:?}");
    let mut gguf = byte_level("gpt-2");
    gguf.text("tokenizer.ggml.model", "bert");
    assert!(files(&gguf).unwrap_err().chain().contains("tokenizer bert"));
}

#[test]
fn damaged_tokenizers_are_refused_by_field() {
    let field = |change: &dyn Fn(&mut Gguf)| {
        let mut gguf = byte_level("gpt-2");
        change(&mut gguf);
        let error = files(&gguf).unwrap_err();
        match defect(&error) {
            CheckpointError::Field { field, .. } => field.trim_start_matches("tokenizer.ggml.").to_owned(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(field(&|gguf| gguf.values.retain(|(key, ..)| key != "tokenizer.ggml.model")), "model");
    assert_eq!(field(&|gguf| gguf.u32("tokenizer.ggml.tokens", 7)), "tokens");
    assert_eq!(field(&|gguf| gguf.texts("tokenizer.ggml.tokens", &["a", "a"])), "token_type");
    assert_eq!(field(&|gguf| gguf.list("tokenizer.ggml.token_type", 5, &[[1, 0, 0, 0]])), "token_type");
    assert_eq!(field(&|gguf| gguf.list("tokenizer.ggml.token_type", 5, &[[9, 0, 0, 0]; 102])), "token_type");
    assert_eq!(field(&|gguf| gguf.texts("tokenizer.ggml.merges", &["nospace"])), "merges");
    assert_eq!(field(&|gguf| gguf.u32("tokenizer.ggml.merges", 1)), "merges");
    assert_eq!(field(&|gguf| gguf.u32("tokenizer.ggml.eos_token_id", 4000)), "eos_token_id");
    let nan = [f32::NAN.to_le_bytes(); 102];
    assert_eq!(field(&|gguf| gguf.list("tokenizer.ggml.scores", 6, &nan)), "scores");
    let twice = |gguf: &mut Gguf| {
        gguf.values.retain(|(key, ..)| key != "tokenizer.ggml.token_type");
        gguf.texts("tokenizer.ggml.tokens", &["a", "a"]);
    };
    assert_eq!(field(&twice), "tokens");
    let long = "x".repeat(1025);
    let too_long = |gguf: &mut Gguf| {
        gguf.values.retain(|(key, ..)| key != "tokenizer.ggml.token_type");
        gguf.text("tokenizer.ggml.model", "llama");
        gguf.texts("tokenizer.ggml.tokens", &["a", &long]);
    };
    assert_eq!(field(&too_long), "tokens");
}

/// A SentencePiece model's tokens as a GGUF file has them.
fn of_sentencepiece(model: &[u8]) -> Gguf {
    let (mut texts, mut scores, mut kinds) = (Vec::new(), Vec::new(), Vec::new());
    let mut rest = model;
    // Field 1 of the model, once a token: text (1), score (2), type (3, 1 where absent).
    while let [0x0a, length, after @ ..] = rest {
        let (piece, after) = after.split_at(usize::from(*length));
        let [0x0a, length, body @ ..] = piece else { panic!("a piece without a text") };
        let (text, body) = body.split_at(usize::from(*length));
        let [0x15, a, b, c, d, kind @ ..] = body else { panic!("a piece without a score") };
        texts.push(std::str::from_utf8(text).unwrap());
        scores.push([*a, *b, *c, *d]);
        kinds.push([kind.get(1).copied().unwrap_or(1), 0, 0, 0]);
        rest = after;
    }
    let mut gguf = Gguf::tiny();
    gguf.text("tokenizer.ggml.model", "llama");
    gguf.texts("tokenizer.ggml.tokens", &texts);
    gguf.list("tokenizer.ggml.scores", 6, &scores);
    gguf.list("tokenizer.ggml.token_type", 5, &kinds);
    gguf.u32("tokenizer.ggml.bos_token_id", 1);
    gguf.u32("tokenizer.ggml.eos_token_id", 2);
    gguf
}

#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
fn sentencepiece_vocabulary_gives_sentencepieces_ids() {
    let model = std::fs::read(shared("tok512.model")).unwrap();
    let gguf = of_sentencepiece(&model);
    let files = files(&gguf).unwrap();
    let own = HuggingFace::from_bytes(&files.tokenizer, Some(&files.config)).unwrap();
    let original = SentencePiece::from_bytes(&model).unwrap();
    assert_eq!((own.bos(), own.eos(), own.vocab_size()), (original.bos(), original.eos(), original.vocab_size()));
    let prose = std::fs::read_to_string(shared("smollm2/own_prose.txt")).unwrap();
    // This model takes away superfluous spaces, which GGUF's kind of SentencePiece never does.
    let mut texts: Vec<&str> = prose.split(['.', '\n']).map(str::trim).collect();
    texts.extend(["Once upon a time", "x", "", "naïve café — 東京 🦀", "0123456789", "Lily's \"ball\""]);
    for text in texts {
        let specials = Specials { bos: 1, eos: 1 };
        let ids = own.encode(text, specials).unwrap();
        assert_eq!(ids, original.encode(text, specials).unwrap(), "{text:?}");
        let inner = ids.windows(2).filter(|pair| pair[1] > 2);
        let decoded: Vec<u8> = inner.flat_map(|pair| own.decode(Some(pair[0]), pair[1]).unwrap()).collect();
        assert_eq!(String::from_utf8(decoded).as_deref(), Ok(text));
    }
}
