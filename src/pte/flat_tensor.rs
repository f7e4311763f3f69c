//! External data (`.ptd`, identifier `FT01`): tensors and blobs by name, for programs that refer to their weights
//! instead of holding them.

use super::header::looks_like;
use super::schema::{data_segment, flat_tensor, named_data, tensor_layout};
use crate::base::flatbuffer::{Buffer, Fields, FlatbufferError, Table, build};
use crate::base::storage::{Blob, Storage};
use crate::error::{Context, Error, Result, Status};
use crate::tensor::{DType, Dims, MAX_RANK, element_count};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

const IDENTIFIER: [u8; 4] = *b"FT01";
const HEADER_MAGIC: [u8; 4] = *b"FH01";
/// Where the header starts.
const HEADER_AT: usize = 8;
/// Magic, length, and four offsets and sizes.
const HEADER_LENGTH: u32 = 40;
/// Segments begin at multiples of this.
const SEGMENT_ALIGNMENT: usize = 16;

/// What is wrong with a file of external data.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // The messages say what the fields are.
pub enum FlatTensorError {
    #[error("not ExecuTorch external data (.ptd): {looks_like}")]
    NotFlatTensor { looks_like: String },
    #[error("external data of schema `{found}`, this library reads `FT01`")]
    UnsupportedIdentifier { found: String },
    #[error("the header `FH01` is missing")]
    NoHeader,
    #[error("the header says it has {length} bytes, fewer than its fixed part of {HEADER_LENGTH}")]
    HeaderLength { length: u32 },
    #[error("the file is cut off: it has {have} bytes, its header promises {need}")]
    Truncated { have: u64, need: u64 },
    #[error("the tables are damaged: {0}")]
    Flatbuffer(#[from] FlatbufferError),
    #[error("segment {segment} (offset {offset}, {size} bytes) reaches past the {available} bytes of segment data")]
    SegmentOutside { segment: usize, offset: u64, size: u64, available: u64 },
    #[error("`{key}` is in segment {segment}, there are {count}")]
    SegmentIndex { key: String, segment: u32, count: usize },
    #[error("`{key}` is there twice")]
    DuplicateKey { key: String },
    #[error("`{key}`: unknown element type {code}")]
    UnknownDType { key: String, code: i8 },
    #[error("`{key}`: {rank} dimensions, more than {MAX_RANK}")]
    Rank { key: String, rank: usize },
    #[error("`{key}`: dimension {dim} has size {size}")]
    Size { key: String, dim: usize, size: i32 },
    #[error("`{key}`: a tensor of shape {sizes:?} is too large")]
    TooLarge { key: String, sizes: Dims },
    #[error("`{key}`: dim_order {order:?} is not a permutation of 0..{rank}")]
    DimOrder { key: String, order: Vec<u8>, rank: usize },
    #[error("`{key}`: the tensor has {need} bytes, its segment only {have}")]
    DataTooShort { key: String, need: usize, have: usize },
}

impl From<FlatTensorError> for Error {
    fn from(error: FlatTensorError) -> Self {
        Error::from_source(Status::InvalidExternalData, error)
    }
}

/// Type and shape of a named tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorLayout {
    /// Element type.
    pub dtype: DType,
    /// Sizes, in logical order.
    pub sizes: Dims,
    /// Order of the dimensions in memory, outermost first; a permutation of `0..rank`.
    pub dim_order: Vec<u8>,
}

/// Bytes with a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedBlob {
    /// The bytes; as many as the layout needs, or more.
    pub blob: Blob,
    /// What they are, when they are a tensor.
    pub layout: Option<TensorLayout>,
}

/// A file of external data.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FlatTensor {
    /// Everything in it by name.
    pub entries: BTreeMap<String, NamedBlob>,
}

impl FlatTensor {
    /// Maps and reads the file at `path`.
    ///
    /// # Errors
    /// `AccessFailed` when the file cannot be read, `InvalidExternalData` with a [`FlatTensorError`] as cause when it
    /// is damaged.
    pub fn open(path: &Path) -> Result<Self> {
        Self::from_storage(Storage::map(path)?).with_context(|| format!("cannot read {}", path.display()))
    }

