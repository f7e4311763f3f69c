//! The tokenizer file of llama2.c, as its author writes it and with the header that ExecuTorch's converter puts before it.

use super::error::{Defect, TokenizerError};
use super::merge::{Parts, highest_first};
use super::{MAX_PIECE, Specials, TokenId, Tokenizer, byte_of, check_id, check_length, surround, until_nul};
use crate::error::Result;
use std::collections::HashMap;

/// Tokens 0, 1 and 2 are the unknown, BOS and EOS; those of single bytes follow.
const FIRST_BYTE: usize = 3;
/// Pairs with this score or a lower one never merge.
const NEVER: f32 = -1e10;

/// A llama2.c tokenizer.
///
/// Ids equal those of upstream's `Llama2cTokenizer`: a space is put before the text, white space stays as it is,
/// characters without a token become the tokens of their bytes, and the pair with the best score merges first. Two
/// differences: the work is n·log n instead of n², and byte tokens and BOS never take part in merges.
///
/// In decoding, byte tokens (`<0x0A>`) give their byte, and the one of byte 0 gives nothing, as C strings have it;
/// special tokens give their text.
pub struct Llama2c {
    pieces: Vec<Piece>,
    ids: HashMap<Box<[u8]>, u32>,
    longest: usize,
    bos: TokenId,
    eos: [TokenId; 1],
}

struct Piece {
    text: Box<[u8]>,
    score: f32,
}

impl Llama2c {
    /// Reads four little-endian 32-bit integers (vocabulary size, BOS, EOS, longest token) and the tokens.
    pub fn from_bytes_with_header(bytes: &[u8]) -> Result<Self, Defect> {
        let mut reader = Reader { bytes, at: 0 };
        let vocab = reader.i32("the vocabulary size")?;
        let bos = reader.i32("the BOS token")?;
        let eos = reader.i32("the EOS token")?;
        let limit = reader.piece_limit()?;
        // A token takes nine bytes or more: score, length and one byte of text.
        let count = usize::try_from(vocab).ok().filter(|n| *n > 0 && *n <= bytes.len() / 9);
        let count = count.ok_or(Defect::VocabSize { vocab: vocab.into() })?;
        let inside = |which, id: i32| {
            let outside = Defect::SpecialOutside { which, id: id.into(), vocab: count };
            TokenId::try_from(id).ok().filter(|id| *id < count as TokenId).ok_or(outside)
        };
        let (bos, eos) = (inside("BOS", bos)?, inside("EOS", eos)?);
        let pieces = (0..count).map(|index| reader.piece(index, limit)).collect::<Result<Vec<_>, _>>()?;
        reader.finish()?;
        Ok(Self::new(pieces, bos, eos))
    }

    /// Reads the longest token's length, a little-endian 32-bit integer, and tokens to the end; BOS is 1 and EOS 2.
    pub fn from_raw_bytes(bytes: &[u8]) -> Result<Self, Defect> {
        let mut reader = Reader { bytes, at: 0 };
        let limit = reader.piece_limit()?;
        let mut pieces = Vec::new();
        while reader.at < bytes.len() {
            pieces.push(reader.piece(pieces.len(), limit)?);
        }
        if pieces.len() < FIRST_BYTE {
            return Err(Defect::VocabSize { vocab: pieces.len() as i64 });
        }
        Ok(Self::new(pieces, 1, 2))
    }

    fn new(pieces: Vec<Piece>, bos: TokenId, eos: TokenId) -> Self {
        let mut ids = HashMap::with_capacity(pieces.len());
        for (id, piece) in pieces.iter().enumerate() {
            ids.entry(piece.text.clone()).or_insert(id as u32);
        }
        let longest = pieces.iter().map(|piece| piece.text.len()).max().unwrap_or(0);
        Self { pieces, ids, longest, bos, eos: [eos] }
    }

    fn encode_bytes(&self, text: &[u8], specials: Specials) -> Result<Vec<TokenId>, TokenizerError> {
        let mut spaced = Vec::with_capacity(text.len() + 1);
        if !text.is_empty() {
            spaced.push(b' ');
            spaced.extend_from_slice(text);
        }
        let mut parts = Parts::new();
        let mut at = 0;
        while at < spaced.len() {
            let len = if at == 0 { 1 } else { character_len(&spaced[at..]) };
            if self.ids.contains_key(&spaced[at..at + len]) {
                parts.push(len, false);
            } else {
                (0..len).for_each(|_| parts.push(1, true));
            }
            at += len;
        }
        parts.merge(|pair| {
            let range = pair.whole();
            // Longer than any token: not worth hashing.
            let id = if range.len() > self.longest { None } else { self.ids.get(&spaced[range]) };
            let score = self.pieces[*id? as usize].score;
            (score > NEVER).then(|| highest_first(score))
        });
        let mut body = Vec::new();
        for (range, is_byte) in parts.ranges() {
            let piece = &spaced[range];
            body.push(if is_byte { self.byte_id(piece[0])? } else { TokenId::from(self.ids[piece]) });
        }
        surround(self, specials, body.into_iter())
    }

