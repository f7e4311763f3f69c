//! The first bytes of a file: is it a program at all, how long is its flatbuffer, where do its segments begin.

use super::error::PteError;
use super::schema::{HEADER_AT, HEADER_MAGIC, IDENTIFIER};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Bytes of the extended header that every version of it has.
const FIXED_LENGTH: u32 = 24;
/// Bytes of the header when it also has the segment data size.
pub(super) const FULL_LENGTH: u32 = 32;

/// Where the parts of a file are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    /// The flatbuffer is the file's first `program_size` bytes.
    pub program_size: usize,
    /// Segment offsets count from here; `None` when the file has no segments.
    pub segment_base: Option<usize>,
}

/// Whether the file at `path` begins as a program of any version does; says nothing of the rest.
pub fn is_program(path: &Path) -> bool {
    let mut head = [0; 8];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut head));
    read.is_ok() && head[4..6] == IDENTIFIER[..2] && head[6..].iter().all(u8::is_ascii_digit)
}

/// Judges the head of `bytes`, a whole file.
pub(super) fn parse(bytes: &[u8]) -> Result<Layout, PteError> {
    match bytes.get(4..8) {
        Some(identifier) if identifier == IDENTIFIER => {}
        Some(&[b'E', b'T', high, low]) if high.is_ascii_digit() && low.is_ascii_digit() => {
            return Err(PteError::UnsupportedIdentifier { found: format!("ET{}{}", high as char, low as char) });
        }
        _ => return Err(PteError::NotAProgram { looks_like: looks_like(bytes) }),
    }
    let header = bytes.get(HEADER_AT..).unwrap_or_default();
    if !header.starts_with(&HEADER_MAGIC) {
        return Ok(Layout { program_size: bytes.len(), segment_base: None });
    }
    let have = bytes.len() as u64;
    let number = |at: usize| -> Result<u64, PteError> {
        let bytes = header.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
        bytes.map(u64::from_le_bytes).ok_or(PteError::Truncated { have, need: (HEADER_AT + at + 8) as u64 })
    };
    // The length is the low half of these eight bytes, the program size's low half the other.
    let length = number(4)? as u32;
    if length < FIXED_LENGTH {
        return Err(PteError::HeaderLength { length });
    }
    let (program_size, base) = (number(8)?, number(16)?);
    let data_size = if length >= FULL_LENGTH { number(24)? } else { 0 };
    if program_size < HEADER_AT as u64 + u64::from(length) {
        return Err(PteError::ProgramSize { program_size });
    }
    let need = program_size.max(base.saturating_add(data_size));
    match (usize::try_from(program_size), usize::try_from(base)) {
        (Ok(program_size), Ok(base)) if need <= have => {
            Ok(Layout { program_size, segment_base: (base != 0).then_some(base) })
        }
        _ => Err(PteError::Truncated { have, need }),
    }
}

