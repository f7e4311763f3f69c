//! The members of a zip file whose bytes are there as they are.

use std::collections::BTreeMap;
use std::ops::Range;

/// Most members that are listed; the largest checkpoints have a few thousand tensors.
const MAX_MEMBERS: u64 = 1 << 17;
/// Longest comment behind the end record.
const MAX_COMMENT: usize = 65535;

const LOCAL: u32 = 0x0403_4b50;
const CENTRAL: u32 = 0x0201_4b50;
const END: u32 = 0x0605_4b50;
const END_64: u32 = 0x0606_4b50;
const LOCATOR_64: u32 = 0x0706_4b50;

/// What can be wrong with the container.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ZipDefect {
    /// The record at the end is missing: the file is cut, or is no zip.
    #[error("the zip's end record is missing: the file is cut")]
    NoEnd,
    /// A record is not where another says it is, or is cut.
    #[error("the zip has no {what} at byte {offset}")]
    Record {
        /// The record.
        what: &'static str,
        /// Where it should be.
        offset: u64,
    },
    /// More members than can be.
    #[error("the zip announces {count} members, at most {limit} can be")]
    Count {
        /// The number announced.
        count: u64,
        /// The most that can be.
        limit: u64,
    },
    /// A member's name is not UTF-8.
    #[error("the name of the zip's member {index} is not UTF-8")]
    Name {
        /// The member, from 0.
        index: u64,
    },
    /// Two members of one name.
    #[error("the zip has two members {name}")]
    Duplicate {
        /// The name.
        name: String,
    },
    /// A member is compressed, which PyTorch never does.
    #[error("member {name} is compressed by method {method}: PyTorch stores members uncompressed")]
    Compressed {
        /// Its name.
        name: String,
        /// The method's number.
        method: u16,
    },
    /// A member is encrypted.
    #[error("member {name} is encrypted")]
    Encrypted {
        /// Its name.
        name: String,
    },
    /// A member says two different sizes, or lies outside the file.
    #[error("member {name} of {size} bytes does not fit the file")]
    Size {
        /// Its name.
        name: String,
        /// Its size.
        size: u64,
    },
    /// Two members share bytes, as in zip bombs.
    #[error("members {first} and {second} overlap")]
    Overlap {
        /// The one that begins first.
        first: String,
        /// The other.
        second: String,
    },
    /// No member `data.pkl`.
    #[error("the zip holds no data.pkl")]
    NoPickle,
    /// Big-endian elements.
    #[error("the zip's byte order is {order}, supported is little")]
    ByteOrder {
        /// What the member `byteorder` says.
        order: String,
    },
}

/// The places of all members by name.
pub(super) fn members(bytes: &[u8]) -> Result<BTreeMap<String, Range<usize>>, ZipDefect> {
    let directory = directory(bytes)?;
    let mut members = BTreeMap::new();
    let mut at = directory.start;
    for index in 0..directory.count {
        let (name, place, next) = member(bytes, at, index)?;
        if members.insert(name.clone(), place).is_some() {
            return Err(ZipDefect::Duplicate { name });
        }
        at = next;
    }
    let mut places: Vec<_> = members.iter().filter(|(_, place)| !place.is_empty()).collect();
    places.sort_by_key(|(_, place)| place.start);
    match places.array_windows().find(|[a, b]| b.1.start < a.1.end) {
        Some([first, second]) => Err(ZipDefect::Overlap { first: first.0.clone(), second: second.0.clone() }),
        None => Ok(members),
    }
}

/// The list of members.
struct Directory {
    start: u64,
    count: u64,
}

fn directory(bytes: &[u8]) -> Result<Directory, ZipDefect> {
    let lowest = bytes.len().saturating_sub(22 + MAX_COMMENT);
    let end = (lowest..=bytes.len().saturating_sub(22)).rev().find(|&at| {
        let comment = Record::at(bytes, at as u64, END, "end record").map(|end| end.u16(20));
        comment.is_ok_and(|comment| at + 22 + usize::from(comment) == bytes.len())
    });
    let end = end.ok_or(ZipDefect::NoEnd)? as u64;
    let record = Record::at(bytes, end, END, "end record")?;
    let mut directory = Directory { start: record.u32(16).into(), count: record.u16(10).into() };
    // PyTorch writes the large form of the record always; the small one then holds only ones where it is too small.
    if let Some(locator) = end.checked_sub(20)
        && let Ok(locator) = Record::at(bytes, locator, LOCATOR_64, "locator")
    {
        let large = Record::at(bytes, locator.u64(8), END_64, "64-bit end record")?;
        directory = Directory { start: large.u64(48), count: large.u64(32) };
    }
    let limit = MAX_MEMBERS.min(bytes.len() as u64 / 46);
    if directory.count > limit {
        return Err(ZipDefect::Count { count: directory.count, limit });
    }
    Ok(directory)
}

