//! Turns the bytes of tokens into text: a character whose bytes come in several tokens is held back until it is whole.

/// Bytes in, whole characters out. At most three bytes are held back; bytes that cannot become a character are replaced
/// by U+FFFD at once, so nothing ever stalls.
#[derive(Debug, Default)]
pub(super) struct Utf8Stream {
    pending: Vec<u8>,
}

impl Utf8Stream {
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// The characters that `bytes` completes.
    pub(super) fn push(&mut self, bytes: &[u8]) -> String {
        self.pending.extend_from_slice(bytes);
        let mut text = String::with_capacity(self.pending.len());
        let mut used = 0;
        for chunk in self.pending.utf8_chunks() {
            text.push_str(chunk.valid());
            used += chunk.valid().len();
            let invalid = chunk.invalid();
            if invalid.is_empty() || (used + invalid.len() == self.pending.len() && may_grow(invalid)) {
                break;
            }
            text.push(char::REPLACEMENT_CHARACTER);
            used += invalid.len();
        }
        self.pending.drain(..used);
        text
    }

    /// What is left at the end: nothing, or U+FFFD for a character that never became whole.
    pub(super) fn flush(&mut self) -> String {
        let text = String::from_utf8_lossy(&self.pending).into_owned();
        self.pending.clear();
        text
    }
}

fn may_grow(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn o26_character_of_four_tokens_comes_whole() {
        let mut stream = Utf8Stream::new();
        let pieces = [&b" \xf0"[..], b"\x9f", b"\x98", b"\x80!"];
        assert_eq!(pieces.map(|piece| stream.push(piece)), [" ", "", "", "😀!"]);
        assert_eq!(stream.flush(), "");
    }

    #[test]
    fn o26_bytes_that_are_no_utf8_never_stall() {
        let mut stream = Utf8Stream::new();
        assert_eq!(stream.push(b"\xff"), "\u{fffd}");
        assert_eq!(stream.push(b"\xe2\x82"), "");
        assert_eq!(stream.push(b"A"), "\u{fffd}A");
        assert_eq!(stream.push(b"\xe2"), "");
        assert_eq!(stream.flush(), "\u{fffd}");
        assert_eq!(stream.flush(), "");
    }

    #[test]
    fn equals_lossy_conversion_however_the_bytes_are_cut() {
        let bytes = "a\u{e9}\u{20ac}😀".bytes().chain(*b"\xf0\x9f\xc3z\xed\xa0\x80\xe2\x82").collect::<Vec<_>>();
        for size in 1..5 {
            let mut stream = Utf8Stream::new();
            let mut text = bytes.chunks(size).map(|piece| stream.push(piece)).collect::<String>();
            text += &stream.flush();
            assert_eq!(text, String::from_utf8_lossy(&bytes), "cut every {size}");
        }
    }
}
