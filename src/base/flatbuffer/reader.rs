//! A cursor over an untrusted flatbuffer: every position is checked before it is read, and a budget tied to the
//! buffer's size keeps tables that are pointed at a million times from becoming a million values.

use super::error::FlatbufferError;
use std::cell::Cell;
use std::ops::Range;

type Result<T, E = FlatbufferError> = std::result::Result<T, E>;

/// How many times its own size a buffer may decode to. Without sharing it is at most once.
const SHARING: usize = 4;
/// Most bytes of tables that any buffer may decode to, so that large inline blobs do not raise the budget.
const MAX_BUDGET: usize = 64 << 20;

/// A number as flatbuffers store it: little endian.
pub(crate) trait Scalar: Sized {
    const SIZE: usize;
    /// `None` unless `bytes` has `SIZE` bytes.
    fn decode(bytes: &[u8]) -> Option<Self>;
    fn encode(&self, out: &mut Vec<u8>);
}

macro_rules! scalar {
    ($($number:ty),+) => {$(
        impl Scalar for $number {
            const SIZE: usize = size_of::<$number>();
            fn decode(bytes: &[u8]) -> Option<Self> {
                Some(Self::from_le_bytes(bytes.try_into().ok()?))
            }
            fn encode(&self, out: &mut Vec<u8>) {
                out.extend(self.to_le_bytes());
            }
        }
    )+};
}
scalar!(u8, i8, u16, i16, i32, u32, i64, u64, f32, f64);

impl Scalar for bool {
    const SIZE: usize = 1;
    fn decode(bytes: &[u8]) -> Option<Self> {
        bytes.first().map(|&byte| byte != 0)
    }
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
}

/// The bytes of one flatbuffer and what is left of its budget.
pub(crate) struct Buffer<'a> {
    bytes: &'a [u8],
    limit: usize,
    spent: Cell<usize>,
}

impl<'a> Buffer<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        let limit = bytes.len().saturating_mul(SHARING).min(MAX_BUDGET);
        Self { bytes, limit, spent: Cell::new(0) }
    }

    /// The root table.
    pub fn root(&'a self) -> Result<Table<'a>> {
        self.table(0)
    }

    fn slice(&self, at: usize, size: usize) -> Result<&'a [u8]> {
        let outside = FlatbufferError::Outside { at, size, len: self.bytes.len() };
        let end = at.checked_add(size).ok_or_else(|| outside.clone())?;
        self.bytes.get(at..end).ok_or(outside)
    }

    fn read<T: Scalar>(&self, at: usize) -> Result<T> {
        let bytes = self.slice(at, T::SIZE)?;
        T::decode(bytes).ok_or(FlatbufferError::Outside { at, size: T::SIZE, len: self.bytes.len() })
    }

    fn charge(&self, bytes: usize) -> Result<()> {
        let spent = self.spent.get().saturating_add(bytes);
        self.spent.set(spent);
        if spent > self.limit { Err(FlatbufferError::TooManyItems { limit: self.limit }) } else { Ok(()) }
    }

    /// The position that the offset at `at` leads to.
    fn follow(&self, at: usize) -> Result<usize> {
        let offset: u32 = self.read(at)?;
        at.checked_add(offset as usize).ok_or(FlatbufferError::Outside { at, size: 4, len: self.bytes.len() })
    }

    /// The table that the offset at `at` leads to.
    fn table(&'a self, at: usize) -> Result<Table<'a>> {
        let at = self.follow(at)?;
        let bad = || FlatbufferError::Vtable { at };
        let back: i32 = self.read(at)?;
        let vtable = i64::try_from(at).ok().and_then(|at| at.checked_sub(i64::from(back))).ok_or_else(bad)?;
        let vtable = usize::try_from(vtable).map_err(|_| bad())?;
        let (directory, size) = (usize::from(self.read::<u16>(vtable)?), usize::from(self.read::<u16>(vtable + 2)?));
        if directory < 4 || directory % 2 != 0 || size < 4 {
            return Err(bad());
        }
        self.charge(size)?;
        Ok(Table { buffer: self, at, fields: &self.slice(vtable, directory)?[4..] })
    }

    /// The string that the offset at `at` leads to.
    fn string(&self, at: usize) -> Result<&'a str> {
        let (range, _) = self.vector(at, 1)?;
        self.charge(range.len())?;
        let at = range.start;
        std::str::from_utf8(&self.bytes[range]).map_err(|_| FlatbufferError::NotUtf8 { at })
    }

    /// The element range of the vector that the offset at `at` leads to, and its element count.
    fn vector(&self, at: usize, element: usize) -> Result<(Range<usize>, usize)> {
        let at = self.follow(at)?;
        let count = self.read::<u32>(at)? as usize;
        let size = count.saturating_mul(element);
        let start = at + 4;
        self.slice(start, size)?;
        Ok((start..start + size, count))
    }
}