    fn byte_id(&self, byte: u8) -> Result<TokenId, TokenizerError> {
        let id = FIRST_BYTE + usize::from(byte);
        if id < self.pieces.len() { Ok(id as TokenId) } else { Err(TokenizerError::NoTokenForByte { byte }) }
    }
}

impl Tokenizer for Llama2c {
    fn format(&self) -> &'static str {
        "llama2.c"
    }

    fn vocab_size(&self) -> usize {
        self.pieces.len()
    }

    fn bos(&self) -> Option<TokenId> {
        Some(self.bos)
    }

    fn eos(&self) -> &[TokenId] {
        &self.eos
    }

    fn id_of(&self, piece: &str) -> Option<TokenId> {
        self.ids.get(piece.as_bytes()).map(|id| TokenId::from(*id))
    }

    fn encode(&self, text: &str, specials: Specials) -> Result<Vec<TokenId>> {
        check_length(text.len())?;
        Ok(self.encode_bytes(until_nul(text).as_bytes(), specials)?)
    }

    fn decode(&self, previous: Option<TokenId>, token: TokenId) -> Result<Vec<u8>> {
        let mut text = &*self.pieces[check_id(token, self.pieces.len())?].text;
        if previous.is_none_or(|id| id == self.bos) {
            text = text.strip_prefix(b" ").unwrap_or(text);
        }
        Ok(match byte_of(text) {
            Some(0) => Vec::new(),
            Some(byte) => vec![byte],
            None => text.to_vec(),
        })
    }
}

