//! The first part of a GGUF file: counts, and typed values by name.

use crate::base::storage::Storage;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// Most values or tensors that a file may announce; large models have two thousand tensors.
const MAX_ENTRIES: u64 = 1 << 17;
/// Longest name of a value or tensor, as the specification has it for values.
const MAX_NAME: u64 = 65535;

/// What can be wrong with the bytes of a GGUF file.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum GgufDefect {
    /// Another version, or the other byte order.
    #[error("GGUF version {version} (written with bytes {bytes:02x?}); supported are 2 and 3, little-endian")]
    Version {
        /// The number.
        version: u32,
        /// As it is in the file.
        bytes: [u8; 4],
    },
    /// The file ends in the middle.
    #[error("{what} at byte {offset} needs {need} bytes, {have} are left")]
    Truncated {
        /// What was being read.
        what: &'static str,
        /// Where.
        offset: usize,
        /// Bytes needed.
        need: u64,
        /// Bytes left.
        have: usize,
    },
    /// A count that is out of all measure.
    #[error("{what} at byte {offset} is {count}, at most {limit} can be")]
    Count {
        /// What is counted.
        what: &'static str,
        /// Where.
        offset: usize,
        /// The count.
        count: u64,
        /// The most that can be.
        limit: u64,
    },
    /// A text is not UTF-8.
    #[error("{what} at byte {offset} is not UTF-8")]
    Text {
        /// What was being read.
        what: &'static str,
        /// Where.
        offset: usize,
    },
    /// A value of a type that does not exist, or a list of lists.
    #[error("value {key} has the type {kind}, which does not exist or cannot be there")]
    Kind {
        /// The value's name.
        key: String,
        /// The type's number.
        kind: u32,
    },
    /// Two values of one name.
    #[error("there are two values {key}")]
    DuplicateKey {
        /// The name.
        key: String,
    },
    /// Two tensors of one name.
    #[error("there are two tensors {name}")]
    DuplicateTensor {
        /// The name.
        name: String,
    },
    /// Not 1 to 4 dimensions, one of size 0, or too many elements.
    #[error("tensor {name} has the dimensions {dims:?}")]
    Dimensions {
        /// Its name.
        name: String,
        /// Sizes, innermost first.
        dims: Vec<u64>,
    },
    /// Rows that are no whole number of blocks.
    #[error("tensor {name} has rows of {row} elements, its type has blocks of {block}")]
    PartBlock {
        /// Its name.
        name: String,
        /// Elements of a row.
        row: usize,
        /// Elements of a block.
        block: usize,
    },
    /// A place that the file's alignment does not allow.
    #[error("tensor {name} begins at {offset}, which is no multiple of {alignment}")]
    Misaligned {
        /// Its name.
        name: String,
        /// From the beginning of the tensors' bytes.
        offset: u64,
        /// `general.alignment`.
        alignment: u64,
    },
    /// An alignment that is no power of two of at least 8.
    #[error("general.alignment is {alignment}, which is no power of two from 8 to 1048576")]
    Alignment {
        /// The number.
        alignment: u64,
    },
    /// A tensor that does not lie inside the file.
    #[error("tensor {name} at {offset} of {bytes} bytes lies outside the {size} bytes of tensors")]
    OutOfRange {
        /// Its name.
        name: String,
        /// From the beginning of the tensors' bytes.
        offset: u64,
        /// Its size.
        bytes: u64,
        /// Bytes that are there.
        size: u64,
    },
    /// Two tensors share bytes.
    #[error("tensors {first} and {second} overlap")]
    Overlap {
        /// The one that begins first.
        first: String,
        /// The other.
        second: String,
    },
}

/// The values of a file; lists stay in the map.
#[derive(Debug, Clone)]
pub(in crate::export::checkpoint) struct Metadata {
    storage: Arc<Storage>,
    values: HashMap<String, Value>,
}

/// A value.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    /// A whole number of any size.
    Integer(i128),
    /// A real of either size.
    Real(f64),
    Flag(bool),
    Text(String),
    List(List),
}

/// The elements of a list: their type, number and place.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct List {
    kind: u32,
    count: usize,
    place: Range<usize>,
}

const STRING: u32 = 8;
const ARRAY: u32 = 9;

/// Where the tensors' directory begins, and how many tensors there are.
#[derive(Debug, Clone, Copy)]
pub(super) struct Directory {
    pub at: usize,
    pub count: usize,
}

impl Metadata {
    /// Reads everything before the tensors' directory.
    pub(super) fn read(storage: &Arc<Storage>) -> Result<(Self, Directory), GgufDefect> {
        let mut cursor = Cursor { bytes: storage, at: super::MAGIC.len() };
        let version = cursor.array("the version")?;
        if !matches!(u32::from_le_bytes(version), 2 | 3) {
            return Err(GgufDefect::Version { version: u32::from_le_bytes(version), bytes: version });
        }
        // The shortest tensor entry has 24 bytes, the shortest value 13.
        let tensors = cursor.count("the number of tensors", 24)?;
        let count = cursor.count("the number of values", 13)?;
        let mut values = HashMap::new();
        for _ in 0..count {
            let key = cursor.name("a value's name")?;
            let kind = cursor.u32("a value's type")?;
            let value = cursor.value(&key, kind)?;
            if values.insert(key.clone(), value).is_some() {
                return Err(GgufDefect::DuplicateKey { key });
            }
        }
        let directory = Directory { at: cursor.at, count: tensors };
        Ok((Self { storage: Arc::clone(storage), values }, directory))
    }

    pub(super) fn get(&self, key: &str) -> Option<&Value> {
        self.values.get(key)
    }

