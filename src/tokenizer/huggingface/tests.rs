//! Handmade `tokenizer.json` files, one for each manner of the field, and what is wrong with damaged ones.

use super::*;
use serde_json::{Value, json};

const LLAMA_3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

fn special(id: usize, content: &str) -> Value {
    json!({"id": id, "content": content, "special": true, "normalized": false, "single_word": false, "lstrip": false,
        "rstrip": false})
}

/// A BPE file whose vocabulary is `specials`, then `alphabet`, then the results of `merges`.
fn bpe(specials: &[&str], alphabet: &[String], merges: &[(&str, &str)]) -> Value {
    let merged = merges.iter().map(|(left, right)| format!("{left}{right}"));
    let texts = specials.iter().map(|text| text.to_string()).chain(alphabet.iter().cloned()).chain(merged);
    let vocab: serde_json::Map<_, _> = texts.zip(0..).map(|(text, id)| (text, json!(id))).collect();
    let added: Vec<Value> = specials.iter().enumerate().map(|(id, text)| special(id, text)).collect();
    json!({"version": "1.0", "truncation": null, "padding": null, "added_tokens": added, "normalizer": null,
        "pre_tokenizer": null, "post_processor": null, "decoder": null,
        "model": {"type": "BPE", "vocab": vocab, "merges": merges, "fuse_unk": false, "byte_fallback": false}})
}

/// A table of replacements whose trie says it has `size` bytes and has none, with one text.
fn charsmap(size: u32, text: &str) -> Value {
    use base64::Engine;
    let table = [&size.to_le_bytes(), text.as_bytes(), &[0]].concat();
    json!({"type": "Precompiled", "precompiled_charsmap": base64::engine::general_purpose::STANDARD.encode(table)})
}

fn letters(text: &str) -> Vec<String> {
    text.chars().map(String::from).collect()
}

fn parse(file: &Value) -> Result<HuggingFace, Defect> {
    HuggingFace::from_bytes(file.to_string().as_bytes(), None)
}

fn with_config(file: &Value, config: Value) -> HuggingFace {
    HuggingFace::from_bytes(file.to_string().as_bytes(), Some(config.to_string().as_bytes())).unwrap()
}

fn encode(tokenizer: &HuggingFace, text: &str) -> Vec<TokenId> {
    tokenizer.encode(text, Specials::default()).unwrap()
}

/// What each token adds, the first one after nothing.
fn pieces(tokenizer: &HuggingFace, ids: &[TokenId]) -> Vec<Vec<u8>> {
    let previous = std::iter::once(None).chain(ids.iter().copied().map(Some));
    previous.zip(ids).map(|(previous, id)| tokenizer.decode(previous, *id).unwrap()).collect()
}

fn texts(tokenizer: &HuggingFace, ids: &[TokenId]) -> Vec<String> {
    pieces(tokenizer, ids).into_iter().map(|piece| String::from_utf8_lossy(&piece).into_owned()).collect()
}

/// GPT-2's stand-ins for the 256 bytes, in the order of their code points.
fn byte_alphabet() -> Vec<String> {
    let same = (0..256u32).filter(|c| matches!(c, 0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF));
    same.chain(0x100..0x144).map(|c| char::from_u32(c).unwrap().to_string()).collect()
}

fn llama_3() -> Value {
    let merges = [
        ("h", "e"),
        ("l", "l"),
        ("he", "ll"),
        ("hell", "o"),
        ("\u{120}", "w"),
        ("\u{120}w", "o"),
        ("\u{120}", "\u{120}"),
        ("\u{10a}", "\u{10a}"),
        ("1", "2"),
        ("12", "3"),
        ("'", "t"),
    ];
    let mut file = bpe(&["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"], &byte_alphabet(), &merges);
    file["model"]["ignore_merges"] = json!(true);
    file["pre_tokenizer"] = json!({"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": LLAMA_3}, "behavior": "Isolated", "invert": false},
        {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}]});
    file["decoder"] = json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true});
    file["post_processor"] = json!({"type": "Sequence", "processors": [
        {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": false, "use_regex": true},
        {"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<|begin_of_text|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<|begin_of_text|>":
                {"id": "<|begin_of_text|>", "ids": [0], "tokens": ["<|begin_of_text|>"]}}}]});
    file
}

const GEMMA_SPACE: &str = "\u{2581}";

