//! Text callbacks want whole characters, tokens end anywhere: what is between the two.

/// Turns the bytes of token after token into whole UTF-8 characters.
///
/// At most three bytes, the beginning of a character, are held back until the rest comes. Bytes that can no longer
/// become a character come out at once as U+FFFD, one for each maximal ill-formed part, as
/// [`String::from_utf8_lossy`] does.
#[derive(Debug, Clone, Default)]
pub struct Utf8Stream {
    pending: Vec<u8>,
}

impl Utf8Stream {
    /// A stream with nothing held back.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next bytes and gives the characters that are complete now, perhaps none.
    pub fn push(&mut self, bytes: &[u8]) -> String {
        self.pending.extend_from_slice(bytes);
        let rest = self.pending.split_off(complete_prefix_len(&self.pending));
        let whole = std::mem::replace(&mut self.pending, rest);
        String::from_utf8(whole).unwrap_or_else(|bad| String::from_utf8_lossy(bad.as_bytes()).into_owned())
    }

    /// Ends the stream: U+FFFD for a character that never came whole, else nothing.
    pub fn flush(&mut self) -> String {
        let rest = std::mem::take(&mut self.pending);
        String::from_utf8_lossy(&rest).into_owned()
    }

    /// Whether the beginning of a character is held back.
    pub fn is_pending(&self) -> bool {
        !self.pending.is_empty()
    }
}

/// How many of `bytes` can be passed on now: all but an unfinished character at the end.
pub fn complete_prefix_len(bytes: &[u8]) -> usize {
    let tail = bytes.len().saturating_sub(3);
    // A character has at most four bytes, so only the last three can begin one that is unfinished.
    (tail..bytes.len())
        .find(|&at| {
            bytes[at] >= 0xC2
                && matches!(std::str::from_utf8(&bytes[at..]), Err(e) if e.valid_up_to() == 0 && e.error_len().is_none())
        })
        .unwrap_or(bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(tokens: &[&[u8]]) -> Vec<String> {
        let mut stream = Utf8Stream::new();
        let mut pieces: Vec<String> = tokens.iter().map(|bytes| stream.push(bytes)).collect();
        pieces.push(stream.flush());
        pieces
    }

    #[test]
    fn o26_four_byte_tokens_are_one_emoji() {
        assert_eq!(pieces(&[b"\xF0", b"\x9F", b"\x98", b"\x80"]), ["", "", "", "\u{1F600}", ""]);
    }

    #[test]
    fn o26_half_an_emoji_after_a_space_waits() {
        assert_eq!(pieces(&[b"\x20\xF0\x9F", b"\x98\x80!"]), [" ", "\u{1F600}!", ""]);
    }

    #[test]
    fn o26_a_lone_ff_is_replaced_at_once_and_never_stalls() {
        assert_eq!(pieces(&[b"\xFF", b"a"]), ["\u{FFFD}", "a", ""]);
    }

    #[test]
    fn bytes_that_cannot_complete_are_replaced_when_that_is_known() {
        let table: [(&[&[u8]], &[&str]); 7] = [
            (&[b"\xC3", b"("], &["", "\u{FFFD}(", ""]),
            (&[b"\x80"], &["\u{FFFD}", ""]),
            (&[b"\xC0", b"\x80"], &["\u{FFFD}", "\u{FFFD}", ""]),
            (&[b"\xE0", b"\x80"], &["", "\u{FFFD}\u{FFFD}", ""]),
            (&[b"\xED", b"\xA0", b"\x80"], &["", "\u{FFFD}\u{FFFD}", "\u{FFFD}", ""]),
            (&[b"\xF4\x90"], &["\u{FFFD}\u{FFFD}", ""]),
            (&[b"\xF0\x9F\x98"], &["", "\u{FFFD}"]),
        ];
        for (tokens, expected) in table {
            assert_eq!(pieces(tokens), expected, "{tokens:?}");
        }
    }

    #[test]
    fn any_cut_gives_the_same_text_as_the_whole() {
        let bytes = b"a\xC3\xA9\xF0\x9F\x98\x80\xE6\xBC\xA2\xFFz\xE2\x82\xF0\x9Fb\xEF\xBF\xBD\xF0\x9F\x98";
        let whole = String::from_utf8_lossy(bytes);
        for first in 0..=bytes.len() {
            for second in first..=bytes.len() {
                let cut = [&bytes[..first], &bytes[first..second], &bytes[second..]];
                assert_eq!(pieces(&cut).concat(), whole, "cut at {first} and {second}");
            }
        }
    }
}