/// The length of the first character: a byte and the continuation bytes after it, four in all at most.
fn character_len(text: &[u8]) -> usize {
    let continuation = text.iter().skip(1).take(3).take_while(|byte| **byte & 0xC0 == 0x80);
    1 + continuation.count()
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, what: &'static str, length: usize) -> Result<&'a [u8], Defect> {
        let rest = &self.bytes[self.at..];
        let truncated = Defect::Truncated { what, offset: self.at, need: length as u64, have: rest.len() };
        let taken = rest.get(..length).ok_or(truncated)?;
        self.at += length;
        Ok(taken)
    }

    fn word(&mut self, what: &'static str) -> Result<[u8; 4], Defect> {
        let bytes = self.take(what, 4)?;
        Ok([bytes[0], bytes[1], bytes[2], bytes[3]])
    }

    fn i32(&mut self, what: &'static str) -> Result<i32, Defect> {
        Ok(i32::from_le_bytes(self.word(what)?))
    }

    /// The length that no token's text exceeds.
    fn piece_limit(&mut self) -> Result<usize, Defect> {
        let longest = self.i32("the length of the longest token")?;
        let limit = usize::try_from(longest).ok().filter(|length| (1..=MAX_PIECE).contains(length));
        limit.ok_or(Defect::LongestPiece { length: longest.into(), limit: MAX_PIECE })
    }

    fn piece(&mut self, index: usize, limit: usize) -> Result<Piece, Defect> {
        let score = f32::from_le_bytes(self.word("a token's score")?);
        if !score.is_finite() {
            return Err(Defect::Score { index, score: score.to_string() });
        }
        let length = self.i32("a token's length")?;
        let checked = usize::try_from(length).ok().filter(|length| (1..=limit).contains(length));
        let checked = checked.ok_or(Defect::PieceLength { index, length: length.into(), limit })?;
        Ok(Piece { text: self.take("a token's text", checked)?.into(), score })
    }

    fn finish(&self) -> Result<(), Defect> {
        match self.bytes.len() - self.at {
            0 => Ok(()),
            count => Err(Defect::TrailingBytes { offset: self.at, count }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIECES: [(&str, f32); 9] = [
        ("<unk>", 0.0),
        ("<s>", 0.0),
        ("</s>", 0.0),
        ("<0x00>", 0.0),
        ("<0x01>", 0.0),
        (" ", -3.0),
        ("a", -4.0),
        (" a", -1.0),
        (" aa", -2e10),
    ];

    fn body(pieces: &[(&str, f32)]) -> Vec<u8> {
        let piece = |(text, score): &(&str, f32)| {
            [&score.to_le_bytes(), &(text.len() as i32).to_le_bytes(), text.as_bytes()].concat()
        };
        pieces.iter().flat_map(piece).collect()
    }

    fn file(header: &[i32], pieces: &[(&str, f32)]) -> Vec<u8> {
        let mut bytes: Vec<u8> = header.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.extend(body(pieces));
        bytes
    }

    fn with_header(header: [i32; 4]) -> Result<Llama2c, Defect> {
        Llama2c::from_bytes_with_header(&file(&header, &PIECES))
    }

    const ONCE: Specials = Specials { bos: 1, eos: 1 };

    #[test]
    fn both_forms_read_alike() {
        let headed = with_header([9, 1, 2, 6]).unwrap();
        let raw = Llama2c::from_raw_bytes(&file(&[6], &PIECES)).unwrap();
        for tokenizer in [&headed, &raw] {
            assert_eq!((tokenizer.vocab_size(), tokenizer.bos(), tokenizer.eos()), (9, Some(1), &[2][..]));
            assert_eq!(tokenizer.encode("a a\u{1}", ONCE).unwrap(), [1, 7, 7, 4, 2]);
            assert_eq!(tokenizer.id_of("</s>"), Some(2));
            assert_eq!(tokenizer.id_of("</s"), None);
        }
    }

    #[test]
    fn pairs_scored_as_never_do_not_merge() {
        assert_eq!(with_header([9, 1, 2, 6]).unwrap().encode("aa", Specials::default()).unwrap(), [7, 6]);
    }

    #[test]
    fn a_byte_without_a_token_is_an_error() {
        let error = with_header([9, 1, 2, 6]).unwrap().encode("b", ONCE).unwrap_err();
        assert!(matches!(error.find(), Some(TokenizerError::NoTokenForByte { byte: b'b' })), "{error:?}");
    }

    #[test]
    fn an_empty_text_is_its_special_tokens() {
        assert_eq!(with_header([9, 1, 2, 6]).unwrap().encode("", ONCE).unwrap(), [1, 2]);
    }

    #[test]
    fn text_and_space_of_the_first_token_decode_as_upstream_does() {
        let tokenizer = with_header([9, 1, 2, 6]).unwrap();
        let decode = |previous, token| tokenizer.decode(previous, token).unwrap();
        assert_eq!(decode(None, 7), b"a");
        assert_eq!(decode(Some(1), 7), b"a");
        assert_eq!(decode(Some(7), 7), b" a");
        assert_eq!(decode(Some(7), 2), b"</s>");
        assert_eq!(decode(Some(7), 3), b"");
        assert_eq!(decode(Some(7), 4), b"\x01");
        assert!(tokenizer.decode(None, 9).is_err());
        assert!(tokenizer.decode(None, u64::MAX).is_err());
    }

    #[test]
    fn damaged_headers_are_told_apart() {
        for (header, defect) in [
            ([0, 1, 2, 6], Defect::VocabSize { vocab: 0 }),
            ([-1, 1, 2, 6], Defect::VocabSize { vocab: -1 }),
            ([i32::MAX, 1, 2, 6], Defect::VocabSize { vocab: i64::from(i32::MAX) }),
            ([9, 9, 2, 6], Defect::SpecialOutside { which: "BOS", id: 9, vocab: 9 }),
            ([9, 1, -1, 6], Defect::SpecialOutside { which: "EOS", id: -1, vocab: 9 }),
            ([9, 1, 2, 0], Defect::LongestPiece { length: 0, limit: MAX_PIECE }),
            ([9, 1, 2, 1 << 20], Defect::LongestPiece { length: 1 << 20, limit: MAX_PIECE }),
            ([9, 1, 2, 5], Defect::PieceLength { index: 3, length: 6, limit: 5 }),
            ([8, 1, 2, 6], Defect::TrailingBytes { offset: 108, count: 11 }),
            ([10, 1, 2, 6], Defect::Truncated { what: "a token's score", offset: 119, need: 4, have: 0 }),
        ] {
            let bytes = file(&header, &PIECES);
            assert_eq!(Llama2c::from_bytes_with_header(&bytes).err(), Some(defect), "{header:?} {}", bytes.len());
        }
    }

    #[test]
    fn damaged_tokens_are_told_apart() {
        let parse = |piece: &[u8]| Llama2c::from_raw_bytes(&[&6i32.to_le_bytes(), piece].concat()).err().unwrap();
        let length = |n: i32| [&0f32.to_le_bytes()[..], &n.to_le_bytes(), b"abcdefgh"].concat();
        assert_eq!(parse(&length(-1)), Defect::PieceLength { index: 0, length: -1, limit: 6 });
        assert_eq!(parse(&length(0)), Defect::PieceLength { index: 0, length: 0, limit: 6 });
        assert_eq!(parse(&length(7)), Defect::PieceLength { index: 0, length: 7, limit: 6 });
        assert_eq!(parse(&body(&[("a", f32::NAN)])), Defect::Score { index: 0, score: "NaN".into() });
        assert_eq!(parse(&body(&PIECES[..2])), Defect::VocabSize { vocab: 2 });
    }

    #[test]
    #[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
    fn ill_formed_utf8_encodes_as_recorded_from_upstream() {
        let shared = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared");
        let bytes = std::fs::read(shared.join("models/tok512.et.bin")).unwrap();
        let tokenizer = Llama2c::from_bytes_with_header(&bytes).unwrap();
        let specials = Specials { bos: 1, eos: 0 };
        // Cases of goldens/tokenizer/llama2c_tok512.json that no `&str` can hold.
        let cases: [(&[u8], &[TokenId]); 4] = [
            (b"\xE6\xBC", &[1, 410, 233, 191]),
            (b"\x80\x80\x80\x80\x80\x80", &[1, 410, 131, 131, 131, 131, 131, 131]),
            (b"ok\xC3(", &[1, 334, 433, 198, 489]),
            (b"\xF0\x9F\x98\x80\x80", &[1, 410, 243, 162, 155, 131, 131]),
        ];
        for (text, ids) in cases {
            assert_eq!(tokenizer.encode_bytes(text, specials).unwrap(), ids, "{text:x?}");
        }
    }
}
