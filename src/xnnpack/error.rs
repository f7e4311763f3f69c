//! Every way in which an XNNPACK blob can be wrong or beyond this build, each with the value or node.

use super::model::Datatype;
use crate::base::flatbuffer::FlatbufferError;
use crate::error::{Error, Status};
use crate::graph::Int;
use std::fmt;

/// A node of the graph: its position and the schema's name of what it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct NodePlace {
    pub index: usize,
    pub kind: &'static str,
}

impl fmt::Display for NodePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {} ({})", self.index, self.kind)
    }
}

/// A size for messages: the number, or that only a run will tell.
struct Size(Int);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Int::Const(size) => write!(f, "{size}"),
            Int::Symbol(id) => write!(f, "${} (known at run time)", id.0),
        }
    }
}

/// What is wrong. Values, nodes and constants are named by their position in the graph's lists.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[allow(missing_docs)]
pub enum XnnpackError {
    /// The first bytes are not those of a delegate's blob.
    #[error("not an XNNPACK blob: it has neither the header `XH00` nor a graph's identifier, but {found:?}")]
    NotABlob { found: String },
    /// The blob ends inside its header.
    #[error("the blob has {have} bytes, its header alone takes 30")]
    HeaderCut { have: usize },
    /// The header gives itself fewer bytes than its fields take.
    #[error("the header says it has {length} bytes, its fields take 30")]
    HeaderLength { length: u16 },
    /// The header puts the graph or the constants outside of the blob.
    #[error("the header puts {what} at {offset} with {size} bytes, the blob has {have}")]
    PartOutside { what: &'static str, offset: u64, size: u64, have: usize },
    /// A graph of another schema generation.
    #[error("an XNNPACK graph of schema `{found}`, this library reads `XN00` and `XN01`")]
    Identifier { found: String },
    /// The flatbuffer part is damaged.
    #[error("the graph's tables are damaged: {0}")]
    Flatbuffer(#[from] FlatbufferError),
    /// More arguments than XNNPACK allows.
    #[error("{count} arguments, more than 4096")]
    Externs { count: u32 },
    /// A graph that the format cannot hold.
    #[error("the graph takes {bytes} bytes, an XNNPACK blob holds less than 2 GiB of it")]
    TooLargeToWrite { bytes: usize },

    /// Constants in both the old and the new place.
    #[error("constants are stored twice: {inline} in constant_buffer, {outside} in constant_data")]
    ConstantsTwice { inline: usize, outside: usize },
    /// A constant with both an offset and a name, or neither.
    #[error("constant {index} has offset {offset} and name `{key}`; exactly one of them must be there")]
    ConstantPlace { index: usize, offset: u64, key: String },
    /// A constant past the end of the blob's constants.
    #[error("constant {index} (offset {offset}, {size} bytes) is outside of the blob's {available} bytes of constants")]
    ConstantOutside { index: usize, offset: u64, size: u64, available: usize },
    /// The program lacks the data of a constant.
    #[error("constant {index} is named data `{key}`, which the program does not have")]
    ConstantMissing { index: usize, key: String },
    /// The program's data of a constant is shorter than the graph says.
    #[error("constant {index} has {size} bytes, named data `{key}` only {have}")]
    NamedDataShort { index: usize, key: String, size: u64, have: usize },

    /// A kind of value that this library does not know.
    #[error("value {value}: unknown kind {tag}")]
    ValueKind { value: usize, tag: u8 },
    /// An element type that this library does not know.
    #[error("value {value}: unknown element type {code}")]
    UnknownDatatype { value: usize, code: i16 },
    /// An element type of XNNPACK's run time that no file needs.
    #[error("value {value}: the element type {name} is not supported by this build")]
    UnsupportedDatatype { value: usize, name: &'static str },
    /// More dimensions than XNNPACK has.
    #[error("value {value}: {rank} dimensions, more than 6")]
    Rank { value: usize, rank: usize },
    /// The number of dimensions is not the length of their list.
    #[error("value {value}: {stated} dimensions stated, {listed} listed")]
    RankStated { value: usize, stated: u32, listed: usize },
    /// An empty dimension.
    #[error("value {value}: dimension {axis} is 0")]
    EmptyDim { value: usize, axis: usize },
    /// The product of the sizes is out of bounds.
    #[error("value {value}: a tensor of shape {dims:?} is too large")]
    TooLarge { value: usize, dims: Vec<usize> },
    /// Two values of one id.
    #[error("value {value}: its id {id} is already that of another value")]
    DuplicateId { value: usize, id: u32 },
    /// Flags that no value of a file has.
    #[error("value {value}: flags {flags:#x}; only input (1) or output (2) is possible")]
    ValueFlags { value: usize, flags: u32 },
    /// A value that has an external id and no flag, or the other way round.
    #[error("value {value}: external id {id} does not go with flags {flags:#x}")]
    ExternalFlags { value: usize, id: u32, flags: u32 },
    /// An argument that the call does not have.
    #[error("value {value}: argument {arg}, and a call has {count}")]
    Arg { value: usize, arg: usize, count: usize },
    /// Two values are the same argument.
    #[error("value {value}: argument {arg} is already another value")]
    DuplicateArg { value: usize, arg: usize },
    /// An argument with contents.
    #[error("value {value}: an argument cannot be a constant")]
    ConstantArg { value: usize },
    /// A constant that does not exist.
    #[error("value {value}: constant {index} does not exist, there are {count}")]
    ConstantIndex { value: usize, index: usize, count: usize },
    /// A constant whose bytes end before the value does.
    #[error("value {value}: its {what} take {need} bytes, the constant has {have}")]
    ConstantShort { value: usize, what: &'static str, need: usize, have: usize },
    /// Quantization on the way in, where it cannot be.
    #[error("value {value}: only an input of reals can be quantized to 8 bits on the way in")]
    QuantizeRows { value: usize },

    /// An element type and a quantization that do not go together.
    #[error("value {value}: element type {datatype:?} does not go with the quantization {quantization}")]
    QuantizationKind { value: usize, datatype: Datatype, quantization: &'static str },
    /// A quantization that this library does not know.
    #[error("value {value}: unknown quantization {tag}")]
    UnknownQuantization { value: usize, tag: u8 },
    /// A scale that is not a positive normal number.
    #[error("value {value}: scale {index} is {scale}")]
    Scale { value: usize, index: usize, scale: f32 },
    /// A zero point that no code has.
    #[error("value {value}: zero point {zero_point} is no code of {datatype:?}")]
    ZeroPoint { value: usize, zero_point: i32, datatype: Datatype },
    /// Too few or too many scales.
    #[error("value {value}: {have} scales where {need} are needed")]
    ScaleCount { value: usize, have: usize, need: usize },
    /// bf16 scales of channels.
    #[error("value {value}: scales of channels are f32, these are bf16")]
    ScaleType { value: usize },
    /// Channels along an axis that is not there.
    #[error("value {value}: channels along axis {axis} of {rank}")]
    ChannelAxis { value: usize, axis: usize, rank: usize },
    /// Blocks along another axis than the last.
    #[error("value {value}: channels of blocks along axis {axis}, only 0 is possible")]
    BlockAxis { value: usize, axis: i32 },
    /// Blocks that do not fit the rows.
    #[error("value {value}: blocks of {block} do not fit shape {dims:?}")]
    Blocks { value: usize, block: usize, dims: Vec<usize> },
    /// Rows of more axes than there are.
    #[error("value {value}: rows of {nonbatch_dims} axes in a shape of {rank}")]
    RowAxes { value: usize, nonbatch_dims: usize, rank: usize },
    /// A constant whose quantization only a run can find.
    #[error("value {value}: a constant or argument cannot be quantized dynamically")]
    DynamicOutside { value: usize },

    /// A kind of node that this library does not know.
    #[error("node {node}: unknown kind {tag}")]
    UnknownNode { node: usize, tag: u8 },
    /// A kind of node that language models do not use.
    #[error("node {node}: {kind} is not supported by this build")]
    UnsupportedNode { node: usize, kind: &'static str },
    /// Flags that change what a node does in a way that no language model needs.
    #[error("{place}: flags {flags:#x} are not supported by this build")]
    UnsupportedFlags { place: NodePlace, flags: u32 },
    /// A use of a node that no language model needs.
    #[error("{place}: {what} is not supported by this build")]
    UnsupportedUse { place: NodePlace, what: &'static str },
    /// An id that is no value's.
    #[error("{place}: there is no value {id}")]
    NoValue { place: NodePlace, id: usize },
    /// Too few or too many operands.
    #[error("{place}: {have} operands")]
    Operands { place: NodePlace, have: usize },
    /// An operand that nothing has made yet.
    #[error("{place}: operand {value} is used before it is made")]
    UsedBeforeMade { place: NodePlace, value: usize },
    /// A result that is there already: a constant, an input, or another node's.
    #[error("{place}: result {value} is there already")]
    MadeTwice { place: NodePlace, value: usize },
    /// An output that nothing makes.
    #[error("value {value}: no node makes this output")]
    NeverMade { value: usize },
    /// Bounds that nothing satisfies.
    #[error("{place}: the result is limited to {min}..={max}")]
    Bounds { place: NodePlace, min: f32, max: f32 },
    /// Attributes that do not fit the operand or each other.
    #[error("{place}: {why}")]
    Attributes { place: NodePlace, why: String },
    /// Element types that the operation does not have.
    #[error("{place}: {why}")]
    Types { place: NodePlace, why: String },
    /// Shapes that the operation does not have.
    #[error("{place}: {why}")]
    Shapes { place: NodePlace, why: String },
    /// Two sizes that must be equal, and are not or cannot be known to be.
    #[error("{place}: sizes {} and {} must be equal", Size(*left), Size(*right))]
    UnequalSizes { place: NodePlace, left: Int, right: Int },

    /// Another number of inputs than the graph has.
    #[error("{have} inputs for a graph that has {need}")]
    InputCount { have: usize, need: usize },
    /// An input that is not what the graph expects.
    #[error("argument {arg}: {why}")]
    Input { arg: usize, why: String },
    /// An argument of the delegate's call that is not what the graph takes or gives.
    #[error("argument {arg} of the call: {why}")]
    Argument { arg: usize, why: String },
    /// An output whose stated shape is not what comes out.
    #[error("argument {arg}: shape {stated:?} is stated, {made:?} comes out")]
    OutputShape { arg: usize, stated: Vec<usize>, made: Vec<usize> },
}

impl XnnpackError {
    /// `NotSupported` for sound blobs that ask for more than this build does, `InvalidProgram` for all else.
    pub fn status(&self) -> Status {
        match self {
            Self::UnsupportedDatatype { .. }
            | Self::UnknownNode { .. }
            | Self::UnsupportedNode { .. }
            | Self::UnsupportedFlags { .. }
            | Self::UnsupportedUse { .. } => Status::NotSupported,
            _ => Status::InvalidProgram,
        }
    }
}

impl From<XnnpackError> for Error {
    fn from(error: XnnpackError) -> Self {
        Error::from_source(error.status(), error)
    }
}