    /// A text.
    pub(super) fn text(&self, key: &str) -> Option<&str> {
        match self.get(key)? {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// A truth value.
    pub(super) fn flag(&self, key: &str) -> Option<bool> {
        match self.get(key)? {
            Value::Flag(flag) => Some(*flag),
            _ => None,
        }
    }

    /// A whole number of at least 0.
    pub(super) fn count(&self, key: &str) -> Option<u64> {
        match self.get(key)? {
            Value::Integer(value) => u64::try_from(*value).ok(),
            _ => None,
        }
    }

    /// A list of texts.
    pub(super) fn texts(&self, key: &str) -> Option<Vec<&str>> {
        let Value::List(list @ List { kind: STRING, .. }) = self.get(key)? else { return None };
        let mut cursor = Cursor { bytes: &self.storage, at: list.place.start };
        (0..list.count).map(|_| cursor.text("a list's text", u64::MAX).ok()).collect()
    }

    /// A list of numbers, as reals.
    pub(super) fn numbers(&self, key: &str) -> Option<Vec<f64>> {
        let Value::List(list) = self.get(key)? else { return None };
        let mut cursor = Cursor { bytes: &self.storage, at: list.place.start };
        let number = |value| match value {
            Value::Integer(value) => Some(value as f64),
            Value::Real(value) => Some(value),
            _ => None,
        };
        (0..list.count).map(|_| number(cursor.value(key, list.kind).ok()?)).collect()
    }
}

/// Reads front to back.
#[derive(Debug)]
pub(super) struct Cursor<'a> {
    pub bytes: &'a [u8],
    pub at: usize,
}

impl<'a> Cursor<'a> {
    fn take(&mut self, what: &'static str, need: u64) -> Result<&'a [u8], GgufDefect> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let taken = usize::try_from(need).ok().and_then(|need| rest.get(..need));
        let truncated = GgufDefect::Truncated { what, offset: self.at, need, have: rest.len() };
        let taken = taken.ok_or(truncated)?;
        self.at += taken.len();
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], GgufDefect> {
        let offset = self.at;
        let truncated = |_| GgufDefect::Truncated { what, offset, need: N as u64, have: 0 };
        self.take(what, N as u64)?.try_into().map_err(truncated)
    }

    pub fn u32(&mut self, what: &'static str) -> Result<u32, GgufDefect> {
        self.array(what).map(u32::from_le_bytes)
    }

    pub fn u64(&mut self, what: &'static str) -> Result<u64, GgufDefect> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// A number of things of at least `size` bytes each, which must have room in the rest of the file.
    fn count(&mut self, what: &'static str, size: usize) -> Result<usize, GgufDefect> {
        let offset = self.at;
        let count = self.u64(what)?;
        let limit = MAX_ENTRIES.min(((self.bytes.len() - self.at) / size) as u64);
        if count > limit {
            return Err(GgufDefect::Count { what, offset, count, limit });
        }
        Ok(count as usize)
    }

    fn text(&mut self, what: &'static str, limit: u64) -> Result<&'a str, GgufDefect> {
        let offset = self.at;
        let length = self.u64(what)?;
        if length > limit {
            return Err(GgufDefect::Count { what, offset, count: length, limit });
        }
        let bytes = self.take(what, length)?;
        std::str::from_utf8(bytes).map_err(|_| GgufDefect::Text { what, offset })
    }

    pub fn name(&mut self, what: &'static str) -> Result<String, GgufDefect> {
        self.text(what, MAX_NAME).map(str::to_owned)
    }

    fn value(&mut self, key: &str, kind: u32) -> Result<Value, GgufDefect> {
        const WHAT: &str = "a value";
        Ok(match kind {
            0 => Value::Integer(u8::from_le_bytes(self.array(WHAT)?).into()),
            1 => Value::Integer(i8::from_le_bytes(self.array(WHAT)?).into()),
            2 => Value::Integer(u16::from_le_bytes(self.array(WHAT)?).into()),
            3 => Value::Integer(i16::from_le_bytes(self.array(WHAT)?).into()),
            4 => Value::Integer(u32::from_le_bytes(self.array(WHAT)?).into()),
            5 => Value::Integer(i32::from_le_bytes(self.array(WHAT)?).into()),
            6 => Value::Real(f32::from_le_bytes(self.array(WHAT)?).into()),
            7 => Value::Flag(self.array::<1>(WHAT)? != [0]),
            STRING => Value::Text(self.text(WHAT, u64::MAX)?.to_owned()),
            ARRAY => Value::List(self.list(key)?),
            10 => Value::Integer(u64::from_le_bytes(self.array(WHAT)?).into()),
            11 => Value::Integer(i64::from_le_bytes(self.array(WHAT)?).into()),
            12 => Value::Real(f64::from_le_bytes(self.array(WHAT)?)),
            kind => return Err(GgufDefect::Kind { key: key.into(), kind }),
        })
    }

    fn list(&mut self, key: &str) -> Result<List, GgufDefect> {
        let kind = self.u32("a list's type")?;
        let offset = self.at;
        let what = "a list's length";
        let count = self.u64(what)?;
        let size = match kind {
            0 | 1 | 7 => 1,
            2 | 3 => 2,
            4..=6 => 4,
            10..=12 | STRING => 8,
            kind => return Err(GgufDefect::Kind { key: key.into(), kind }),
        };
        let limit = (self.bytes.len() - self.at) as u64 / size;
        if count > limit {
            return Err(GgufDefect::Count { what, offset, count, limit });
        }
        let start = self.at;
        match kind {
            STRING => (0..count).try_for_each(|_| self.text("a list's text", u64::MAX).map(drop))?,
            _ => drop(self.take("a list", count * size)?),
        }
        Ok(List { kind, count: count as usize, place: start..self.at })
    }
}
