//! The codec of a QnnBackend delegate's blob: a header with a signature around a context binary.
//!
//! All numbers are little-endian: magic u32 | signature i64 | size of the context binary u64. Today's exporter pads that
//! to 256 bytes; that of 2025 put the binary right behind it, at byte 20; earlier ones wrote the binary bare.

use crate::error::{Error, Status};
use std::ops::Range;

const MAGIC: u32 = 0x5678_abcd;
const SHORT_HEADER: usize = 20;
const LONG_HEADER: usize = 256;
/// A context binary begins with a big-endian format number; every one seen says 2.
const BARE_FORMATS: Range<u32> = 1..16;
/// A DLC is a ZIP archive.
const DLC_MAGIC: [u8; 4] = *b"PK\x03\x04";

/// How the context binary lies in its blob.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// Behind a header padded to 256 bytes.
    LongHeader,
    /// Behind a header of 20 bytes.
    ShortHeader,
    /// The blob is the context binary.
    Bare,
    /// The blob is a DLC, a graph that is still to be compiled on the device.
    Dlc,
}

/// What a blob is, and where its payload lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DelegateBlob {
    /// How it is wrapped.
    pub layout: Layout,
    /// The exporter's stamp; equal for delegates that share one context.
    pub signature: Option<i64>,
    /// The context binary's bytes within the blob; never empty.
    pub payload: Range<usize>,
}

/// A blob that is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum BlobError {
    #[error("the QNN blob is empty")]
    Empty,
    #[error(
        "the QNN blob ({len} bytes) is no context binary: byte 0 starts with {found:02x?}, not with the header's cd ab \
         78 56, nor a context binary's 00 00 00 02"
    )]
    UnknownStart { found: Vec<u8>, len: usize },
    #[error("the QNN blob ends at byte {len}, inside its header of {SHORT_HEADER} bytes")]
    HeaderCut { len: usize },
    #[error("the QNN blob's header says at byte 12 that {stated} bytes follow, but the blob has {len} bytes in all")]
    PayloadCut { stated: u64, len: usize },
    #[error("the QNN blob's header says at byte 12 that the context binary has no bytes")]
    NoPayload,
}

impl From<BlobError> for Error {
    fn from(error: BlobError) -> Self {
        Self::from_source(Status::InvalidProgram, error)
    }
}

impl DelegateBlob {
    /// Reads the header of `bytes`.
    pub fn parse(bytes: &[u8]) -> Result<Self, BlobError> {
        let len = bytes.len();
        let start = bytes.first_chunk::<4>().copied();
        if start.map(u32::from_le_bytes) == Some(MAGIC) {
            return Self::parse_header(bytes);
        }
        let bare = |layout| Ok(Self { layout, signature: None, payload: 0..len });
        match start {
            Some(DLC_MAGIC) => bare(Layout::Dlc),
            Some(start) if BARE_FORMATS.contains(&u32::from_be_bytes(start)) => bare(Layout::Bare),
            _ if bytes.is_empty() => Err(BlobError::Empty),
            _ => Err(BlobError::UnknownStart { found: bytes[..len.min(4)].to_vec(), len }),
        }
    }

    fn parse_header(bytes: &[u8]) -> Result<Self, BlobError> {
        let len = bytes.len();
        let field = |at: usize| bytes.get(at..).and_then(|rest| rest.first_chunk::<8>()).copied();
        let (Some(signature), Some(stated)) = (field(4), field(12)) else {
            return Err(BlobError::HeaderCut { len });
        };
        let stated = u64::from_le_bytes(stated);
        let cut = BlobError::PayloadCut { stated, len };
        let size = usize::try_from(stated).map_err(|_| cut.clone())?;
        let (layout, header) = match size {
            0 => return Err(BlobError::NoPayload),
            // The two headers have the same fields, so only the sizes tell them apart.
            _ if Some(size) == len.checked_sub(SHORT_HEADER) => (Layout::ShortHeader, SHORT_HEADER),
            _ if size <= len.saturating_sub(LONG_HEADER) => (Layout::LongHeader, LONG_HEADER),
            _ if size <= len.saturating_sub(SHORT_HEADER) => (Layout::ShortHeader, SHORT_HEADER),
            _ => return Err(cut),
        };
        Ok(Self { layout, signature: Some(i64::from_le_bytes(signature)), payload: header..header + size })
    }

    /// Wraps a context binary the way today's exporter does.
    pub fn encode(signature: i64, binary: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(LONG_HEADER + binary.len());
        bytes.extend_from_slice(&MAGIC.to_le_bytes());
        bytes.extend_from_slice(&signature.to_le_bytes());
        bytes.extend_from_slice(&(binary.len() as u64).to_le_bytes());
        bytes.resize(LONG_HEADER, 0);
        bytes.extend_from_slice(binary);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BINARY: [u8; 8] = [0, 0, 0, 2, 0, 0, 0, 3];

    fn short_header(size: u64) -> Vec<u8> {
        [&MAGIC.to_le_bytes()[..], &(-7i64).to_le_bytes(), &size.to_le_bytes()].concat()
    }

    #[test]
    fn o12_all_layouts_are_read() {
        let long = DelegateBlob::encode(-7, &BINARY);
        let short = [short_header(8), BINARY.to_vec()].concat();
        let padded = [short_header(8), BINARY.to_vec(), vec![0; 4]].concat();
        for (bytes, layout, signature, payload) in [
            (long, Layout::LongHeader, Some(-7), 256..264),
            (short, Layout::ShortHeader, Some(-7), 20..28),
            (padded, Layout::ShortHeader, Some(-7), 20..28),
            (BINARY.to_vec(), Layout::Bare, None, 0..8),
            (b"PK\x03\x04rest".to_vec(), Layout::Dlc, None, 0..8),
        ] {
            assert_eq!(DelegateBlob::parse(&bytes), Ok(DelegateBlob { layout, signature, payload }));
        }
    }

    #[test]
    fn a_short_header_is_not_mistaken_for_a_long_one() {
        let bytes = [short_header(1000), vec![9; 1000]].concat();
        assert_eq!(DelegateBlob::parse(&bytes).unwrap().payload, 20..1020);
    }

    #[test]
    fn o12_other_bytes_are_refused_with_their_place() {
        let unknown = |found: &[u8], len| BlobError::UnknownStart { found: found.to_vec(), len };
        let cut = |stated, len| BlobError::PayloadCut { stated, len };
        for (bytes, error) in [
            (vec![], BlobError::Empty),
            (vec![0xde, 0xad, 0xbe], unknown(&[0xde, 0xad, 0xbe], 3)),
            (b"XH00 and so on".to_vec(), unknown(b"XH00", 14)),
            (vec![0; 64], unknown(&[0; 4], 64)),
            (short_header(8)[..19].to_vec(), BlobError::HeaderCut { len: 19 }),
            (short_header(0), BlobError::NoPayload),
            (short_header(1), cut(1, 20)),
            ([short_header(9), BINARY.to_vec()].concat(), cut(9, 28)),
            ([short_header(u64::MAX), vec![0; 300]].concat(), cut(u64::MAX, 320)),
        ] {
            assert_eq!(DelegateBlob::parse(&bytes), Err(error));
        }
    }
}
