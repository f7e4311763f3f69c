//! Llama 3's tokenizer: a tiktoken vocabulary (base64 text and rank a line) with Llama 3's pattern and special tokens.

use super::error::Defect;
use super::merge::Parts;
use super::{MAX_PIECE, Specials, TokenId, Tokenizer, check_id, check_length, surround};
use crate::error::Result;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use regex::Regex;
use std::collections::HashMap;

/// How Llama 3 cuts text into words before merging, but for its look-ahead: where this ends with `\s+`, Llama 3 has
/// `\s+(?!\S)|\s+`, see [`left_to_next`].
const PATTERN: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|",
    r"\s*[\r\n]+|\s+"
);

/// Special tokens follow the vocabulary in this order; reserved ones, counted from 2, fill up to [`SPECIALS`].
const NAMED_SPECIALS: [&str; 11] = [
    "<|begin_of_text|>",
    "<|end_of_text|>",
    "<|reserved_special_token_0|>",
    "<|reserved_special_token_1|>",
    "<|finetune_right_pad_id|>",
    "<|step_id|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eom_id|>",
    "<|eot_id|>",
    "<|python_tag|>",
];
const SPECIALS: usize = 256;

/// A tiktoken vocabulary of n tokens with Llama 3's 256 special tokens behind: BOS is n, `<|begin_of_text|>`, and EOS
/// n + 1, `<|end_of_text|>`; `<|eot_id|>` is for the model family to add.
///
/// Special tokens in the text become their ids, as upstream's `Tiktoken` does.
pub struct Tiktoken {
    /// By id, special tokens included.
    texts: Vec<Box<[u8]>>,
    ranks: HashMap<Box<[u8]>, u32>,
    specials: HashMap<String, u32>,
    longest_special: usize,
    longest: usize,
    pattern: Regex,
    eos: [TokenId; 1],
}

impl Tiktoken {
    /// Whether the first line is base64, a space and a number.
    pub(super) fn sniff(bytes: &[u8]) -> bool {
        let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or(bytes);
        line.len() <= 2 * MAX_PIECE && parse_line(line).is_ok()
    }