/// Gemma 3's way: spaces become U+2581, words are split at the text " ", unknown characters become bytes.
fn gemma() -> Value {
    let bytes = (0..=255).map(|byte| format!("<0x{byte:02X}>"));
    let alphabet: Vec<String> = letters("\u{2581}abc").into_iter().chain(bytes).collect();
    let mut file =
        bpe(&["<pad>", "<eos>", "<bos>", "<unk>"], &alphabet, &[(GEMMA_SPACE, "a"), ("b", "c"), ("bc", GEMMA_SPACE)]);
    file["model"]["byte_fallback"] = json!(true);
    file["model"]["fuse_unk"] = json!(true);
    file["model"]["unk_token"] = json!("<unk>");
    file["normalizer"] = json!({"type": "Replace", "pattern": {"String": " "}, "content": GEMMA_SPACE});
    file["pre_tokenizer"] =
        json!({"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": false});
    file["decoder"] = json!({"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": GEMMA_SPACE}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]});
    file
}

/// Llama 2's way: one U+2581 in front, taken away again in decoding.
fn llama_2() -> Value {
    let mut file = gemma();
    file["normalizer"] = json!({"type": "Sequence", "normalizers": [
        {"type": "Prepend", "prepend": GEMMA_SPACE}, {"type": "Replace", "pattern": {"String": " "}, "content": GEMMA_SPACE}]});
    file["pre_tokenizer"] = Value::Null;
    let decoders = file["decoder"]["decoders"].as_array_mut().unwrap();
    decoders.push(json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}));
    file
}

#[test]
fn o1_look_ahead_patterns_work() {
    let tokenizer = parse(&llama_3()).unwrap();
    let text = "hello   world\n\n  12345 don't";
    let ids = encode(&tokenizer, text);
    let expected = ["hello", "  ", " wo", "r", "l", "d", "\n\n", " ", " ", "123", "4", "5", " ", "d", "o", "n", "'t"];
    assert_eq!(texts(&tokenizer, &ids), expected);
    assert_eq!(texts(&tokenizer, &encode(&tokenizer, "hello   "))[1..], ["  ", " "]);
}

#[test]
fn o3_split_at_a_text_replace_and_byte_fallback_work() {
    let tokenizer = parse(&gemma()).unwrap();
    let text = " a bc \u{1F600}";
    let ids = encode(&tokenizer, text);
    let expected: [&[u8]; 7] = [b" a", b" ", b"bc ", b"\xF0", b"\x9F", b"\x98", b"\x80"];
    assert_eq!(pieces(&tokenizer, &ids), expected);
    assert_eq!((tokenizer.bos(), tokenizer.eos()), (Some(2), &[1][..]));
}

#[test]
fn o3_an_unknown_component_is_named() {
    for (section, within) in [
        ("normalizer", "normalizers"),
        ("pre_tokenizer", "pretokenizers"),
        ("post_processor", "processors"),
        ("decoder", "decoders"),
        ("model", ""),
    ] {
        let expected = Some(Defect::UnknownComponent { section, name: "Foo".into() });
        let mut file = gemma();
        file[section]["type"] = json!("Foo");
        assert_eq!(parse(&file).err(), expected, "{section}");
        if !within.is_empty() {
            file[section] = json!({"type": "Sequence", within: [{"type": "Foo"}]});
            assert_eq!(parse(&file).err(), expected, "{section} within a sequence");
        }
    }
}

