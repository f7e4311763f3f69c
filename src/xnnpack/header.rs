//! The header `XH00` of a blob: where its graph and its constants are. Blobs of old exporters are a graph alone.

use super::error::XnnpackError;
use super::schema::{HEADER_LEN, HEADER_MAGIC, IDENTIFIERS};
use std::ops::Range;

/// Where the parts of a blob are; both ranges lie inside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Layout {
    /// The flatbuffer.
    pub graph: Range<usize>,
    /// The bytes that offsets of constants count in.
    pub constants: Range<usize>,
}

/// Finds the parts of `blob`.
pub(super) fn parse(blob: &[u8]) -> Result<Layout, XnnpackError> {
    let magic = field::<4>(blob, 4).unwrap_or_default();
    if IDENTIFIERS.contains(&magic) {
        return Ok(Layout { graph: 0..blob.len(), constants: 0..0 });
    }
    if magic != HEADER_MAGIC {
        let start = &blob[..blob.len().min(8)];
        return Err(XnnpackError::NotABlob { found: start.escape_ascii().to_string() });
    }
    let cut = XnnpackError::HeaderCut { have: blob.len() };
    let (Some(length), Some(graph_at), Some(graph_size), Some(constants_at), Some(constants_size)) =
        (field(blob, 8), field(blob, 10), field(blob, 14), field(blob, 18), field(blob, 22))
    else {
        return Err(cut);
    };
    let length = u16::from_le_bytes(length);
    if usize::from(length) < HEADER_LEN {
        return Err(XnnpackError::HeaderLength { length });
    }
    let [graph_at, graph_size, constants_at] = [graph_at, graph_size, constants_at].map(u32::from_le_bytes);
    let part = |what, offset: u32, size: u64| {
        let end = u64::from(offset).checked_add(size).filter(|&end| end <= blob.len() as u64);
        // What ends within the blob fits in usize.
        end.map(|end| offset as usize..end as usize).ok_or(XnnpackError::PartOutside {
            what,
            offset: offset.into(),
            size,
            have: blob.len(),
        })
    };
    let graph = part("the graph", graph_at, graph_size.into())?;
    let identifier = field::<4>(&blob[graph.clone()], 4).unwrap_or_default();
    if !IDENTIFIERS.contains(&identifier) {
        return Err(XnnpackError::Identifier { found: identifier.escape_ascii().to_string() });
    }
    Ok(Layout { graph, constants: part("the constants", constants_at, u64::from_le_bytes(constants_size))? })
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

/// The header of a blob with these parts, whose sizes fit its fields.
pub(super) fn write(layout: &Layout) -> [u8; HEADER_LEN] {
    let mut header = [0; HEADER_LEN];
    header[4..8].copy_from_slice(&HEADER_MAGIC);
    header[8..10].copy_from_slice(&(HEADER_LEN as u16).to_le_bytes());
    header[10..14].copy_from_slice(&(layout.graph.start as u32).to_le_bytes());
    header[14..18].copy_from_slice(&(layout.graph.len() as u32).to_le_bytes());
    header[18..22].copy_from_slice(&(layout.constants.start as u32).to_le_bytes());
    header[22..30].copy_from_slice(&(layout.constants.len() as u64).to_le_bytes());
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blob() -> Vec<u8> {
        let mut blob = write(&Layout { graph: 32..48, constants: 48..53 }).to_vec();
        blob.resize(53, 0);
        blob[36..40].copy_from_slice(b"XN01");
        blob
    }

    #[test]
    fn parts_are_found_again() {
        assert_eq!(parse(&blob()), Ok(Layout { graph: 32..48, constants: 48..53 }));
        assert_eq!(parse(b"\x08\0\0\0XN00...."), Ok(Layout { graph: 0..12, constants: 0..0 }));
    }

    #[test]
    fn other_bytes_are_named() {
        assert!(parse(b"\x7fELF\x02\x01\x01\0").unwrap_err().to_string().contains("ELF"));
        assert_eq!(parse(b""), Err(XnnpackError::NotABlob { found: String::new() }));
    }

    #[test]
    fn damaged_headers_are_told_apart() {
        assert_eq!(parse(&blob()[..29]), Err(XnnpackError::HeaderCut { have: 29 }));
        let with = |at: usize, bytes: &[u8]| {
            let mut blob = blob();
            blob[at..at + bytes.len()].copy_from_slice(bytes);
            parse(&blob).unwrap_err()
        };
        assert_eq!(with(8, &[29, 0]), XnnpackError::HeaderLength { length: 29 });
        assert_eq!(with(14, &[22, 0]), XnnpackError::PartOutside { what: "the graph", offset: 32, size: 22, have: 53 });
        assert_eq!(
            with(22, &[0xff; 8]),
            XnnpackError::PartOutside { what: "the constants", offset: 48, size: u64::MAX, have: 53 }
        );
        assert_eq!(with(36, b"XN02"), XnnpackError::Identifier { found: "XN02".into() });
    }
}
