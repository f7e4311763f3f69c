//! Damaged tokenizer files: cut at every length and changed at random, they must neither panic nor take more memory
//! than a small multiple of their size.

mod common;

use llama_runner::tokenizer::{HuggingFace, Llama2c, SentencePiece, Specials, Tiktoken, TokenId, Tokenizer, load};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::{Duration, Instant};

thread_local! {
    static LIVE: Cell<usize> = const { Cell::new(0) };
    static PEAK: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator, with a count of what each thread holds.
struct Counting;

// SAFETY: every call goes to the system's allocator unchanged; the counters do not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.set(LIVE.get().wrapping_add(layout.size()));
        PEAK.set(PEAK.get().max(LIVE.get()));
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.set(LIVE.get().saturating_sub(layout.size()));
        // SAFETY: the pointer came from `alloc` above, which is the system's.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What `work` holds at most beyond what was held before.
fn peak<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = LIVE.get();
    PEAK.set(before);
    let result = work();
    (result, PEAK.get().saturating_sub(before))
}

/// SplitMix64: the same damage in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn damage(&mut self, file: &[u8]) -> Vec<u8> {
        let mut file = file.to_vec();
        if self.below(3) == 0 {
            // A letter or digit for another leaves text formats well-formed.
            let from = self.below(file.len());
            if let Some(letter) = file[from..].iter_mut().find(|byte| byte.is_ascii_alphanumeric()) {
                *letter = b"019afzAFZ"[self.below(9)];
            }
            return file;
        }
        for _ in 0..=self.below(4) {
            // Headers and other beginnings are few bytes, so half of the damage goes there.
            let end = if self.below(2) == 0 { file.len() } else { file.len().min(64) };
            let at = self.below(end.max(1));
            match self.below(6) {
                0 => file[at] ^= 1 << self.below(8),
                1 => file[at] = self.next() as u8,
                2 => file[at] = [0, 1, 0x7F, 0x80, 0xFF][self.below(5)],
                3 => {
                    let word = [0, -1, i32::MAX, i32::MIN, 1 << 16][self.below(5)].to_le_bytes();
                    file.iter_mut().skip(at & !3).zip(word).for_each(|(byte, new)| *byte = new);
                }
                4 => drop(file.drain(at..(at + 1 + self.below(16)).min(file.len()))),
                _ => {
                    let from = self.below(file.len());
                    let piece = file[from..(from + self.below(32)).min(file.len())].to_vec();
                    drop(file.splice(at..at, piece));
                }
            }
            if file.is_empty() {
                file.push(0);
            }
        }
        file
    }
}

const TEXT: &str = "Once upon a time <s> \u{c9}l \u{6f22}\u{1F600} 12345 don't  \n\t<|eot_id|>x";

/// Uses a tokenizer that was loaded from a damaged file: anything but a panic is right.
fn exercise(tokenizer: &dyn Tokenizer) {
    if let Ok(ids) = tokenizer.encode(TEXT, Specials { bos: 1, eos: 1 }) {
        for pair in ids.windows(2) {
            assert!(pair.iter().all(|id| *id < tokenizer.vocab_size() as TokenId));
            let _ = tokenizer.decode(Some(pair[0]), pair[1]);
        }
    }
    for id in [0, tokenizer.vocab_size() as TokenId - 1] {
        let _ = tokenizer.decode(None, id);
    }
    assert!(tokenizer.decode(None, tokenizer.vocab_size() as TokenId).is_err());
}

/// 2 000 damaged forms of `file`. `fixed` bytes and `factor` times the file's size may be held at once.
fn fuzz<T: Tokenizer, E>(file: &[u8], fixed: usize, factor: usize, parse: impl Fn(&[u8]) -> Result<T, E>) {
    let mut random = Random(20_493);
    let mut accepted = 0;
    for round in 0..2000 {
        let damaged = random.damage(file);
        let start = Instant::now();
        let (is_ok, most) = peak(|| parse(&damaged).map(|tokenizer| exercise(&tokenizer)).is_ok());
        assert!(most <= fixed + factor * damaged.len(), "round {round}: {most} bytes for {}", damaged.len());
        assert!(start.elapsed() < Duration::from_secs(30), "round {round}");
        accepted += usize::from(is_ok);
    }
    assert!((20..1980).contains(&accepted), "{accepted} of 2000 were accepted: such damage proves nothing");
}