#[test]
fn components_that_cost_without_end_are_refused() {
    let replace = |pattern: Value, content: &str| json!({"type": "Replace", "pattern": pattern, "content": content});
    let doubling = || replace(json!({"String": "a"}), "aa");
    let growth = |section, growth| Some(Defect::Growth { section, growth, limit: 1024 });
    for (section, parts) in [("normalizer", "normalizers"), ("decoder", "decoders")] {
        let sequence = |step: Value, count| json!({"type": "Sequence", parts: vec![step; count]});
        let nested = json!({"type": "Sequence", parts: [sequence(doubling(), 6), sequence(doubling(), 5)]});
        for (component, expected) in [
            (sequence(doubling(), 10), None),
            (sequence(doubling(), 11), growth(section, 2048)),
            (sequence(doubling(), 100), growth(section, usize::MAX)),
            (nested, growth(section, 2048)),
            (sequence(replace(json!({"Regex": "a*"}), "a"), 11), growth(section, 2048)),
            (replace(json!({"String": ""}), &"a".repeat(1024)), growth(section, 1025)),
            (replace(json!({"String": "aa"}), &"a".repeat(2048)), None),
        ] {
            let mut file = gemma();
            file[section] = component.clone();
            assert_eq!(parse(&file).err(), expected, "{component}");
        }
    }
    let mut file = gemma();
    file["normalizer"] = charsmap(0, &"a".repeat(1025));
    assert_eq!(parse(&file).err(), growth("normalizer", 1025));

    let number = |section, field, value| Some(Defect::Number { section, field, value });
    let mut file = gemma();
    file["normalizer"] = json!({"type": "Sequence", "normalizers": [charsmap(u32::MAX, "a")]});
    assert_eq!(parse(&file).err(), number("normalizer", "precompiled_charsmap size", u32::MAX.into()));
    let mut file = gemma();
    file["pre_tokenizer"] = json!({"type": "Sequence", "pretokenizers": [{"type": "FixedLength", "length": 0}]});
    assert_eq!(parse(&file).err(), number("pre_tokenizer", "length", 0));
    let mut file = gemma();
    file["model"] = json!({"type": "WordPiece", "unk_token": "a", "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 1 << 20, "vocab": {"a": 0}});
    assert_eq!(parse(&file).err(), number("model", "max_input_chars_per_word", 1 << 20));
}

#[test]
fn the_prefix_space_is_taken_from_the_first_token_only() {
    let tokenizer = parse(&llama_2()).unwrap();
    let ids = tokenizer.encode("a a", Specials { bos: 1, eos: 1 }).unwrap();
    assert_eq!(texts(&tokenizer, &ids), ["<bos>", "a", " a", "<eos>"]);
    assert_eq!(texts(&tokenizer, &ids[1..3]), ["a", " a"]);
    assert_eq!(tokenizer.decode(Some(1), ids[1]).unwrap(), b" a");
}

#[test]
fn metaspace_gives_spaces_but_for_the_first() {
    let mut file = llama_2();
    let metaspace = |scheme: &str| json!({"type": "Metaspace", "replacement": GEMMA_SPACE, "prepend_scheme": scheme, "split": true});
    file["normalizer"] = Value::Null;
    for (scheme, first) in [("always", "a"), ("first", "a"), ("never", " a")] {
        (file["pre_tokenizer"], file["decoder"]) = (metaspace(scheme), metaspace(scheme));
        let tokenizer = parse(&file).unwrap();
        let ids = encode(&tokenizer, if scheme == "never" { " a a" } else { "a a" });
        assert_eq!(texts(&tokenizer, &ids), [first, " a"], "{scheme}");
    }
}

#[test]
fn without_a_decoder_tokens_are_words() {
    let tokenizer = parse(&bpe(&[], &letters("ab"), &[])).unwrap();
    assert_eq!(texts(&tokenizer, &[0, 1]), ["a", " b"]);
}

#[test]
fn o19_only_a_whole_token_has_an_id() {
    let tokenizer = parse(&llama_3()).unwrap();
    assert_eq!(tokenizer.id_of("<|eot_id|>"), Some(2));
    assert_eq!(tokenizer.id_of("<|end|>"), None);
    assert_eq!(tokenizer.id_of("hellohello"), None);
}

#[test]
fn o20_only_the_special_tokens_asked_for_are_added() {
    let tokenizer = parse(&llama_3()).unwrap();
    let hello = tokenizer.id_of("hello").unwrap();
    let encode = |text, bos, eos| tokenizer.encode(text, Specials { bos, eos }).unwrap();
    assert_eq!(encode("hello", 0, 0), [hello]);
    assert_eq!(encode("hello", 1, 1), [0, hello, 1]);
    assert_eq!(encode("<|begin_of_text|>hello", 0, 0), [0, hello]);
    assert_eq!(encode("<|begin_of_text|>hello", 1, 0), [0, 0, hello]);
}

#[test]
fn special_tokens_come_from_config_then_template_then_names() {
    let find = |tokenizer: &HuggingFace| (tokenizer.bos(), tokenizer.eos().to_vec());
    let file = llama_3();
    assert_eq!(find(&with_config(&file, json!({"eos_token": {"content": "<|eot_id|>"}}))), (Some(0), vec![2]));
    assert_eq!(find(&with_config(&file, json!({"bos_token": null, "eos_token": "<none>"}))), (None, vec![]));
    let mut renamed = file.clone();
    let single = &mut renamed["post_processor"]["processors"][1]["single"];
    single.as_array_mut().unwrap().push(json!({"SpecialToken": {"id": "<|begin_of_text|>", "type_id": 0}}));
    assert_eq!(find(&parse(&renamed).unwrap()), (Some(0), vec![0]));
    assert_eq!(find(&parse(&bpe(&["</s>", "<s>"], &letters("ab"), &[])).unwrap()), (Some(1), vec![0]));
    // A word that looks like one is none.
    assert_eq!(find(&parse(&bpe(&[], &["<s>".into(), "</s>".into()], &[])).unwrap()), (None, vec![]));
}

#[test]
fn a_file_without_bos_gets_none_added() {
    let tokenizer = parse(&bpe(&["</s>"], &letters("ab"), &[])).unwrap();
    assert_eq!(tokenizer.encode("a", Specials { bos: 1, eos: 1 }).unwrap(), [1, 0]);
}

#[test]
fn padding_and_truncation_of_the_file_are_left_out() {
    let mut file = bpe(&[], &letters("ab"), &[]);
    file["padding"] = json!({"strategy": {"Fixed": 4_000_000_000u32}, "direction": "Right", "pad_to_multiple_of": null,
        "pad_id": 0, "pad_type_id": 0, "pad_token": "a"});
    file["truncation"] = json!({"direction": "Right", "max_length": 1, "strategy": "LongestFirst", "stride": 0});
    assert_eq!(encode(&parse(&file).unwrap(), "ab"), [0, 1]);
}

#[test]
fn numbers_that_are_left_out_are_no_tokens() {
    let mut file = bpe(&[], &letters("ab"), &[]);
    file["model"]["vocab"]["z"] = json!(9);
    let tokenizer = parse(&file).unwrap();
    assert_eq!(tokenizer.vocab_size(), 10);
    assert_eq!(tokenizer.decode(None, 9).unwrap(), b"z");
    for id in [5, 10, u64::MAX] {
        let error = tokenizer.decode(None, id).unwrap_err();
        assert!(matches!(error.find(), Some(TokenizerError::UnknownId { vocab: 10, .. })), "{error:?}");
    }
}

#[test]
fn damaged_files_are_told_apart() {
    let decoder = |decoder: Value| {
        let mut file = gemma();
        file["decoder"] = decoder;
        parse(&file).err().unwrap()
    };
    let unsupported = |name: &str, reason| Defect::UnsupportedDecoder { name: name.into(), reason };
    let streams = "the end of the text is not known while it streams";
    let no_text = "its pattern is not a text";
    let joined = "it works on the joined text";
    let nobody = "no language model's tokenizer has it";
    let strip = json!({"type": "Strip", "content": " ", "start": 0, "stop": 1});
    let replace = json!({"type": "Replace", "pattern": {"String": "a"}, "content": "b"});
    let after_fuse = |part: &Value| json!({"type": "Sequence", "decoders": [{"type": "Fuse"}, part]});
    for (found, expected) in [
        (decoder(json!({"type": "BPEDecoder", "suffix": "x"})), unsupported("BPEDecoder", nobody)),
        (decoder(after_fuse(&strip)), unsupported("Strip", streams)),
        (decoder(after_fuse(&replace)), unsupported("Replace", joined)),
        (
            decoder(json!({"type": "Replace", "pattern": {"Regex": "a+"}, "content": "b"})),
            unsupported("Replace", no_text),
        ),
        (parse(&bpe(&[], &[], &[])).err().unwrap(), Defect::VocabSize { vocab: 0 }),
    ] {
        assert_eq!(found, expected);
    }
    let mut sparse = bpe(&[], &letters("ab"), &[]);
    sparse["model"]["vocab"]["z"] = json!(u32::MAX);
    assert_eq!(parse(&sparse).err(), Some(Defect::SparseIds { highest: u32::MAX.into(), count: 3 }));
    assert!(matches!(parse(&json!({"model": 3})).err(), Some(Defect::Json { .. })));
    assert!(matches!(HuggingFace::from_bytes(b"{", None).err(), Some(Defect::Json { .. })));
    let config = HuggingFace::from_bytes(gemma().to_string().as_bytes(), Some(b"{"));
    assert!(matches!(config.err(), Some(Defect::Companion { file: CONFIG, .. })));
}

#[test]
fn a_file_that_makes_the_library_panic_is_an_error() {
    let mut file = bpe(&[], &letters("ab"), &[]);
    // The trie lacks its first node.
    file["normalizer"] = charsmap(0, "a");
    let error = parse(&file).unwrap().encode("ab", Specials::default()).unwrap_err();
    assert!(matches!(error.find(), Some(TokenizerError::Split { .. })), "{error:?}");
}