    /// Reads a whole file's bytes; blobs are ranges of `storage`.
    ///
    /// # Errors
    /// `InvalidExternalData` with a [`FlatTensorError`] as cause.
    pub fn from_storage(storage: Arc<Storage>) -> Result<Self> {
        Ok(read(&storage)?)
    }

    /// The file's bytes. Blobs at the same place are written once.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut data: Vec<u8> = Vec::new();
        let mut segments: Vec<(&Blob, usize)> = Vec::new();
        let mut named = Vec::new();
        for (key, NamedBlob { blob, layout }) in &self.entries {
            let known = segments.iter().position(|(other, _)| other.same_place(blob));
            let index = known.unwrap_or_else(|| {
                data.resize(data.len().next_multiple_of(SEGMENT_ALIGNMENT), 0);
                segments.push((blob, data.len()));
                data.extend_from_slice(blob);
                segments.len() - 1
            });
            let entry = Fields::new().string(named_data::KEY, key).scalar(named_data::SEGMENT_INDEX, index as u32);
            named.push(match layout {
                Some(layout) => entry.table(named_data::TENSOR_LAYOUT, layout_fields(layout)),
                None => entry,
            });
        }
        let segments = segments.iter().map(|(blob, offset)| {
            Fields::new().scalar(data_segment::OFFSET, *offset as u64).scalar(data_segment::SIZE, blob.len() as u64)
        });
        let root = Fields::new().tables(flat_tensor::SEGMENTS, segments).tables(flat_tensor::NAMED_DATA, named);
        let mut bytes = build(root, IDENTIFIER, HEADER_LENGTH as usize);
        let tables = bytes.len() as u64 - u64::from(HEADER_LENGTH);
        bytes.resize(bytes.len().next_multiple_of(SEGMENT_ALIGNMENT), 0);
        let mut header = HEADER_MAGIC.to_vec();
        header.extend(HEADER_LENGTH.to_le_bytes());
        for number in [HEADER_LENGTH.into(), tables, bytes.len() as u64, data.len() as u64] {
            header.extend(number.to_le_bytes());
        }
        bytes[HEADER_AT..HEADER_AT + header.len()].copy_from_slice(&header);
        bytes.extend(data);
        bytes
    }
}

fn layout_fields(layout: &TensorLayout) -> Fields<'_> {
    Fields::new()
        .scalar(tensor_layout::SCALAR_TYPE, layout.dtype as i8)
        .scalars(tensor_layout::SIZES, layout.sizes.iter().map(|&size| size as i32))
        .scalars(tensor_layout::DIM_ORDER, layout.dim_order.iter().copied())
}

/// Where the parts of a file are.
struct Layout {
    /// The tables are in the file's first bytes, the header among them.
    tables: usize,
    segment_base: usize,
    segment_size: u64,
}

fn header(bytes: &[u8]) -> Result<Layout, FlatTensorError> {
    match bytes.get(4..8) {
        Some(identifier) if identifier == IDENTIFIER => {}
        Some(&[b'F', b'T', high, low]) if high.is_ascii_digit() && low.is_ascii_digit() => {
            let found = format!("FT{}{}", high as char, low as char);
            return Err(FlatTensorError::UnsupportedIdentifier { found });
        }
        _ => return Err(FlatTensorError::NotFlatTensor { looks_like: looks_like(bytes) }),
    }
    let have = bytes.len() as u64;
    let header = &bytes[HEADER_AT..];
    if !header.starts_with(&HEADER_MAGIC) {
        return Err(FlatTensorError::NoHeader);
    }
    let Some(fixed) = header.get(..HEADER_LENGTH as usize) else {
        return Err(FlatTensorError::Truncated { have, need: (HEADER_AT + HEADER_LENGTH as usize) as u64 });
    };
    let numbers: Vec<u64> = fixed.as_chunks::<8>().0.iter().map(|&bytes| u64::from_le_bytes(bytes)).collect();
    // The first eight bytes are the magic and, in their high half, the length.
    let length = (numbers[0] >> 32) as u32;
    if length < HEADER_LENGTH {
        return Err(FlatTensorError::HeaderLength { length });
    }
    let (tables, data) = (numbers[1].saturating_add(numbers[2]), numbers[3].saturating_add(numbers[4]));
    let need = tables.max(data);
    if need > have {
        return Err(FlatTensorError::Truncated { have, need });
    }
    // Both end inside the file, so they fit in usize.
    Ok(Layout { tables: tables as usize, segment_base: numbers[3] as usize, segment_size: numbers[4] })
}

