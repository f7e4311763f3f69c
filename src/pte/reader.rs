//! From a file's bytes to a [`Program`]: header, segments, flatbuffer tables, then the check of the whole.

use super::decode::{self, DelegateData};
use super::error::{Place, PteError};
use super::header::{self, Layout};
use super::program::{EValue, ExecutionPlan, Program, TensorData};
use super::schema::{boxed, named_data, program, segment, subsegments};
use crate::base::flatbuffer::{Buffer, FlatbufferError, Table};
use crate::base::storage::{Blob, Storage};
use crate::error::{Context, Result};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

impl Program {
    /// Maps and reads the program at `path`.
    ///
    /// # Errors
    /// `AccessFailed` when the file cannot be read, `InvalidProgram` with a [`PteError`] as cause when it is no
    /// sound program.
    pub fn open(path: &Path) -> Result<Self> {
        Self::from_storage(Storage::map(path)?).with_context(|| format!("cannot read {}", path.display()))
    }

    /// Reads a program from a whole file's bytes; its blobs are ranges of `storage`.
    ///
    /// # Errors
    /// `InvalidProgram` with a [`PteError`] as cause.
    pub fn from_storage(storage: Arc<Storage>) -> Result<Self> {
        Ok(read(&storage)?)
    }
}

fn read(storage: &Arc<Storage>) -> Result<Program, PteError> {
    let layout = header::parse(storage)?;
    let buffer = Buffer::new(&storage[..layout.program_size]);
    let root = buffer.root()?;

    let segments = segments(root, storage, layout)?;
    let inline = blobs(root, program::BACKEND_DELEGATE_DATA, storage)?;
    let data = DelegateData { inline: &inline, segments: &segments };
    // A vector of zero methods is a program, a missing one is not.
    root.required("execution_plan", root.byte_range(program::EXECUTION_PLAN)?)?;
    let plans = root
        .tables(program::EXECUTION_PLAN)?
        .map(|table| decode::plan(table?, &data))
        .collect::<Result<Vec<_>, PteError>>()?;

    let needs = Needs::of(&plans);
    let mut mutable_data = Vec::new();
    for (index, table) in root.tables(program::MUTABLE_DATA_SEGMENTS)?.enumerate() {
        let needs = needs.initial.get(&index).unwrap_or(&needs.none);
        mutable_data.push(subsegments(table?, &segments, Place::MutableData { index }, needs)?);
    }
    let read = Program {
        version: root.scalar(program::VERSION, 0)?,
        constants: constants(root, storage, &segments, &needs.constants)?,
        mutable_data,
        named_data: named_data(root, &segments)?,
        plans,
        segments,
    };
    read.verify()?;
    Ok(read)
}

fn segments(root: Table, storage: &Arc<Storage>, layout: Layout) -> Result<Vec<Blob>, PteError> {
    let tables = root.tables(program::SEGMENTS)?;
    let count = tables.len();
    let mut segments = Vec::with_capacity(count);
    for (index, table) in tables.enumerate() {
        let table = table?;
        let base = layout.segment_base.ok_or(PteError::NoSegmentBase { count })?;
        let (offset, size) = (table.scalar(segment::OFFSET, 0u64)?, table.scalar(segment::SIZE, 0u64)?);
        let available = storage.len().saturating_sub(base) as u64;
        let outside = || PteError::SegmentOutside { segment: index, offset, size, available };
        // What ends within the file fits in usize.
        let end = offset.checked_add(size).filter(|&end| end <= available).ok_or_else(outside)?;
        let range = base + offset as usize..base + end as usize;
        segments.push(Blob::new(storage, range).ok_or_else(outside)?);
    }
    Ok(segments)
}

/// The blobs of a vector of tables whose one field is a byte vector.
fn blobs(root: Table, field: u16, storage: &Arc<Storage>) -> Result<Vec<Blob>, PteError> {
    let blob = |table: Table| {
        let range = table.byte_range(boxed::ITEM)?.unwrap_or(0..0);
        let outside = FlatbufferError::Outside { at: range.start, size: range.len(), len: storage.len() };
        Ok(Blob::new(storage, range).ok_or(outside)?)
    };
    root.tables(field)?.map(|table| blob(table?)).collect()
}

