//! From a [`Program`] to the bytes of a file that this library and ExecuTorch read: extended header, flatbuffer, and
//! segments for constants, initial contents, delegate blobs and named data.

use super::error::PteError;
use super::header::FULL_LENGTH;
use super::program::{
    BackendDelegate, Chain, EValue, ExecutionPlan, Instruction, OperatorName, Program, ShapeDynamism, TensorData,
    TensorValue,
};
use super::schema::{
    HEADER_AT, HEADER_MAGIC, IDENTIFIER, allocation, boxed, call, chain, compile_spec, data_reference, delegate,
    execution_plan, extra_tensor_info, free, instruction_kind, jump_false, location, move_call, named_data, operator,
    program, segment, subsegments, tensor, union, value_kind,
};
use crate::base::flatbuffer::{Fields, build};
use crate::base::storage::{Blob, Storage};
use crate::base::whole_file;
use crate::error::{Error, Result, Status};
use std::collections::HashMap;
use std::io::Write;
use std::ops::Range;
use std::path::Path;

/// Segments begin at multiples of this, so that vector kernels and DMA can use them where they are mapped.
const SEGMENT_ALIGNMENT: u64 = 128;
/// Constants begin at multiples of this within their segment.
const CONSTANT_ALIGNMENT: u64 = 16;

impl Program {
    /// The file's bytes. Blobs at the same place are written once.
    ///
    /// # Errors
    /// `InvalidProgram` when the program breaks a promise of the data model or its tables take 2 GiB.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        self.verify()?;
        let mut bytes = Vec::new();
        Image::of(self)?.write(&mut bytes).map_err(|error| Error::new(Status::Internal, error.to_string()))?;
        Ok(bytes)
    }

    /// Writes the file beside `path` and renames it, so that whoever has the old file mapped keeps it whole.
    ///
    /// # Errors
    /// As [`to_bytes`](Self::to_bytes), and `AccessFailed` when the file cannot be written.
    pub fn save(&self, path: &Path) -> Result<()> {
        self.verify()?;
        let image = Image::of(self)?;
        whole_file::write(path, &|out| image.write(out))
            .map_err(|error| Error::new(Status::AccessFailed, format!("cannot write {}: {error}", path.display())))
    }
}

/// The bytes of a program whose promises nobody checked, so that tests can write broken ones.
#[cfg(test)]
pub(super) fn unchecked_bytes(program: &Program) -> Vec<u8> {
    let mut bytes = Vec::new();
    Image::of(program).unwrap().write(&mut bytes).unwrap();
    bytes
}

/// A file in parts: its head, and where each blob goes.
struct Image<'a> {
    head: Vec<u8>,
    segments: Segments<'a>,
}

impl<'a> Image<'a> {
    fn of(program: &'a Program) -> Result<Self, PteError> {
        let mut segments = Segments::default();
        let root = root(program, &mut segments);
        let root = root.tables(
            program::SEGMENTS,
            segments.list.iter().map(|range| {
                Fields::new().scalar(segment::OFFSET, range.start).scalar(segment::SIZE, range.end - range.start)
            }),
        );
        let mut head = build(root, IDENTIFIER, FULL_LENGTH as usize);
        if head.len() > i32::MAX as usize {
            return Err(PteError::TooLargeToWrite { bytes: head.len() });
        }
        let program_size = head.len() as u64;
        head.resize(head.len().next_multiple_of(SEGMENT_ALIGNMENT as usize), 0);
        let mut header = HEADER_MAGIC.to_vec();
        header.extend(FULL_LENGTH.to_le_bytes());
        for number in [program_size, head.len() as u64, segments.end] {
            header.extend(number.to_le_bytes());
        }
        head[HEADER_AT..HEADER_AT + header.len()].copy_from_slice(&header);
        Ok(Self { head, segments })
    }

    fn write(&self, out: &mut impl Write) -> std::io::Result<()> {
        out.write_all(&self.head)?;
        let mut at = 0;
        for (offset, blob) in &self.segments.pieces {
            std::io::copy(&mut std::io::Read::take(std::io::repeat(0), offset - at), out)?;
            out.write_all(blob)?;
            at = offset + blob.len() as u64;
        }
        Ok(())
    }
}

/// Segments as they are collected; offsets count from the segment base.
#[derive(Default)]
struct Segments<'a> {
    list: Vec<Range<u64>>,
    /// Every blob by its offset, ascending.
    pieces: Vec<(u64, &'a Blob)>,
    end: u64,
    /// The segment of each blob that is one by itself.
    whole: HashMap<(*const Storage, Range<usize>), u32>,
    /// Where each constant is. A delegate's blob that is a constant too, the float table of embedding and head, is a
    /// segment within theirs: ExecuTorch's loaders read a segment by its offset and size alone.
    constants: HashMap<(*const Storage, Range<usize>), Range<u64>>,
}