/// Every beginning of `file`, at steps of `step`; the number that is taken for a whole file.
fn cut<T: Tokenizer, E>(file: &[u8], step: usize, parse: impl Fn(&[u8]) -> Result<T, E>) -> usize {
    let whole = |length: &usize| parse(&file[..*length]).map(|tokenizer| exercise(&tokenizer)).is_ok();
    (0..file.len()).step_by(step).filter(whole).count()
}

fn model(name: &str) -> Vec<u8> {
    std::fs::read(common::model(name)).unwrap()
}

/// A small Llama 3 vocabulary: the bytes and some words.
fn tiktoken_file() -> Vec<u8> {
    use base64::Engine;
    let words = ["he", "ll", "hell", "hello", " w", "on", "don", "  ", "12", "123"];
    let bytes = (0..=255u8).map(|byte| vec![byte]);
    let texts = bytes.chain(words.iter().map(|word| word.as_bytes().to_vec()));
    let line = |(rank, text)| format!("{} {rank}\n", base64::engine::general_purpose::STANDARD.encode::<Vec<u8>>(text));
    texts.enumerate().map(line).collect::<String>().into_bytes()
}

#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
fn llama2c_cut_anywhere_is_refused() {
    assert_eq!(cut(&model("tok512.et.bin"), 1, Llama2c::from_bytes_with_header), 0);
    // Without a number of tokens in it, a file that ends after a token is whole.
    assert_eq!(cut(&model("tok512.bin"), 1, Llama2c::from_raw_bytes), 512 - 3);
}

#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
fn sentencepiece_cut_anywhere_but_between_messages_is_refused() {
    // Protobuf has no end mark. Whole are the first one, two and three tokens, which need no byte fallback, and all but
    // the last message, the normalizer's.
    assert_eq!(cut(&model("tok512.model"), 1, SentencePiece::from_bytes), 4);
}

#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
fn tokenizer_json_cut_anywhere_is_refused() {
    assert_eq!(cut(&model("story/tokenizer.json"), 97, |bytes| HuggingFace::from_bytes(bytes, None)), 0);
}

#[test]
fn tiktoken_cut_anywhere_is_refused_or_has_fewer_tokens() {
    let file = tiktoken_file();
    let whole = cut(&file, 1, Tiktoken::from_bytes);
    // Whole are the files that have all bytes and end behind a token's rank, with its newline or without.
    assert_eq!(whole, 2 * 10 + 1);
}

#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
fn load_refuses_cut_files_by_content() {
    let dir = tempfile::tempdir().unwrap();
    for (name, step) in [("tok512.et.bin", 41), ("tok512.model", 41), ("story/tokenizer.json", 4001)] {
        let (file, path) = (model(name), dir.path().join("cut"));
        for length in (0..file.len()).step_by(step) {
            std::fs::write(&path, &file[..length]).unwrap();
            assert!(load(&path).is_err(), "{name} cut at {length}");
        }
    }
}

#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
fn llama2c_damaged_at_random() {
    fuzz(&model("tok512.et.bin"), 1 << 16, 30, Llama2c::from_bytes_with_header);
    fuzz(&model("tok512.bin"), 1 << 16, 30, Llama2c::from_raw_bytes);
}

#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
fn sentencepiece_damaged_at_random() {
    fuzz(&model("tok512.model"), 1 << 16, 30, SentencePiece::from_bytes);
}

#[test]
fn sentencepiece_unigram_with_replacements_damaged_at_random() {
    fuzz(include_bytes!("data/unigram.model"), 1 << 16, 60, SentencePiece::from_bytes);
}

#[test]
fn tiktoken_damaged_at_random() {
    // The compiled pattern does not depend on the file.
    fuzz(&tiktoken_file(), 4 << 20, 60, Tiktoken::from_bytes);
}

#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
fn tokenizer_json_damaged_at_random() {
    fuzz(&model("story/tokenizer.json"), 4 << 20, 60, |bytes| HuggingFace::from_bytes(bytes, None));
}