    /// Reads the vocabulary. Ranks must be 0 to n − 1 in any order, and every byte must have a token.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Defect> {
        let mut ranks = HashMap::new();
        let mut by_rank = Vec::new();
        let lines = bytes.split(|byte| *byte == b'\n').enumerate();
        for (index, line) in lines.filter(|(_, line)| !line.trim_ascii().is_empty()) {
            let on_line = |problem| Defect::Line { line: index + 1, problem };
            let (text, rank) = parse_line(line).map_err(on_line)?;
            by_rank.push((rank, index + 1));
            if ranks.insert(text.into_boxed_slice(), rank).is_some() {
                return Err(on_line("its token was on a line before"));
            }
        }
        by_rank.sort_unstable();
        for (expected, (rank, line)) in (0..).zip(&by_rank) {
            let problem = "its rank is taken, or leaves out ranks below it";
            if *rank != expected {
                return Err(Defect::Line { line: *line, problem });
            }
        }
        if let Some(byte) = (0..=255).find(|byte: &u8| !ranks.contains_key(&[*byte][..])) {
            return Err(Defect::MissingByte { byte });
        }
        Ok(Self::new(ranks))
    }

    fn new(ranks: HashMap<Box<[u8]>, u32>) -> Self {
        let count = ranks.len();
        let mut texts: Vec<Box<[u8]>> = vec![Box::default(); count];
        for (text, rank) in &ranks {
            texts[*rank as usize] = text.clone();
        }
        let reserved = (2..).map(|i| format!("<|reserved_special_token_{i}|>"));
        let names = NAMED_SPECIALS.into_iter().map(String::from).chain(reserved).take(SPECIALS);
        let specials: HashMap<String, u32> = names.zip(count as u32..).collect();
        texts.resize(count + SPECIALS, Box::default());
        for (name, id) in &specials {
            texts[*id as usize] = name.as_bytes().into();
        }
        let longest_special = specials.keys().map(String::len).max().unwrap_or(0);
        let longest = ranks.keys().map(|text| text.len()).max().unwrap_or(0);
        let pattern = Regex::new(PATTERN).expect("a constant that every test of this file compiles");
        Self { texts, ranks, specials, longest_special, longest, pattern, eos: [count as TokenId + 1] }
    }

    /// Text without special tokens.
    fn encode_ordinary(&self, text: &str, ids: &mut Vec<TokenId>) {
        let mut at = 0;
        while let Some(word) = self.pattern.find_at(text, at) {
            let len = word.len() - left_to_next(word.as_str(), &text[word.end()..]);
            let word = &text.as_bytes()[word.start()..word.start() + len];
            at += len;
            let rank = |piece: &[u8]| if piece.len() > self.longest { None } else { self.ranks.get(piece).copied() };
            if let Some(id) = rank(word) {
                ids.push(id.into());
                continue;
            }
            let mut parts = Parts::new();
            word.iter().for_each(|_| parts.push(1, false));
            parts.merge(|pair| rank(&word[pair.whole()]));
            ids.extend(parts.ranges().map(|(range, _)| TokenId::from(self.ranks[&word[range]])));
        }
    }

    /// The first special token in `text`: where it begins, its length and its id.
    fn next_special(&self, text: &str) -> Option<(usize, usize, u32)> {
        text.match_indices("<|").find_map(|(start, _)| {
            let bytes = &text.as_bytes()[start..];
            let window = &bytes[..bytes.len().min(self.longest_special)];
            let len = 2 + window.windows(2).skip(2).position(|end| end == b"|>")? + 2;
            let id = self.specials.get(text.get(start..start + len)?)?;
            Some((start, len, *id))
        })
    }
}

/// How many bytes at the end of `word` are left to the next word: of several spaces before a word, the last one.
fn left_to_next(word: &str, after: &str) -> usize {
    let mut characters = word.chars().rev();
    match characters.next() {
        Some(last) if after.is_empty() || matches!(last, '\r' | '\n') || !last.is_whitespace() => 0,
        Some(last) if characters.next().is_some() => last.len_utf8(),
        _ => 0,
    }
}

/// The token and rank of `aGVsbG8= 123`.
fn parse_line(line: &[u8]) -> Result<(Vec<u8>, u32), &'static str> {
    let line = line.trim_ascii_end();
    let space = line.iter().position(|byte| *byte == b' ').ok_or("it has no space between token and rank")?;
    let text = STANDARD.decode(&line[..space]).map_err(|_| "its token is not base64")?;
    if !(1..=MAX_PIECE).contains(&text.len()) {
        return Err("its token is empty or longer than 4096 bytes");
    }
    let rank = &line[space + 1..];
    let digits = rank.iter().all(u8::is_ascii_digit);
    let rank = std::str::from_utf8(rank).ok().filter(|_| digits).and_then(|rank| rank.parse().ok());
    Ok((text, rank.ok_or("its rank is no number below 2^32")?))
}

