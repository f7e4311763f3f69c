//! Damaged tokenizer files of all four formats: loaded, used on text, given to a runner.

use crate::common;
use crate::damage::{Rng, damage};
use crate::programs::{on_fake, scratch, sound_runner};
use crate::subjects::Subjects;
use llama_runner::runner::{GenerationConfig, Prompt};
use llama_runner::tokenizer::{self, Specials, TokenId};
use std::ops::ControlFlow;

const TEXT: &str = "Once upon a time <s> \u{c9}l \u{6f22}\u{1f600} 12345 don't  \n\t<|eot_id|>x";

/// A file above this size is used once in a while only: a megabyte of JSON takes its time.
const LARGE: usize = 200_000;

pub fn open() -> Box<dyn FnMut(u64) -> bool> {
    let (subjects, dir) = (Subjects::load(), scratch());
    let (small, large): (Vec<_>, Vec<_>) = files().into_iter().partition(|file| file.len() <= LARGE);
    Box::new(move |seed| {
        let mut rng = Rng::new(seed ^ 0x70_6b65);
        let file = match seed {
            seed if seed % 100 == 99 && !large.is_empty() => &large[seed as usize / 100 % large.len()],
            seed => &small[seed as usize % small.len()],
        };
        let mut bytes = file.clone();
        // Headers and the first tokens decide most; text formats need damage anywhere.
        let focus = if rng.one_in(2) { 0..64 } else { 0..bytes.len() };
        damage(&mut rng, &mut bytes, focus);
        // The name says nothing: the format is found from the content.
        let path = dir.path().join("tokenizer");
        std::fs::write(&path, &bytes).expect("a temporary file");
        let subject = subjects.of_qnn(0);
        on_fake(&mut rng, &subject.contents, |_, fake| {
            let tokenizer = tokenizer::load(&path)?;
            let vocab = tokenizer.vocab_size() as TokenId;
            let ids = tokenizer.encode(TEXT, Specials { bos: 1, eos: 1 })?;
            assert!(ids.iter().all(|&id| id < vocab), "{ids:?} of {vocab}");
            for (previous, id) in ids.iter().zip(&ids[1.min(ids.len())..]) {
                tokenizer.decode(Some(*previous), *id)?;
            }
            tokenizer.decode(None, vocab - 1)?;
            assert!(tokenizer.decode(None, vocab).is_err());
            let mut runner = sound_runner(subject, dir.path(), fake, tokenizer)?;
            let config = GenerationConfig { max_new_tokens: Some(3), ..GenerationConfig::default() };
            runner.generate(Prompt::Text("a"), &config, &mut |_| ControlFlow::Continue(())).map(drop)
        })
    })
}

/// Every sound tokenizer file.
fn files() -> Vec<Vec<u8>> {
    let mut files = vec![
        llama2c(true),
        llama2c(false),
        tiktoken(),
        HUGGING_FACE.as_bytes().to_vec(),
        HUGGING_FACE.replace(REPLACE, PRECOMPILED).into_bytes(),
        include_bytes!("../data/bpe.model").to_vec(),
        include_bytes!("../data/unigram.model").to_vec(),
    ];
    if cfg!(have_shared) {
        let names = ["tok512.bin", "tok512.et.bin", "tok512.model", "story/tokenizer.json", "smollm2/tokenizer.json"];
        files.extend(names.map(|name| std::fs::read(common::model(name)).expect("a tokenizer")));
    }
    files
}

/// llama2.c: the three specials, every byte, some words.
fn llama2c(header: bool) -> Vec<u8> {
    let bytes = (0..=255u8).map(|byte| format!("<0x{byte:02X}>"));
    let words = ["a", "b", " ", " a", "ab", " ab", "time", "upon", "é"].map(str::to_owned);
    let pieces: Vec<String> =
        ["<unk>", "<s>", "</s>"].map(str::to_owned).into_iter().chain(bytes).chain(words).collect();
    let mut file = Vec::new();
    if header {
        for number in [pieces.len() as i32, 1, 2] {
            file.extend(number.to_le_bytes());
        }
    }
    file.extend(8i32.to_le_bytes());
    for (id, piece) in pieces.iter().enumerate() {
        file.extend((-(id as f32)).to_le_bytes());
        file.extend((piece.len() as i32).to_le_bytes());
        file.extend(piece.as_bytes());
    }
    file
}

/// A small Llama 3 vocabulary: every byte and some words.
fn tiktoken() -> Vec<u8> {
    use base64::Engine;
    let words = ["he", "ll", "hell", "hello", " w", "on", "don", "  ", "12", "123"];
    let texts = (0..=255u8).map(|byte| vec![byte]).chain(words.map(|word| word.as_bytes().to_vec()));
    let line = |(rank, text)| format!("{} {rank}\n", base64::engine::general_purpose::STANDARD.encode::<Vec<u8>>(text));
    texts.enumerate().map(line).collect::<String>().into_bytes()
}

/// The normalizer of [`HUGGING_FACE`], and one to put there.
const REPLACE: &str = r#"{"type": "Replace", "pattern": {"String": " "}, "content": "_"}"#;
const PRECOMPILED: &str = r#"{"type": "Precompiled", "precompiled_charsmap": "BAAAAAAAAABhAGIA"}"#;

const HUGGING_FACE: &str = r#"{
  "version": "1.0", "truncation": null, "padding": null,
  "added_tokens": [
    {"id": 0, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true},
    {"id": 1, "content": "</s>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}
  ],
  "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "_"},
  "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
    {"type": "Split", "pattern": {"Regex": "\\p{N}|\\s+(?!\\S)|[^_]+|_+"}, "behavior": "Isolated", "invert": false},
    {"type": "Split", "pattern": {"String": "_"}, "behavior": "MergedWithPrevious", "invert": false}
  ]},
  "post_processor": null,
  "decoder": {"type": "Sequence", "decoders": [
    {"type": "Replace", "pattern": {"String": "_"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}
  ]},
  "model": {"type": "BPE", "dropout": null, "unk_token": "<s>", "continuing_subword_prefix": null,
    "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
    "vocab": {"<s>": 0, "</s>": 1, "a": 2, "b": 3, "_": 4, "O": 5, "n": 6, "c": 7, "e": 8, "ab": 9, "On": 10, "ce": 11, "Once": 12},
    "merges": ["a b", "O n", "c e", "On ce"]}
}"#;