/// How many bytes the tensors that refer to stored data take: the file stores where each piece begins, and the longest
/// tensor decides where it ends.
#[derive(Default)]
struct Needs {
    constants: HashMap<usize, usize>,
    initial: HashMap<usize, HashMap<usize, usize>>,
    none: HashMap<usize, usize>,
}

impl Needs {
    fn of(plans: &[ExecutionPlan]) -> Self {
        let mut needs = Self::default();
        for value in plans.iter().flat_map(|plan| &plan.values) {
            let EValue::Tensor(tensor) = value else { continue };
            let need = match tensor.data {
                TensorData::Constant { index } => needs.constants.entry(index as usize),
                TensorData::Planned { initial: Some((segment, index)), .. } => {
                    needs.initial.entry(segment as usize).or_default().entry(index as usize)
                }
                _ => continue,
            };
            // A tensor of impossible size is reported by `verify`.
            let need = need.or_default();
            *need = (*need).max(tensor.checked_byte_len().unwrap_or(0));
        }
        needs
    }
}

fn constants(
    root: Table,
    storage: &Arc<Storage>,
    segments: &[Blob],
    needs: &HashMap<usize, usize>,
) -> Result<Vec<Blob>, PteError> {
    let inline = blobs(root, program::CONSTANT_BUFFER, storage)?;
    let table = root.table(program::CONSTANT_SEGMENT)?;
    let stored =
        table.map(|table| subsegments(table, segments, Place::Constants, needs)).transpose()?.unwrap_or_default();
    match (inline.len(), stored.len()) {
        (0, _) => Ok(stored),
        // A single offset is the placeholder of index 0.
        (_, 0 | 1) => {
            let need = |index| needs.get(&index).copied().unwrap_or(0);
            Ok(inline.iter().enumerate().map(|(index, blob)| blob.head(need(index))).collect())
        }
        (inline, segment) => Err(PteError::ConstantsTwice { inline, segment }),
    }
}

/// The pieces of one segment, each from its offset on as long as `needs` says, or to the end of the segment.
fn subsegments(
    table: Table,
    segments: &[Blob],
    place: Place,
    needs: &HashMap<usize, usize>,
) -> Result<Vec<Blob>, PteError> {
    let offsets: Vec<u64> = table.scalars(subsegments::OFFSETS)?.unwrap_or_default();
    if offsets.is_empty() {
        return Ok(Vec::new());
    }
    let index = table.scalar(subsegments::SEGMENT_INDEX, 0u32)?;
    let Some(segment) = segments.get(index as usize) else {
        return Err(PteError::Index { place, what: "segment", index: index.into(), count: segments.len() });
    };
    let piece = |(index, &offset): (usize, &u64)| {
        let tail = usize::try_from(offset).ok().and_then(|offset| segment.tail(offset));
        match tail {
            Some(tail) => Ok(tail.head(needs.get(&index).copied().unwrap_or(0))),
            None => {
                let size = segment.len() as u64;
                Err(PteError::SubsegmentOutside { place: place.clone(), index, offset, size })
            }
        }
    };
    offsets.iter().enumerate().map(piece).collect()
}

fn named_data(root: Table, segments: &[Blob]) -> Result<BTreeMap<String, Blob>, PteError> {
    let mut named = BTreeMap::new();
    for table in root.tables(program::NAMED_DATA)? {
        let table = table?;
        let key = table.required("key", table.string(named_data::KEY)?)?;
        let index = table.scalar(named_data::SEGMENT_INDEX, 0u32)?;
        let blob = segments.get(index as usize).cloned().ok_or_else(|| PteError::Index {
            place: Place::NamedData { key: key.into() },
            what: "segment",
            index: index.into(),
            count: segments.len(),
        })?;
        if named.insert(key.to_owned(), blob).is_some() {
            return Err(PteError::DuplicateKey { key: key.into() });
        }
    }
    Ok(named)
}