/// What the bytes seem to be instead, for the message.
pub(super) fn looks_like(bytes: &[u8]) -> String {
    const MAGICS: [(&[u8], &str); 9] = [
        (b"\x7fELF", "it is an ELF library or program"),
        (b"GGUF", "it is a GGUF model (llama.cpp)"),
        (b"PK\x03\x04", "it is a zip archive, as PyTorch checkpoints are"),
        (b"\x1f\x8b", "it is gzip-compressed"),
        (b"\x80\x02", "it is a Python pickle, as old PyTorch checkpoints are"),
        (b"version https://git-lfs", "it is a Git LFS pointer: fetch the file itself with `git lfs pull`"),
        (b"<!DOCTYPE", "it is a web page"),
        (b"<html", "it is a web page"),
        (b"\x78\x56\x34\x12", "it is a bare delegate blob"),
    ];
    if bytes.is_empty() {
        return "it is empty".into();
    }
    if let Some((_, what)) = MAGICS.iter().find(|(magic, _)| bytes.starts_with(magic)) {
        return (*what).into();
    }
    match bytes.get(4..8) {
        Some([b'B', b'P', _, _]) => return "it is an ExecuTorch bundled program (.bpte)".into(),
        Some([b'E', b'T', b'0'..=b'9', b'0'..=b'9']) => return "it is an ExecuTorch program (.pte)".into(),
        Some([b'F', b'T', _, _]) => return "it is ExecuTorch external data (.ptd)".into(),
        _ => {}
    }
    if let Some(&[a, b, c, d, e, f, 0, 0, b'{']) = bytes.get(..9)
        && u64::from_le_bytes([a, b, c, d, e, f, 0, 0]) < bytes.len() as u64
    {
        return "it is a safetensors checkpoint".into();
    }
    let head = &bytes[..bytes.len().min(64)];
    if head.iter().all(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace()) {
        let text: String = head.iter().take(32).map(|&byte| byte as char).collect();
        return format!("it is text that begins {text:?}");
    }
    if bytes.len() < 8 {
        return format!("it has only {} bytes", bytes.len());
    }
    format!("it begins with the bytes {:02x?}", &bytes[..8])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn o24_what_is_no_program_is_named() {
        let mut safetensors = 20u64.to_le_bytes().to_vec();
        safetensors.extend(b"{\"a\":{\"dtype\":\"F32\"}}");
        for (bytes, part) in [
            (&b""[..], "empty"),
            (b"abc", "text that begins \"abc\""),
            (b"\x00\x01", "only 2 bytes"),
            (b"{\"vocab\": 12, \"merges\": []}", "text that begins"),
            (b"\x7fELF\x02\x01\x01\x00\x00\x00", "ELF"),
            (b"GGUF\x03\x00\x00\x00\x00", "GGUF"),
            (b"PK\x03\x04\x00\x00\x00\x00\x00", "zip"),
            (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
            (b"\x18\x00\x00\x00BP08\x00\x00", "bundled program"),
            (b"\x18\x00\x00\x00FT01\x00\x00", "external data"),
            (b"\x18\x00\x00\x00\xff\xfe01\x00\x00", "begins with the bytes [18, 00, 00, 00, ff"),
            (&safetensors, "safetensors"),
        ] {
            let error = parse(bytes).unwrap_err();
            assert!(matches!(error, PteError::NotAProgram { .. }), "{error}");
            assert!(error.to_string().contains(part), "{error} lacks {part}");
        }
    }

    #[test]
    fn o4_other_schema_is_named() {
        let error = parse(b"\x18\x00\x00\x00ET13\x00\x00\x00\x00").unwrap_err();
        assert_eq!(error, PteError::UnsupportedIdentifier { found: "ET13".into() });
    }

    fn with_header(length: u32, program_size: u64, base: u64, data_size: u64, file_len: usize) -> Vec<u8> {
        let mut bytes = b"\x28\x00\x00\x00ET12eh00".to_vec();
        bytes.extend(length.to_le_bytes());
        for number in [program_size, base, data_size] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.resize(file_len, 0);
        bytes
    }

    #[test]
    fn header_gives_the_layout() {
        let layout = parse(&with_header(32, 100, 128, 50, 178)).unwrap();
        assert_eq!(layout, Layout { program_size: 100, segment_base: Some(128) });
        // A header without the segment data size, and one with fields that are yet to be invented.
        assert!(parse(&with_header(24, 100, 128, u64::MAX, 178)).is_ok());
        assert!(parse(&with_header(48, 100, 128, 50, 178)).is_ok());
    }

    #[test]
    fn file_without_header_is_all_program() {
        let layout = parse(b"\x08\x00\x00\x00ET12\x00\x00\x00\x00").unwrap();
        assert_eq!(layout, Layout { program_size: 12, segment_base: None });
    }

    #[test]
    fn truncation_tells_both_lengths() {
        let error = parse(&with_header(32, 100, 128, 50, 150)).unwrap_err();
        assert_eq!(error, PteError::Truncated { have: 150, need: 178 });
        assert!(error.to_string().contains("has 150 bytes, its header promises 178"), "{error}");
        let error = parse(&with_header(32, 100, 128, 50, 30)).unwrap_err();
        assert_eq!(error, PteError::Truncated { have: 30, need: 32 });
        let error = parse(&with_header(32, 100, u64::MAX, u64::MAX, 178)).unwrap_err();
        assert_eq!(error, PteError::Truncated { have: 178, need: u64::MAX });
    }

    #[test]
    fn short_header_is_refused() {
        assert_eq!(parse(&with_header(23, 100, 0, 0, 178)).unwrap_err(), PteError::HeaderLength { length: 23 });
    }

    #[test]
    fn program_size_within_the_header_is_refused() {
        assert_eq!(parse(&with_header(32, 39, 0, 0, 178)).unwrap_err(), PteError::ProgramSize { program_size: 39 });
    }
}