impl<'a> Segments<'a> {
    /// A segment of `blobs`, each at a multiple of `alignment`; its index and the offsets within it.
    fn add(&mut self, blobs: impl IntoIterator<Item = &'a Blob>, alignment: u64) -> (u32, Vec<u64>) {
        let start = self.end.next_multiple_of(SEGMENT_ALIGNMENT);
        let mut end = start;
        let mut offsets = Vec::new();
        for blob in blobs {
            let at = end.next_multiple_of(alignment);
            offsets.push(at - start);
            self.pieces.push((at, blob));
            end = at + blob.len() as u64;
        }
        self.list.push(start..end);
        self.end = end;
        (self.list.len() as u32 - 1, offsets)
    }

    /// The segment that is `blob`, added unless a blob at the same place already is one.
    fn add_whole(&mut self, blob: &'a Blob) -> u32 {
        if let Some(&index) = self.whole.get(&blob.place()) {
            return index;
        }
        let index = match self.constants.get(&blob.place()) {
            Some(range) => {
                self.list.push(range.clone());
                self.list.len() as u32 - 1
            }
            None => self.add([blob], 1).0,
        };
        self.whole.insert(blob.place(), index);
        index
    }
}

fn root<'a>(program: &'a Program, segments: &mut Segments<'a>) -> Fields<'a> {
    let constants = subsegments(segments.add(&program.constants, CONSTANT_ALIGNMENT));
    let places = segments.pieces.iter().map(|(at, blob)| (blob.place(), *at..at + blob.len() as u64));
    segments.constants = places.filter(|(_, range)| !range.is_empty()).collect();
    // Initial contents are copied when a method loads, so they need no alignment.
    let mutable: Vec<_> = program.mutable_data.iter().map(|blobs| subsegments(segments.add(blobs, 1))).collect();
    let plans: Vec<_> = program.plans.iter().map(|plan| execution_plan(plan, segments)).collect();
    let named = program.named_data.iter().map(|(key, blob)| {
        Fields::new().string(named_data::KEY, key).scalar(named_data::SEGMENT_INDEX, segments.add_whole(blob))
    });
    Fields::new()
        .scalar(program::VERSION, program.version)
        .tables(program::NAMED_DATA, named)
        .tables(program::EXECUTION_PLAN, plans)
        .table(program::CONSTANT_SEGMENT, constants)
        .tables(program::MUTABLE_DATA_SEGMENTS, mutable)
}

fn subsegments<'a>((index, offsets): (u32, Vec<u64>)) -> Fields<'a> {
    Fields::new().scalar(subsegments::SEGMENT_INDEX, index).scalars(subsegments::OFFSETS, offsets)
}

/// Indices are stored signed. Verified ones are small.
fn signed(indices: &[u32]) -> impl Iterator<Item = i32> {
    indices.iter().map(|&index| index as i32)
}

fn execution_plan<'a>(plan: &'a ExecutionPlan, segments: &mut Segments<'a>) -> Fields<'a> {
    Fields::new()
        .string(execution_plan::NAME, &plan.name)
        .tables(execution_plan::VALUES, plan.values.iter().map(value))
        .scalars(execution_plan::INPUTS, signed(&plan.inputs))
        .scalars(execution_plan::OUTPUTS, signed(&plan.outputs))
        .tables(execution_plan::CHAINS, plan.chains.iter().map(chain))
        .tables(execution_plan::OPERATORS, plan.operators.iter().map(operator))
        .tables(execution_plan::DELEGATES, plan.delegates.iter().map(|item| delegate(item, segments)))
        .scalars(execution_plan::NON_CONST_BUFFER_SIZES, plan.non_const_buffer_sizes.iter().map(|&size| size as i64))
}

fn value(value: &EValue) -> Fields<'_> {
    let item = boxed::ITEM;
    let body = Fields::new();
    let (tag, body) = match value {
        EValue::Null => (value_kind::NULL, body),
        EValue::Int(number) => (value_kind::INT, body.scalar(item, *number)),
        EValue::Bool(truth) => (value_kind::BOOL, body.scalar(item, *truth)),
        EValue::Double(number) => (value_kind::DOUBLE, body.scalar(item, *number)),
        EValue::Tensor(tensor) => (value_kind::TENSOR, tensor_value(tensor)),
        EValue::String(text) => (value_kind::STRING, body.string(item, text)),
        EValue::IntList(items) => {
            (value_kind::INT_LIST, body.scalars(item, items.iter().map(|&index| i64::from(index))))
        }
        EValue::DoubleList(items) => (value_kind::DOUBLE_LIST, body.scalars(item, items.iter().copied())),
        EValue::BoolList(items) => (value_kind::BOOL_LIST, body.scalars(item, items.iter().copied())),
        EValue::TensorList(items) => (value_kind::TENSOR_LIST, body.scalars(item, signed(items))),
        EValue::OptionalTensorList(items) => {
            let items = items.iter().map(|item| item.map_or(-1, |index| index as i32));
            (value_kind::OPTIONAL_TENSOR_LIST, body.scalars(item, items))
        }
    };
    Fields::new().scalar(union::TAG, tag).table(union::TABLE, body)
}

