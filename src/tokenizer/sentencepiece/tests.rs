//! Handmade models: what each option does, and each way in which a model can be damaged.

use super::super::MAX_PIECE;
use super::*;

const NORMAL: u8 = 1;
const UNKNOWN: u8 = 2;
const CONTROL: u8 = 3;
const USER_DEFINED: u8 = 4;
const UNUSED: u8 = 5;
const BYTE: u8 = 6;

const BPE: [u8; 2] = [3 << 3, 2];
const BYTE_FALLBACK: [u8; 3] = [0x98, 0x02, 1];
const NO_DUMMY: [u8; 2] = [3 << 3, 0];
const KEEP_SPACES: [u8; 2] = [4 << 3, 0];

type Entry<'a> = (&'a str, f32, u8);

const BASE: [Entry<'static>; 3] = [("<unk>", 0.0, UNKNOWN), ("<s>", 0.0, CONTROL), ("</s>", 0.0, CONTROL)];

fn field(number: u8, content: &[u8]) -> Vec<u8> {
    assert!(content.len() < 1 << 14);
    let len = [content.len() as u8 | 0x80, (content.len() >> 7) as u8];
    [&[number << 3 | 2], &len[..], content].concat()
}

fn piece(&(text, score, kind): &Entry<'_>) -> Vec<u8> {
    field(1, &[&field(1, text.as_bytes())[..], &[2 << 3 | 5], &score.to_le_bytes(), &[3 << 3, kind]].concat())
}

fn model(pieces: &[Entry<'_>], trainer: &[&[u8]], normalizer: &[&[u8]]) -> Vec<u8> {
    let pieces: Vec<u8> = BASE.iter().chain(pieces).flat_map(piece).collect();
    [pieces, field(2, &trainer.concat()), field(3, &normalizer.concat())].concat()
}

fn load(pieces: &[Entry<'_>], trainer: &[&[u8]], normalizer: &[&[u8]]) -> SentencePiece {
    SentencePiece::from_bytes(&model(pieces, trainer, normalizer)).unwrap()
}

fn ids(tokenizer: &SentencePiece, text: &str) -> Vec<TokenId> {
    tokenizer.encode(text, Specials::default()).unwrap()
}

fn byte_names() -> Vec<String> {
    (0..=255).map(|byte| format!("<0x{byte:02X}>")).collect()
}

const LETTERS: [Entry<'static>; 4] =
    [("\u{2581}", -9.0, NORMAL), ("a", -8.0, NORMAL), ("b", -8.0, NORMAL), ("\u{2581}a", -1.0, NORMAL)];

#[test]
fn spaces_follow_the_normalizer_options() {
    let default = load(&LETTERS, &[&BPE], &[]);
    assert_eq!(ids(&default, "  a   b "), [6, 3, 5]);
    assert!(ids(&default, "  ").is_empty());
    assert_eq!(ids(&load(&LETTERS, &[&BPE], &[&NO_DUMMY]), "a  a"), [4, 6]);
    assert_eq!(ids(&load(&LETTERS, &[&BPE], &[&KEEP_SPACES]), " a b "), [3, 6, 3, 5, 3]);
    let suffix = [0xC0, 0x01, 1];
    assert_eq!(ids(&load(&LETTERS, &[&BPE, &suffix], &[]), "a"), [4, 3]);
    let unescaped = [5 << 3, 0];
    let spaced = [(" ", -9.0, NORMAL), (" a", -1.0, NORMAL)];
    assert_eq!(ids(&load(&spaced, &[&BPE], &[&unescaped]), "a  a"), [4, 4]);
}

#[test]
fn a_run_of_unknown_characters_is_one_token() {
    for kind in [&BPE[..], &[3 << 3, 1]] {
        assert_eq!(ids(&load(&LETTERS, &[kind], &[]), "axyzbxa"), [6, 0, 5, 0, 4]);
    }
}

#[test]
fn unknown_characters_fall_back_to_bytes() {
    let names = byte_names();
    let mut pieces: Vec<Entry<'_>> = names.iter().map(|name| (&**name, 0.0, BYTE)).collect();
    pieces.extend(LETTERS);
    let tokenizer = load(&pieces, &[&BPE, &BYTE_FALLBACK], &[]);
    assert_eq!(ids(&tokenizer, "a\u{e9}"), [262, 3 + 0xC3, 3 + 0xA9]);
}

#[test]
fn user_defined_tokens_are_never_cut_or_merged() {
    let pieces = [LETTERS.as_slice(), &[("ab", 0.0, USER_DEFINED), ("\u{2581}ab", 5.0, NORMAL)]].concat();
    assert_eq!(ids(&load(&pieces, &[&BPE], &[]), "ab"), [3, 7]);
}

#[test]
fn unused_tokens_are_taken_apart_again() {
    let pieces = [LETTERS.as_slice(), &[("ab", -2.0, UNUSED), ("aba", -3.0, UNUSED)]].concat();
    assert_eq!(ids(&load(&pieces, &[&BPE], &[&NO_DUMMY]), "aba"), [4, 5, 4]);
    assert_eq!(ids(&load(&pieces, &[], &[&NO_DUMMY]), "aba"), [4, 5, 4]);
}

#[test]
fn unigram_takes_the_best_sum_and_not_the_best_token() {
    let pieces = [("a", -1.0, NORMAL), ("b", -1.0, NORMAL), ("ab", -3.0, NORMAL), ("bb", -1.5, NORMAL)];
    let tokenizer = load(&pieces, &[], &[&NO_DUMMY]);
    assert_eq!(ids(&tokenizer, "ab"), [3, 4]);
    assert_eq!(ids(&tokenizer, "abb"), [3, 6]);
    // Of equal sums, the one found first.
    assert_eq!(ids(&tokenizer, "abbb"), [3, 4, 6]);
}

#[test]
fn special_tokens_are_control_tokens_only() {
    let tokenizer = load(&LETTERS, &[&BPE], &[]);
    assert_eq!((tokenizer.bos(), tokenizer.eos()), (Some(1), &[2][..]));
    assert_eq!(tokenizer.encode("a", Specials { bos: 1, eos: 2 }).unwrap(), [1, 6, 2, 2]);
    let named = |name: &[u8]| [&[0xF2, 0x02, name.len() as u8], name].concat();
    let tokenizer = load(&LETTERS, &[&BPE, &named(b"a")], &[]);
    assert_eq!(tokenizer.bos(), None);
    assert_eq!(tokenizer.encode("a", Specials { bos: 1, eos: 0 }).unwrap(), [6]);
}

#[test]
fn o19_only_a_whole_token_has_an_id() {
    let tokenizer = load(&LETTERS, &[&BPE], &[]);
    assert_eq!(tokenizer.id_of("</s>"), Some(2));
    assert_eq!(tokenizer.id_of("ab"), None);
    assert_eq!(tokenizer.id_of("<unk>"), Some(0));
}

#[test]
fn damaged_models_are_told_apart() {
    let with = |pieces: &[Entry<'_>], trainer: &[&[u8]]| SentencePiece::from_bytes(&model(pieces, trainer, &[])).err();
    let letters = &LETTERS[..];
    let names = byte_names();
    let all_but_one: Vec<Entry<'_>> = names[1..].iter().map(|name| (&**name, 0.0, BYTE)).collect();
    let long = "x".repeat(MAX_PIECE + 1);
    for (found, defect) in [
        (with(&[("a", 0.0, NORMAL), ("a", 0.0, UNUSED)], &[]), Defect::DuplicatePiece { first: 3, second: 4 }),
        (with(&[("<u>", 0.0, UNKNOWN)], &[]), Defect::UnknownPieces { count: 2 }),
        (with(&[("<0x41>", 0.0, BYTE)], &[]), Defect::BytePiece { index: 3 }),
        (with(&[("<0x4G>", 0.0, BYTE)], &[&BYTE_FALLBACK]), Defect::BytePiece { index: 3 }),
        (with(&all_but_one, &[&BYTE_FALLBACK]), Defect::MissingByte { byte: 0 }),
        (with(&[("a", 0.0, 9)], &[]), Defect::PieceKind { index: 3, kind: 9 }),
        (with(&[("", 0.0, NORMAL)], &[]), Defect::PieceLength { index: 3, length: 0, limit: MAX_PIECE }),
        (with(&[(&long, 0.0, NORMAL)], &[]), Defect::PieceLength { index: 3, length: 4097, limit: MAX_PIECE }),
        (with(&[("a", f32::INFINITY, NORMAL)], &[]), Defect::Score { index: 3, score: "inf".into() }),
        (with(letters, &[&[3 << 3, 3]]), Defect::ModelKind { kind: 3 }),
    ] {
        assert_eq!(found, Some(defect));
    }
}

#[test]
fn damaged_protobuf_is_told_apart() {
    let parse = |bytes: &[u8]| SentencePiece::from_bytes(bytes).err().unwrap();
    let malformed = |problem, offset| Defect::Protobuf { problem, offset };
    assert_eq!(parse(b"\x0A\x7F\x0A"), Defect::Truncated { what: "a protobuf field", offset: 2, need: 127, have: 1 });
    assert_eq!(parse(b"\x07"), malformed("a field number that cannot be", 1));
    assert_eq!(parse(b"\x0B"), malformed("a wire type that cannot be", 1));
    assert_eq!(parse(&[0xFF; 11]), malformed("a number of more than ten bytes", 10));
    assert_eq!(parse(b"\x08\x01"), malformed("a field of another type than the format has", 2));
    assert_eq!(parse(b"\x22\x01x"), Defect::VocabSize { vocab: 0 });
}
