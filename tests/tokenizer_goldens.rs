//! Tokenizers against what the reference programs were recorded to do, id for id and byte for byte.

mod common;

use llama_runner::tokenizer::{Specials, TokenId, Tokenizer, load};
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;

fn read(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn ids(value: &Value) -> Vec<TokenId> {
    value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap()).collect()
}

fn bytes(value: &Value) -> Vec<u8> {
    let hex = value.as_str().unwrap();
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

/// Checks `tokenizer` against a recording of upstream's and gives the number of cases that a `&str` can hold.
fn check(tokenizer: &dyn Tokenizer, golden: &Value) -> usize {
    let vocab = golden["vocab"].as_u64().unwrap();
    assert_eq!(tokenizer.vocab_size() as u64, vocab);
    assert_eq!(tokenizer.bos(), golden["bos"].as_u64());
    assert_eq!(tokenizer.eos(), [golden["eos"].as_u64().unwrap()]);
    for (key, previous) in [("decode_all_prev0", Some(0)), ("decode_all_prevbos", tokenizer.bos())] {
        let Some(table) = golden[key].as_array() else { continue };
        assert_eq!(table.len() as u64, vocab);
        for (token, expected) in (0..).zip(table) {
            assert_eq!(tokenizer.decode(previous, token).unwrap(), bytes(expected), "{key} {token}");
        }
    }
    assert!(tokenizer.decode(Some(0), vocab).is_err());
    let mut count = 0;
    for case in golden["cases"].as_array().unwrap() {
        let Ok(text) = String::from_utf8(bytes(&case["text_hex"])) else { continue };
        // A negative number of special tokens is not expressible here.
        let (Some(bos), Some(eos)) = (case["bos"].as_u64(), case["eos"].as_u64()) else { continue };
        let specials = Specials { bos: bos as usize, eos: eos as usize };
        let tokens = tokenizer.encode(&text, specials).unwrap();
        assert_eq!(tokens, ids(&case["ids"]), "{text:?}");
        // Upstream's programs print what each token adds after the first one.
        let pieces = tokens.windows(2).map(|pair| tokenizer.decode(Some(pair[0]), pair[1]).unwrap());
        assert_eq!(pieces.collect::<Vec<_>>().concat(), bytes(&case["decode_hex"]), "{text:?}");
        count += 1;
    }
    count
}

fn golden(name: &str) -> Value {
    read(&common::shared().join("goldens/tokenizer").join(name))
}

#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
fn llama2c_equals_upstream() {
    let tokenizer = load(&common::model("tok512.et.bin")).unwrap();
    assert_eq!(tokenizer.format(), "llama2.c");
    assert_eq!(check(&*tokenizer, &golden("llama2c_tok512.json")), 130);
}

#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
fn llama2c_without_header_encodes_the_same() {
    let [headed, raw] = ["tok512.et.bin", "tok512.bin"].map(|name| load(&common::model(name)).unwrap());
    assert_eq!((raw.vocab_size(), raw.bos(), raw.eos()), (512, Some(1), &[2][..]));
    for case in golden("llama2c_tok512.json")["cases"].as_array().unwrap() {
        let Ok(text) = String::from_utf8(bytes(&case["text_hex"])) else { continue };
        let specials = Specials { bos: 1, eos: 1 };
        assert_eq!(raw.encode(&text, specials).unwrap(), headed.encode(&text, specials).unwrap(), "{text:?}");
    }
    for token in (0..512).filter(|token| ![1, 2].contains(token)) {
        assert_eq!(raw.decode(Some(0), token).unwrap(), headed.decode(Some(0), token).unwrap());
    }
    // In the author's form BOS and EOS have newlines around them.
    assert_eq!(raw.decode(Some(0), 2).unwrap(), b"\n</s>\n");
}

#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
fn sentencepiece_equals_upstream() {
    let tokenizer = load(&common::model("tok512.model")).unwrap();
    assert_eq!(tokenizer.format(), "SentencePiece");
    assert_eq!(check(&*tokenizer, &golden("sentencepiece_tok512.json")), 130);
}

/// Llama 2's own tokenizer may not be passed on, so its file comes from whoever runs this test.
#[test]
#[ignore = "needs ../shared and LLR_LLAMA2_TOKENIZER: the path of Llama 2's tokenizer.model"]
fn sentencepiece_of_llama_2_equals_upstream() {
    let path = std::env::var_os("LLR_LLAMA2_TOKENIZER").expect("LLR_LLAMA2_TOKENIZER is not set");
    let tokenizer = load(Path::new(&path)).unwrap();
    assert_eq!(check(&*tokenizer, &golden("sentencepiece_32000.json")), 130);
}

fn fixture(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

fn check_fixture(name: &str) -> Arc<dyn Tokenizer> {
    let tokenizer = load(&fixture(&format!("{name}.model"))).unwrap();
    let recorded = &read(&fixture("sentencepiece_cases.json"))[name];
    assert_eq!(tokenizer.vocab_size() as u64, recorded["vocab"].as_u64().unwrap());
    assert_eq!(tokenizer.bos(), recorded["bos"].as_u64());
    let cases = recorded["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 80);
    for case in cases {
        let text = case[0].as_str().unwrap();
        assert_eq!(tokenizer.encode(text, Specials::default()).unwrap(), ids(&case[1]), "{text:?}");
    }
    tokenizer
}

#[test]
fn sentencepiece_unigram_with_replacements_equals_the_reference_library() {
    let tokenizer = check_fixture("unigram");
    let encode = |text| tokenizer.encode(text, Specials::default()).unwrap();
    assert_eq!(encode("\u{fb01}x \u{2460}"), encode("fix 1"), "the character map is not used");
}

#[test]
fn sentencepiece_bpe_with_user_defined_tokens_equals_the_reference_library() {
    check_fixture("bpe");
}
