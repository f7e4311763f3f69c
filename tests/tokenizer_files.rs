//! Whole tokenizer files: real ones of Hugging Face, and what `load` says of files that are none.

mod common;

use llama_runner::Status;
use llama_runner::tokenizer::{Defect, Specials, TokenId, Tokenizer, TokenizerError, Utf8Stream, load};
use std::path::Path;

const TEXTS: [&str; 6] = [
    "Once upon a time, there was a little girl named Lily.",
    "hello   world\n\n  12345 don't",
    "\u{c9}l ni\u{f1}o \u{6f22}\u{5b57} \u{1F469}\u{200D}\u{1F469}\u{200D}\u{1F467} a\u{301}\u{a0}\u{feff}",
    " \t\r\n leading and trailing \n\n ",
    "fn main() { println!(\"{:?}\", 0x1F..=0xFF); } // <s> </s> <unk> <0x0A>",
    "",
];

fn encode(tokenizer: &dyn Tokenizer, text: &str) -> Vec<TokenId> {
    tokenizer.encode(text, Specials::default()).unwrap()
}

/// The text that token after token gives, each token decoded after the one before it.
fn streamed(tokenizer: &dyn Tokenizer, ids: &[TokenId], first: Option<TokenId>) -> String {
    let mut stream = Utf8Stream::new();
    let mut text = String::new();
    let mut previous = first;
    for &id in ids {
        text += &stream.push(&tokenizer.decode(previous, id).unwrap());
        previous = Some(id);
    }
    text + &stream.flush()
}

#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
fn streamed_pieces_are_the_text_again() {
    for name in ["tok512.et.bin", "tok512.bin", "story/tokenizer.json", "smollm2/tokenizer.json"] {
        let tokenizer = load(&common::model(name)).unwrap();
        for text in TEXTS {
            let ids = encode(&*tokenizer, text);
            assert_eq!(streamed(&*tokenizer, &ids, tokenizer.bos()), text, "{name}");
            assert_eq!(streamed(&*tokenizer, &ids, None), text, "{name}");
        }
    }
}

#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
fn smollm2_equals_the_python_reference() {
    let tokenizer = load(&common::model("smollm2/tokenizer.json")).unwrap();
    assert_eq!((tokenizer.format(), tokenizer.vocab_size()), ("tokenizer.json", 49_152));
    // From tokenizer_config.json beside it.
    assert_eq!((tokenizer.bos(), tokenizer.eos()), (Some(1), &[2][..]));
    assert_eq!(tokenizer.id_of("<|im_end|>"), Some(2));
    let cases: [(&str, &[TokenId]); 4] = [
        ("Once upon a time", &[6403, 1980, 253, 655]),
        ("hello   world\n\n  12345 don't", &[28120, 256, 905, 39892, 33, 34, 35, 36, 37, 1326, 982]),
        ("<|im_start|>user\nHi \u{1F600}!<|im_end|>\n", &[1, 4093, 198, 26843, 40303, 218, 17, 2, 198]),
        (" \u{e9}\u{6f22}\u{5b57}\r\n\t", &[26411, 177, 137, 112, 36518, 15290]),
    ];
    for (text, ids) in cases {
        assert_eq!(encode(&*tokenizer, text), ids, "{text:?}");
    }
}

#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
fn story_finds_its_special_tokens_by_name() {
    let tokenizer = load(&common::model("story/tokenizer.json")).unwrap();
    assert_eq!((tokenizer.vocab_size(), tokenizer.bos(), tokenizer.eos()), (979, Some(1), &[2][..]));
    assert_eq!(tokenizer.encode("", Specials { bos: 1, eos: 1 }).unwrap(), [1, 2]);
    assert_eq!(encode(&*tokenizer, "Once upon a time"), [599, 598, 261, 459]);
}

#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
fn requests_that_cannot_be_are_refused() {
    for name in ["tok512.et.bin", "tok512.model", "story/tokenizer.json"] {
        let tokenizer = load(&common::model(name)).unwrap();
        for id in [tokenizer.vocab_size() as TokenId, u64::from(u32::MAX), u64::MAX] {
            let error = tokenizer.decode(None, id).unwrap_err();
            assert_eq!(error.status(), Status::TokenizerFailed, "{name}");
            assert!(matches!(error.find(), Some(TokenizerError::UnknownId { .. })), "{name}: {error:?}");
        }
        let error = tokenizer.encode("a", Specials { bos: usize::MAX, eos: 0 }).unwrap_err();
        assert!(matches!(error.find(), Some(TokenizerError::TooManySpecials { .. })), "{name}: {error:?}");
        assert_eq!(tokenizer.encode("a", Specials { bos: 300, eos: 0 }).unwrap()[..300], [1; 300]);
    }
}