/// A table: fields by number.
#[derive(Clone, Copy)]
pub(crate) struct Table<'a> {
    buffer: &'a Buffer<'a>,
    at: usize,
    fields: &'a [u8],
}

impl<'a> Table<'a> {
    /// The position of field `id`; `None` when it is absent. The table's declared size says nothing about it: Python's
    /// flatbuffer builder lets tables of different sizes share a directory when their field offsets agree.
    fn field(&self, id: u16) -> Result<Option<usize>> {
        let entry = usize::from(id) * 2;
        let Some(&[low, high]) = self.fields.get(entry..entry + 2) else { return Ok(None) };
        match usize::from(u16::from_le_bytes([low, high])) {
            0 => Ok(None),
            offset if offset < 4 => Err(FlatbufferError::Vtable { at: self.at }),
            offset => Ok(Some(self.at + offset)),
        }
    }

    /// The number in field `id`, `default` when it is absent.
    pub fn scalar<T: Scalar>(&self, id: u16, default: T) -> Result<T> {
        self.field(id)?.map_or(Ok(default), |at| self.buffer.read(at))
    }

    /// The table in field `id`.
    pub fn table(&self, id: u16) -> Result<Option<Table<'a>>> {
        self.field(id)?.map(|at| self.buffer.table(at)).transpose()
    }

    /// The tables of the vector in field `id`; none when it is absent.
    pub fn tables(&self, id: u16) -> Result<Tables<'a>> {
        let range = match self.field(id)? {
            Some(at) => self.buffer.vector(at, 4)?.0,
            None => 0..0,
        };
        self.buffer.charge(range.len())?;
        Ok(Tables { buffer: self.buffer, range })
    }

    /// The numbers of the vector in field `id`.
    pub fn scalars<T: Scalar>(&self, id: u16) -> Result<Option<Vec<T>>> {
        let Some(at) = self.field(id)? else { return Ok(None) };
        let (range, _) = self.buffer.vector(at, T::SIZE)?;
        self.buffer.charge(range.len())?;
        Ok(Some(self.buffer.bytes[range].chunks_exact(T::SIZE).filter_map(T::decode).collect()))
    }

    /// Where the bytes of the byte vector in field `id` are. They are not decoded and not charged.
    pub fn byte_range(&self, id: u16) -> Result<Option<Range<usize>>> {
        self.field(id)?.map(|at| Ok(self.buffer.vector(at, 1)?.0)).transpose()
    }

    /// The string in field `id`.
    pub fn string(&self, id: u16) -> Result<Option<&'a str>> {
        self.field(id)?.map(|at| self.buffer.string(at)).transpose()
    }

    /// The strings of the vector in field `id`; none when it is absent.
    pub fn strings(&self, id: u16) -> Result<Vec<&'a str>> {
        let Some(at) = self.field(id)? else { return Ok(Vec::new()) };
        let (range, _) = self.buffer.vector(at, 4)?;
        self.buffer.charge(range.len())?;
        range.step_by(4).map(|at| self.buffer.string(at)).collect()
    }

    /// `value`, or the error that this table lacks `field`.
    pub fn required<T>(&self, field: &'static str, value: Option<T>) -> Result<T> {
        value.ok_or(FlatbufferError::Missing { field, at: self.at })
    }
}

/// The tables of a vector, each checked as it is reached.
pub(crate) struct Tables<'a> {
    buffer: &'a Buffer<'a>,
    range: Range<usize>,
}

impl<'a> Iterator for Tables<'a> {
    type Item = Result<Table<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        let at = self.range.start;
        if at >= self.range.end {
            return None;
        }
        self.range.start += 4;
        Some(self.buffer.table(at))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let count = self.range.len() / 4;
        (count, Some(count))
    }
}

impl ExactSizeIterator for Tables<'_> {}
