//! Every way in which a `.pte` can be wrong, each with the place, so that a user can tell a cut download from a bad export.

use crate::base::flatbuffer::FlatbufferError;
use crate::error::{Error, Status};
use std::fmt;

/// Where in a program something is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Place {
    /// A method as a whole.
    Method { method: String },
    /// Value `index` of a method.
    Value { method: String, index: usize },
    /// Instruction `index` of chain `chain` of a method.
    Instruction { method: String, chain: usize, index: usize },
    /// Delegate `index` of a method.
    Delegate { method: String, index: usize },
    /// The named data `key`.
    NamedData { key: String },
    /// The program's constants.
    Constants,
    /// Entry `index` of `mutable_data_segments`.
    MutableData { index: usize },
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Method { method } => write!(f, "method `{method}`"),
            Self::Value { method, index } => write!(f, "method `{method}`, value {index}"),
            Self::Instruction { method, chain, index } => {
                write!(f, "method `{method}`, chain {chain}, instruction {index}")
            }
            Self::Delegate { method, index } => write!(f, "method `{method}`, delegate {index}"),
            Self::NamedData { key } => write!(f, "named data `{key}`"),
            Self::Constants => f.write_str("constants"),
            Self::MutableData { index } => write!(f, "mutable data {index}"),
        }
    }
}

/// What is wrong with a program. Byte positions (`at`) count from the start of the file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum PteError {
    /// The first bytes are not those of a program.
    #[error("not an ExecuTorch program (.pte): {looks_like}")]
    NotAProgram { looks_like: String },
    /// A program of another schema generation.
    #[error("an ExecuTorch program of schema `{found}`, this library reads `ET12`")]
    UnsupportedIdentifier { found: String },
    /// The header promises more bytes than there are.
    #[error("the file is cut off: it has {have} bytes, its header promises {need}")]
    Truncated { have: u64, need: u64 },
    /// The extended header is shorter than its fixed part.
    #[error("the extended header says it has {length} bytes, fewer than its fixed part of 24")]
    HeaderLength { length: u32 },
    /// The flatbuffer part cannot even hold the header.
    #[error("the header gives the program {program_size} bytes, too few to hold the header itself")]
    ProgramSize { program_size: u64 },
    /// Segments are listed, but there is no base that their offsets count from.
    #[error("{count} segments are listed, but the header gives no segment base")]
    NoSegmentBase { count: usize },
    /// A segment reaches past the end of the file.
    #[error(
        "segment {segment} (offset {offset}, {size} bytes) reaches past the {available} bytes after the segment base"
    )]
    SegmentOutside { segment: usize, offset: u64, size: u64, available: u64 },
    /// An offset inside a segment points past its end.
    #[error("{place}: offset {offset} of entry {index} is past the segment's {size} bytes")]
    SubsegmentOutside { place: Place, index: usize, offset: u64, size: u64 },

    /// The flatbuffer part is damaged.
    #[error("the program's tables are damaged: {0}")]
    Flatbuffer(#[from] FlatbufferError),

    /// Constants in both the old and the new place.
    #[error("constants are stored twice: {inline} in constant_buffer, {segment} in constant_segment")]
    ConstantsTwice { inline: usize, segment: usize },
    /// Two methods of one name.
    #[error("method `{name}` is there twice")]
    DuplicateMethod { name: String },
    /// Two blobs of one key.
    #[error("named data `{key}` is there twice")]
    DuplicateKey { key: String },

    /// A value kind that this library does not know.
    #[error("{place}: unknown kind of value {tag}")]
    UnknownValueKind { place: Place, tag: u8 },
    /// An instruction that this library does not know.
    #[error("{place}: unknown instruction {tag}")]
    UnknownInstruction { place: Place, tag: u8 },
    /// An element type that this library does not know.
    #[error("{place}: unknown element type {code}")]
    UnknownDType { place: Place, code: i8 },
    /// A shape dynamism that this library does not know.
    #[error("{place}: unknown shape dynamism {code}")]
    UnknownDynamism { place: Place, code: i8 },
    /// A data location that this library does not know.
    #[error("{place}: unknown data location {code}")]
    UnknownLocation { place: Place, code: i8 },
    /// A tensor whose data does not begin where its storage begins.
    #[error("{place}: storage offset {offset}, only 0 is supported")]
    StorageOffset { place: Place, offset: i32 },
    /// A tensor or buffer in the memory of another device than the CPU.
    #[error("{place}: memory of device type {device}, only the CPU (0) is supported")]
    Device { place: Place, device: i8 },
    /// More dimensions than supported.
    #[error("{place}: {rank} dimensions, more than {}", crate::tensor::MAX_RANK)]
    Rank { place: Place, rank: usize },
    /// A size below zero or above the 31 bits of the format.
    #[error("{place}: dimension {dim} has size {size}")]
    Size { place: Place, dim: usize, size: i64 },
    /// The product of the sizes is out of bounds.
    #[error("{place}: a tensor of shape {sizes:?} is too large")]
    TooLarge { place: Place, sizes: Vec<usize> },
    /// Not a permutation of the dimensions.
    #[error("{place}: dim_order {order:?} is not a permutation of 0..{rank}")]
    DimOrder { place: Place, order: Vec<u8>, rank: usize },
    /// External data without the name to find it by.
    #[error("{place}: the data is in an external file, but the tensor has no name")]
    ExternalWithoutName { place: Place },

    /// An index past the end of what it indexes.
    #[error("{place}: {what} {index} is out of range, there are {count}")]
    Index { place: Place, what: &'static str, index: i64, count: usize },
    /// A negative index, or one beyond 32 bits.
    #[error("{place}: {what} {index} cannot be an index")]
    NotAnIndex { place: Place, what: &'static str, index: i64 },
    /// An index of a value of the wrong kind.
    #[error("{place}: {what} is value {index}, which is not {expected}")]
    Kind { place: Place, what: &'static str, index: u32, expected: &'static str },
    /// The bytes of a constant, or of a buffer's initial contents, end before the tensor does.
    #[error("{place}: the tensor has {need} bytes, its stored data ({stored}) only {have}")]
    DataTooShort { place: Place, stored: String, need: u64, have: u64 },
    /// A constant or planned tensor at an offset that its element type cannot be read from.
    #[error("{place}: offset {offset} is not a multiple of the element size {size}")]
    Misaligned { place: Place, offset: u64, size: usize },
    /// A planned buffer of a negative or absurd size.
    #[error("{place}: planned buffer {buffer} has {size} bytes")]
    BufferSize { place: Place, buffer: usize, size: i64 },
    /// Planned buffers that add up to an absurd size.
    #[error("{place}: planned buffers of {total} bytes together, more than {limit}")]
    BuffersTooLarge { place: Place, total: u64, limit: u64 },
    /// A planned tensor outside its buffer.
    #[error("{place}: {need} bytes at offset {offset} of planned buffer {buffer}, which has {have}")]
    PlannedOutside { place: Place, buffer: u32, offset: u64, need: u64, have: u64 },

    /// A program that the format cannot hold.
    #[error("the program's tables take {bytes} bytes, a flatbuffer holds less than 2 GiB")]
    TooLargeToWrite { bytes: usize },
}

impl From<PteError> for Error {
    fn from(error: PteError) -> Self {
        Error::from_source(Status::InvalidProgram, error)
    }
}