fn read(storage: &Arc<Storage>) -> Result<FlatTensor, FlatTensorError> {
    let layout = header(storage)?;
    let buffer = Buffer::new(&storage[..layout.tables]);
    let root = buffer.root()?;
    root.required("segments", root.byte_range(flat_tensor::SEGMENTS)?)?;
    root.required("named_data", root.byte_range(flat_tensor::NAMED_DATA)?)?;

    let mut segments = Vec::new();
    for (index, table) in root.tables(flat_tensor::SEGMENTS)?.enumerate() {
        let table = table?;
        let (offset, size) = (table.scalar(data_segment::OFFSET, 0u64)?, table.scalar(data_segment::SIZE, 0u64)?);
        let available = layout.segment_size;
        let outside = || FlatTensorError::SegmentOutside { segment: index, offset, size, available };
        let end = offset.checked_add(size).filter(|&end| end <= available).ok_or_else(outside)?;
        let range = layout.segment_base + offset as usize..layout.segment_base + end as usize;
        segments.push(Blob::new(storage, range).ok_or_else(outside)?);
    }
    let mut entries = BTreeMap::new();
    for table in root.tables(flat_tensor::NAMED_DATA)? {
        let table = table?;
        let key = table.required("key", table.string(named_data::KEY)?)?.to_owned();
        let segment = table.scalar(named_data::SEGMENT_INDEX, 0u32)?;
        let Some(blob) = segments.get(segment as usize) else {
            return Err(FlatTensorError::SegmentIndex { key, segment, count: segments.len() });
        };
        let layout =
            table.table(named_data::TENSOR_LAYOUT)?.map(|table| tensor_layout(table, &key, blob)).transpose()?;
        if entries.insert(key.clone(), NamedBlob { blob: blob.clone(), layout }).is_some() {
            return Err(FlatTensorError::DuplicateKey { key });
        }
    }
    Ok(FlatTensor { entries })
}

fn tensor_layout(table: Table, key: &str, blob: &Blob) -> Result<TensorLayout, FlatTensorError> {
    let key = || key.to_owned();
    let code = table.scalar(tensor_layout::SCALAR_TYPE, 0i8)?;
    let dtype = DType::from_code(code).ok_or_else(|| FlatTensorError::UnknownDType { key: key(), code })?;
    let stored = table.scalars::<i32>(tensor_layout::SIZES)?.unwrap_or_default();
    let rank = stored.len();
    if rank > MAX_RANK {
        return Err(FlatTensorError::Rank { key: key(), rank });
    }
    let size = |(dim, &size): (usize, &i32)| {
        usize::try_from(size).map_err(|_| FlatTensorError::Size { key: key(), dim, size })
    };
    let sizes = stored.iter().enumerate().map(size).collect::<Result<Dims, _>>()?;
    let dim_order = table.scalars::<u8>(tensor_layout::DIM_ORDER)?.unwrap_or_default();
    let mut sorted = dim_order.clone();
    sorted.sort_unstable();
    if !sorted.iter().map(|&dim| usize::from(dim)).eq(0..rank) {
        return Err(FlatTensorError::DimOrder { key: key(), order: dim_order, rank });
    }
    let Some(need) = element_count(&sizes).ok().and_then(|count| count.checked_mul(dtype.size())) else {
        return Err(FlatTensorError::TooLarge { key: key(), sizes });
    };
    if blob.len() < need {
        return Err(FlatTensorError::DataTooShort { key: key(), need, have: blob.len() });
    }
    Ok(TensorLayout { dtype, sizes, dim_order })
}

#[cfg(test)]
mod tests;