fn tensor_value(value: &TensorValue) -> Fields<'_> {
    let dynamism = match value.dynamism {
        ShapeDynamism::Static => 0i8,
        ShapeDynamism::DynamicBound => 1,
        ShapeDynamism::DynamicUnbound => 2,
    };
    let mut fields = Fields::new()
        .scalar(tensor::SCALAR_TYPE, value.dtype as i8)
        .scalars(tensor::SIZES, value.sizes.iter().map(|&size| size as i32))
        .scalars(tensor::DIM_ORDER, value.dim_order.iter().copied())
        .scalar(tensor::SHAPE_DYNAMISM, dynamism);
    let mut extra = None;
    match &value.data {
        TensorData::Unplanned => {}
        TensorData::External => {
            extra = Some(Fields::new().scalar(extra_tensor_info::LOCATION, location::TENSOR_EXTERNAL));
        }
        TensorData::ExternalMutable { buffer, offset } => {
            fields = fields.table(tensor::ALLOCATION_INFO, allocation_details(*buffer, *offset));
            extra = Some(Fields::new().scalar(extra_tensor_info::LOCATION, location::TENSOR_EXTERNAL));
        }
        TensorData::Constant { index } => fields = fields.scalar(tensor::DATA_BUFFER_IDX, *index),
        TensorData::Planned { buffer, offset, initial } => {
            fields = fields.table(tensor::ALLOCATION_INFO, allocation_details(*buffer, *offset));
            if let Some((segment, index)) = initial {
                fields = fields.scalar(tensor::DATA_BUFFER_IDX, *index);
                extra = Some(Fields::new().scalar(extra_tensor_info::MUTABLE_DATA_SEGMENTS_IDX, u64::from(*segment)));
            }
        }
    }
    if let Some(name) = &value.fully_qualified_name {
        extra = Some(extra.unwrap_or_default().string(extra_tensor_info::FULLY_QUALIFIED_NAME, name));
    }
    match extra {
        Some(extra) => fields.table(tensor::EXTRA_TENSOR_INFO, extra),
        None => fields,
    }
}

fn allocation_details(buffer: u32, offset: u64) -> Fields<'static> {
    Fields::new()
        .scalar(allocation::MEMORY_ID, buffer)
        .scalar(allocation::MEMORY_OFFSET_LOW, offset as u32)
        .scalar(allocation::MEMORY_OFFSET_HIGH, (offset >> 32) as u32)
}

fn chain(item: &Chain) -> Fields<'_> {
    Fields::new()
        .scalars::<i32>(chain::INPUTS, [])
        .scalars::<i32>(chain::OUTPUTS, [])
        .tables(chain::INSTRUCTIONS, item.instructions.iter().map(instruction))
}

fn instruction(instruction: &Instruction) -> Fields<'_> {
    let index = |id: u16, index: u32| Fields::new().scalar(id, index as i32);
    let (tag, body) = match instruction {
        Instruction::Kernel { operator, args } => {
            (instruction_kind::KERNEL, index(call::CALLEE, *operator).scalars(call::ARGS, signed(args)))
        }
        Instruction::Delegate { delegate, args } => {
            (instruction_kind::DELEGATE, index(call::CALLEE, *delegate).scalars(call::ARGS, signed(args)))
        }
        Instruction::Move { from, to } => {
            (instruction_kind::MOVE, index(move_call::FROM, *from).scalar(move_call::TO, *to as i32))
        }
        Instruction::JumpFalse { condition, destination } => (
            instruction_kind::JUMP_FALSE,
            index(jump_false::CONDITION, *condition).scalar(jump_false::DESTINATION, *destination as i32),
        ),
        Instruction::Free { value } => (instruction_kind::FREE, index(free::VALUE, *value)),
    };
    Fields::new().scalar(union::TAG, tag).table(union::TABLE, body)
}

fn operator(item: &OperatorName) -> Fields<'_> {
    Fields::new().string(operator::NAME, &item.name).string(operator::OVERLOAD, &item.overload)
}

fn delegate<'a>(item: &'a BackendDelegate, segments: &mut Segments<'a>) -> Fields<'a> {
    let reference = Fields::new()
        .scalar(data_reference::LOCATION, location::SEGMENT)
        .scalar(data_reference::INDEX, segments.add_whole(&item.processed));
    let specs = item.compile_specs.iter().map(|spec| {
        Fields::new().string(compile_spec::KEY, &spec.key).scalars(compile_spec::VALUE, spec.value.iter().copied())
    });
    Fields::new()
        .string(delegate::ID, &item.id)
        .table(delegate::PROCESSED, reference)
        .tables(delegate::COMPILE_SPECS, specs)
}