/// The prompt's template has a beginning-of-sequence token already and the caller asks for one more.
#[test]
fn o20_two_bos_in_a_row_are_kept_and_warned_of() {
    use base64::Engine;
    use llama_runner::base::log::{Level, set_sink};
    use std::sync::atomic::{AtomicUsize, Ordering};
    static WARNINGS: AtomicUsize = AtomicUsize::new(0);

    let base64 = |byte: u8| base64::engine::general_purpose::STANDARD.encode([byte]);
    let file: String = (0..=255).map(|byte| format!("{} {byte}\n", base64(byte))).collect();
    let tokenizer = llama_runner::tokenizer::Tiktoken::from_bytes(file.as_bytes()).unwrap();
    let count = |level, line: &str| {
        if level == Level::Warning && line.contains("more than one beginning-of-sequence token (256)") {
            WARNINGS.fetch_add(1, Ordering::Relaxed);
        }
    };
    set_sink(Some((Level::Warning, std::sync::Arc::new(count))));
    let encode = |bos| tokenizer.encode("<|begin_of_text|>hi", Specials { bos, eos: 0 }).unwrap();
    assert_eq!(encode(0), [256, 104, 105]);
    assert_eq!(WARNINGS.load(Ordering::Relaxed), 0);
    assert_eq!(encode(1), [256, 256, 104, 105]);
    assert_eq!(WARNINGS.load(Ordering::Relaxed), 1);
    set_sink(None);
}

#[test]
fn a_path_that_is_no_file_cannot_be_accessed() {
    let dir = tempfile::tempdir().unwrap();
    for path in [dir.path().join("missing.bin"), dir.path().to_path_buf(), Path::new("").to_path_buf()] {
        let error = load(&path).err().unwrap();
        assert_eq!(error.status(), Status::AccessFailed);
        assert!(error.chain().contains(&path.display().to_string()), "{error:?}");
    }
}

fn refuse(content: &[u8]) -> (String, Vec<Defect>) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tokenizer.any");
    std::fs::write(&path, content).unwrap();
    let error = load(&path).err().unwrap();
    assert_eq!(error.status(), Status::InvalidExternalData, "{error:?}");
    assert!(error.chain().contains(&path.display().to_string()), "{error:?}");
    let Some(TokenizerError::Unrecognized { attempts, .. }) = error.find() else { panic!("{error:?}") };
    (error.chain(), attempts.iter().map(|attempt| attempt.defect.clone()).collect())
}

#[test]
fn an_empty_file_is_called_empty() {
    assert_eq!(refuse(b"").1, [Defect::Empty]);
}

#[test]
fn a_wrong_file_is_told_every_format_that_was_tried() {
    let (message, defects) = refuse(b"ET12 this is a program and no tokenizer at all, with some text in it");
    assert_eq!(defects.len(), 5, "{message}");
    for format in ["tokenizer.json", "tiktoken", "SentencePiece", "llama2.c with header", "llama2.c"] {
        assert!(message.contains(&format!("as {format}: ")), "{message}");
    }
}

#[test]
fn a_damaged_file_of_a_known_format_is_told_of_that_only() {
    let (message, defects) = refuse(b" \n{\"model\": {\"type\": \"Foo\"}}");
    assert_eq!(defects, [Defect::UnknownComponent { section: "model", name: "Foo".into() }], "{message}");
    let (message, defects) = refuse(b"YQ== 0\nYg==\n");
    let problem = "it has no space between token and rank";
    assert_eq!(defects, [Defect::Line { line: 2, problem }], "{message}");
}

#[test]
fn a_header_that_promises_two_billion_tokens_is_refused() {
    let words: [i32; 4] = [i32::MAX, 1, 2, 7];
    let file: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    assert!(refuse(&file).1.contains(&Defect::VocabSize { vocab: i32::MAX.into() }));
}

#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
fn a_damaged_config_beside_tokenizer_json_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tokenizer.json");
    std::fs::copy(common::model("story/tokenizer.json"), &path).unwrap();
    let config = dir.path().join("tokenizer_config.json");
    std::fs::write(&config, r#"{"bos_token": {"content": "</s>"}, "eos_token": null}"#).unwrap();
    let tokenizer = load(&path).unwrap();
    assert_eq!((tokenizer.bos(), tokenizer.eos()), (Some(2), &[][..]));
    std::fs::write(&config, "{").unwrap();
    let message = load(&path).err().unwrap().chain();
    assert!(message.contains("tokenizer_config.json beside it"), "{message}");
}