impl Tokenizer for Tiktoken {
    fn format(&self) -> &'static str {
        "tiktoken"
    }

    fn vocab_size(&self) -> usize {
        self.texts.len()
    }

    fn bos(&self) -> Option<TokenId> {
        Some(self.ranks.len() as TokenId)
    }

    fn eos(&self) -> &[TokenId] {
        &self.eos
    }

    fn id_of(&self, piece: &str) -> Option<TokenId> {
        let id = self.specials.get(piece).or_else(|| self.ranks.get(piece.as_bytes()));
        id.map(|id| TokenId::from(*id))
    }

    fn encode(&self, text: &str, specials: Specials) -> Result<Vec<TokenId>> {
        check_length(text.len())?;
        let mut body = Vec::new();
        let mut rest = text;
        while let Some((start, len, id)) = self.next_special(rest) {
            self.encode_ordinary(&rest[..start], &mut body);
            body.push(id.into());
            rest = &rest[start + len..];
        }
        self.encode_ordinary(rest, &mut body);
        Ok(surround(self, specials, body.into_iter())?)
    }

    fn decode(&self, _previous: Option<TokenId>, token: TokenId) -> Result<Vec<u8>> {
        Ok(self.texts[check_id(token, self.texts.len())?].to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORDS: [&str; 14] =
        ["he", "ll", "hell", "hello", " w", "or", " wor", "ld", " world", "  ", "\n\n", "12", "123", "'t"];

    /// All bytes in reverse, then words, as Llama 3's file has its lines but for their number.
    fn file(words: &[&str]) -> Vec<u8> {
        let bytes = (0..=255u8).rev().map(|byte| vec![byte]);
        let texts = bytes.chain(words.iter().map(|word| word.as_bytes().to_vec()));
        let lines = texts.enumerate().map(|(rank, text)| format!("{} {rank}\n", STANDARD.encode(text)));
        lines.collect::<String>().into_bytes()
    }

    fn tokenizer() -> Tiktoken {
        Tiktoken::from_bytes(&file(&WORDS)).unwrap()
    }

    fn pieces(text: &str) -> Vec<String> {
        let tokenizer = tokenizer();
        let ids = tokenizer.encode(text, Specials::default()).unwrap();
        let piece = |id| String::from_utf8_lossy(&tokenizer.decode(None, id).unwrap()).into_owned();
        ids.into_iter().map(piece).collect()
    }

    #[test]
    fn o1_look_ahead_leaves_one_space_to_the_word() {
        let expected = ["hello", "  ", " world", "\n\n", " ", "123", "4", "5", " ", "d", "o", "n", "'t"];
        assert_eq!(pieces("hello   world\n\n  12345 don't").concat(), "hello   world\n\n  12345 don't");
        let expected_of_two_spaces = ["\n\n", " ", " ", "123"];
        assert_eq!(pieces("hello   world\n\n 12345 don't"), expected);
        assert_eq!(pieces("\n\n  123"), expected_of_two_spaces);
    }

    #[test]
    fn special_tokens_have_upstreams_numbers() {
        let tokenizer = tokenizer();
        let n = 256 + WORDS.len() as TokenId;
        assert_eq!((tokenizer.vocab_size() as TokenId, tokenizer.bos()), (n + 256, Some(n)));
        assert_eq!(tokenizer.eos(), [n + 1]);
        for (piece, offset) in [
            ("<|begin_of_text|>", 0),
            ("<|end_of_text|>", 1),
            ("<|reserved_special_token_1|>", 3),
            ("<|finetune_right_pad_id|>", 4),
            ("<|start_header_id|>", 6),
            ("<|eom_id|>", 8),
            ("<|eot_id|>", 9),
            ("<|python_tag|>", 10),
            ("<|reserved_special_token_2|>", 11),
            ("<|reserved_special_token_246|>", 255),
        ] {
            assert_eq!(tokenizer.id_of(piece), Some(n + offset), "{piece}");
            assert_eq!(tokenizer.decode(None, n + offset).unwrap(), piece.as_bytes());
        }
        assert_eq!(tokenizer.id_of("<|reserved_special_token_247|>"), None);
        assert_eq!(tokenizer.id_of("<|end|>"), None);
        assert!(tokenizer.decode(None, n + 256).is_err());
    }

    #[test]
    fn special_tokens_in_the_text_become_their_ids() {
        let tokenizer = tokenizer();
        let n = 256 + WORDS.len() as TokenId;
        let hello = tokenizer.id_of("hello").unwrap();
        let encode = |text| tokenizer.encode(text, Specials { bos: 1, eos: 1 }).unwrap();
        assert_eq!(encode("hello<|eot_id|>hello"), [n, hello, n + 9, hello, n + 1]);
        assert_eq!(encode("<|begin_of_text|>"), [n, n, n + 1]);
        assert_eq!(pieces("<|<|eot_id|>|>"), ["<", "|", "<|eot_id|>", "|", ">"]);
        assert_eq!(pieces("<|\u{e9}\u{e9}").concat().len(), "<|".len() + 4 * '\u{FFFD}'.len_utf8());
    }

    #[test]
    fn words_are_cut_as_the_pattern_with_look_ahead_cuts_them() {
        use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
        use tokenizers::{OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer, SplitDelimiterBehavior};
        let with_look_ahead = PATTERN.replace(r"|\s+", r"|\s+(?!\S)|\s+");
        assert!(with_look_ahead.ends_with(r"|\s*[\r\n]+|\s+(?!\S)|\s+"));
        let split = Split::new(SplitPattern::Regex(with_look_ahead), SplitDelimiterBehavior::Isolated, false).unwrap();
        let pattern = Regex::new(PATTERN).unwrap();
        let alphabet = ["a", "\u{e9}", "1", " ", "\u{a0}", "\u{3000}", "\t", "\n", "\r", ".", "'", "s", "\u{1F600}"];
        for n in 0..alphabet.len().pow(4) {
            let text: String = (0..4).map(|i| alphabet[n / alphabet.len().pow(i) % alphabet.len()]).collect();
            let mut expected = PreTokenizedString::from(text.as_str());
            split.pre_tokenize(&mut expected).unwrap();
            let expected = expected.get_splits(OffsetReferential::Original, OffsetType::Byte);
            let ends: Vec<usize> = expected.iter().map(|(_, (_, end), _)| *end).collect();
            let (mut found, mut at) = (Vec::new(), 0);
            while let Some(word) = pattern.find_at(&text, at) {
                assert_eq!(word.start(), at, "{text:?}");
                at = word.end() - left_to_next(word.as_str(), &text[word.end()..]);
                found.push(at);
            }
            assert_eq!(found, ends, "{text:?}");
        }
    }

    #[test]
    fn a_million_spaces_do_not_exhaust_the_pattern() {
        let text = format!("{}x", " ".repeat(1_000_000));
        let ids = tokenizer().encode(&text, Specials::default()).unwrap();
        assert_eq!(ids.len(), 500_000 + 2);
    }

    #[test]
    fn ranks_may_stand_in_any_order() {
        let text = String::from_utf8(file(&WORDS)).unwrap();
        let reversed: String = text.lines().rev().map(|line| format!("{line}\r\n")).collect();
        let tokenizer = Tiktoken::from_bytes(reversed.as_bytes()).unwrap();
        assert_eq!(tokenizer.encode("hello", Specials::default()).unwrap(), [259]);
    }

    #[test]
    fn damaged_files_are_told_apart() {
        let with = |lines: &str| Tiktoken::from_bytes(&[&file(&[])[..], lines.as_bytes()].concat()).err();
        let at_257 = |problem| Some(Defect::Line { line: 257, problem });
        assert_eq!(with("YWI="), at_257("it has no space between token and rank"));
        assert_eq!(with("Y*I= 256"), at_257("its token is not base64"));
        assert_eq!(with(" 256"), at_257("its token is empty or longer than 4096 bytes"));
        assert_eq!(with("YWI= -1"), at_257("its rank is no number below 2^32"));
        assert_eq!(with("YWI= +256"), at_257("its rank is no number below 2^32"));
        assert_eq!(with("YWI= 4294967296"), at_257("its rank is no number below 2^32"));
        assert_eq!(with("YWI= 257"), at_257("its rank is taken, or leaves out ranks below it"));
        assert_eq!(with("YWI= 255"), at_257("its rank is taken, or leaves out ranks below it"));
        assert_eq!(with("YQ== 256"), at_257("its token was on a line before"));
        assert_eq!(Tiktoken::from_bytes(b"YQ== 0\n").err(), Some(Defect::MissingByte { byte: 0 }));
    }
}