/// The member that the directory describes at `at`: name, place of its bytes, and where the next description is.
fn member(bytes: &[u8], at: u64, index: u64) -> Result<(String, Range<usize>, u64), ZipDefect> {
    let central = Record::at(bytes, at, CENTRAL, "directory entry")?;
    let [name_length, extra_length, comment_length] = [28, 30, 32].map(|field| u64::from(central.u16(field)));
    let cut = || ZipDefect::Record { what: "directory entry", offset: at };
    let name = slice(bytes, at + 46, name_length).ok_or_else(cut)?;
    let extra = slice(bytes, at + 46 + name_length, extra_length).ok_or_else(cut)?;
    let name = std::str::from_utf8(name).map_err(|_| ZipDefect::Name { index })?.to_owned();
    if central.u16(8) & 1 != 0 {
        return Err(ZipDefect::Encrypted { name });
    }
    let method = central.u16(10);
    if method != 0 {
        return Err(ZipDefect::Compressed { name, method });
    }
    let mut large = large_fields(extra);
    let mut field = |at| match central.u32(at) {
        u32::MAX => large.next(),
        small => Some(small.into()),
    };
    let cut_name = || ZipDefect::Size { name: name.clone(), size: u64::MAX };
    // The large form holds them in this order, each only where the small one is all ones.
    let size = field(24).ok_or_else(cut_name)?;
    let stored = field(20).ok_or_else(cut_name)?;
    let offset = field(42).ok_or_else(cut_name)?;
    let local = Record::at(bytes, offset, LOCAL, "member")?;
    let start = offset + 30 + u64::from(local.u16(26)) + u64::from(local.u16(28));
    let place = start.checked_add(size).filter(|&end| end <= bytes.len() as u64 && size == stored);
    let end = place.ok_or_else(|| ZipDefect::Size { name: name.clone(), size })?;
    let next = at + 46 + name_length + extra_length + comment_length;
    Ok((name, start as usize..end as usize, next))
}

/// The numbers of the extra field for large files.
fn large_fields(extra: &[u8]) -> impl Iterator<Item = u64> {
    let mut rest = extra;
    let mut found: &[u8] = &[];
    while let Some((head, tail)) = rest.split_first_chunk::<4>() {
        let [kind, length] = [0, 2].map(|at| u16::from_le_bytes([head[at], head[at + 1]]));
        let Some((data, after)) = tail.split_at_checked(length.into()) else { break };
        if kind == 1 {
            found = data;
            break;
        }
        rest = after;
    }
    found.as_chunks::<8>().0.iter().map(|&bytes| u64::from_le_bytes(bytes))
}

fn slice(bytes: &[u8], at: u64, length: u64) -> Option<&[u8]> {
    bytes.get(usize::try_from(at).ok()?..usize::try_from(at.checked_add(length)?).ok()?)
}

/// A record of fixed size.
struct Record<'a>(&'a [u8]);

impl<'a> Record<'a> {
    fn at(bytes: &'a [u8], offset: u64, signature: u32, what: &'static str) -> Result<Self, ZipDefect> {
        let size = match signature {
            LOCAL => 30,
            CENTRAL => 46,
            END => 22,
            END_64 => 56,
            _ => 20,
        };
        let record = slice(bytes, offset, size).filter(|record| record.starts_with(&signature.to_le_bytes()));
        record.map(Self).ok_or(ZipDefect::Record { what, offset })
    }

    fn u16(&self, at: usize) -> u16 {
        u16::from_le_bytes([self.0[at], self.0[at + 1]])
    }

    fn u32(&self, at: usize) -> u32 {
        u32::from(self.u16(at)) | u32::from(self.u16(at + 2)) << 16
    }

    fn u64(&self, at: usize) -> u64 {
        u64::from(self.u32(at)) | u64::from(self.u32(at + 4)) << 32
    }
}
