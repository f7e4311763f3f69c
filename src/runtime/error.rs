//! Every way in which a program, a binding or a call can be wrong for the runtime.

use crate::error::{Error, Status};
use crate::tensor::{DType, Dims};
use std::fmt;

/// Which side of a method a tensor is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The caller gives it.
    Input,
    /// The caller gets it.
    Output,
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Input => "input",
            Self::Output => "output",
        })
    }
}

/// What a method needs and this build lacks, with what the build has.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Missing {
    /// Operators that no kernel implements.
    pub operators: Vec<String>,
    /// Delegate ids that no backend answers to.
    pub backends: Vec<String>,
    /// All delegate ids of the program.
    pub delegates: Vec<String>,
    /// Operators that this build has.
    pub known_operators: Vec<String>,
    /// Backends that this build has, each with why it is not available.
    pub known_backends: Vec<String>,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.operators.is_empty() {
            write!(f, "operators {} (this build has: {})", list(&self.operators), list(&self.known_operators))?;
        }
        if !self.operators.is_empty() && !self.backends.is_empty() {
            f.write_str(", and ")?;
        }
        if !self.backends.is_empty() {
            let (delegates, known) = (list(&self.delegates), list(&self.known_backends));
            write!(
                f,
                "backends {} (delegates in the file: {delegates}; this build has: {known})",
                list(&self.backends)
            )?;
        }
        Ok(())
    }
}

fn list(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// A fault found by the runtime. The text of an error that comes from an instruction is preceded by the method, the
/// instruction and its arguments, see [`Error::chain`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // The texts say it.
pub enum RuntimeError {
    #[error("the program has no method at all")]
    NoMethods,
    #[error("the program has no method {name}; it has: {}", list(.known))]
    NoSuchMethod { name: String, known: Vec<String> },
    #[error("{0} is no loaded method of this module")]
    NoSuchMethodId(usize),
    #[error("method {method} needs what this build lacks: {missing}")]
    Missing { method: String, missing: Box<Missing> },

    #[error("{what} {index} is out of range: there are {len}")]
    OutOfRange { what: &'static str, index: u64, len: usize },
    #[error("{rank} dimensions are more than {max}")]
    RankTooLarge { rank: usize, max: usize },
    #[error("planned memory of {bytes} bytes is more than the limit of {max}")]
    PlannedTooLarge { bytes: u64, max: u64 },
    #[error("its {bytes} bytes at offset {offset} do not fit planned buffer {buffer} of {len}")]
    PlannedOutside { buffer: u32, offset: u64, bytes: usize, len: usize },
    #[error("offset {offset} of planned buffer {buffer} is not aligned for {dtype}")]
    PlannedUnaligned { buffer: u32, offset: u64, dtype: DType },
    #[error("its initial contents have {have} bytes, {need} are needed")]
    InitialTooShort { have: usize, need: usize },
    #[error("constant {index} has {have} bytes, {need} are needed")]
    ConstantTooShort { index: u32, have: usize, need: usize },
    #[error("its data is in an external file (.ptd) under the name {name:?}, and no file that was given has it")]
    ExternalData { name: String },
    #[error("external data {name:?} is no tensor")]
    ExternalNoTensor { name: String },
    #[error("external data {name:?} is {have}, the program wants {want}")]
    ExternalLayout { name: String, have: String, want: String },
    #[error("external data {name:?} is there twice, with different contents")]
    ExternalTwice { name: String },
    #[error("a delegate takes it, and nothing ever gives it memory")]
    Homeless,

    #[error("delegate {delegate} ({id}) retypes argument {arg}, but a call has {len}")]
    RetypedArgMissing { delegate: usize, id: String, arg: usize, len: usize },
    #[error("delegate {delegate} ({id}) retypes it, but it is {kind}")]
    RetypedNotTensor { delegate: usize, id: String, kind: &'static str },
    #[error("delegate {delegate} makes it {have}, but {other} takes it as {want}")]
    RetypeConflict { delegate: usize, have: String, other: String, want: String },
    #[error("delegate {delegate} ({id}) is called with arguments of different types in different places")]
    DelegateCalls { delegate: usize, id: String },
    #[error("a delegate retypes it from {from} to the larger {to}, but its memory is the program's")]
    RetypeLarger { from: DType, to: DType },

    #[error("method {method} has no {side} {index}: it has {len}")]
    NoSuchSlot { method: String, side: Side, index: usize, len: usize },
    #[error("{side} {index} of method {method} is {kind}, not tensor")]
    NotATensor { method: String, side: Side, index: usize, kind: &'static str },
    #[error("{side} {index} of method {method} is a constant and cannot be bound")]
    ConstantSlot { method: String, side: Side, index: usize },
    #[error("{side} {index} of method {method} is {tensor} = {need} bytes, the slice has {have}")]
    BindLength { method: String, side: Side, index: usize, tensor: String, need: usize, have: usize },
    #[error("the slice for {side} {index} of method {method} is not inside the arena")]
    BindOutside { method: String, side: Side, index: usize },
    #[error("the slice for {side} {index} of method {method} at offset {offset} is not aligned for {dtype}")]
    BindUnaligned { method: String, side: Side, index: usize, offset: usize, dtype: DType },
    #[error("{side} {index} of method {method} ({tensor}) is not bound")]
    Unbound { method: String, side: Side, index: usize, tensor: String },
    #[error("method {method} is bound to another arena than the one it is given")]
    ForeignArena { method: String },
    #[error("input {index} of method {method} has fixed sizes {have:?}, {asked:?} asked")]
    FixedSizes { method: String, index: usize, have: Dims, asked: Dims },
    #[error("input {index} of method {method} has upper bounds {bounds:?}, {asked:?} asked")]
    SizesTooLarge { method: String, index: usize, bounds: Dims, asked: Dims },
    #[error("method {method} cannot be compiled: {reason}")]
    NotCompiled { method: String, reason: String },
    #[error("value {value} is {kind}, not the tensor that was compiled")]
    NotTheTensor { value: u32, kind: &'static str },
    #[error("values {a} and {b} share memory, and one of them is written")]
    ValuesShareMemory { a: u32, b: u32 },
    #[error("output {index} of method {method} has no memory yet")]
    NoOutput { method: String, index: usize },

    #[error("method {0} takes inputs, so it is not a constant method")]
    NotConstant(String),
    #[error("output {index} of method {method} is {kind}, neither scalar nor string")]
    NotScalar { method: String, index: usize, kind: &'static str },

    #[error("initial contents {segment}/{index} of a mutable buffer are not in the program")]
    NoInitialContents { segment: u32, index: u32 },
    #[error("the method did not end within {0} instructions")]
    StepLimit(u32),
    #[error("the condition of a jump is {0}, neither a bool nor a tensor of bools")]
    ConditionNotBool(&'static str),
    #[error("what is freed is {0}, not tensor")]
    FreedNotTensor(&'static str),
    #[error("delegate argument {arg} is {have}, prepared was {want}")]
    DelegateArgument { arg: usize, have: String, want: String },

    #[error("argument {arg} is missing")]
    ArgumentMissing { arg: usize },
    #[error("argument {arg} is {kind}, not {wanted}")]
    ArgumentKind { arg: usize, kind: &'static str, wanted: &'static str },
    #[error("argument {arg} is the output itself and cannot be read")]
    OutputRead { arg: usize },
    #[error("argument {arg} shares memory with output {output}")]
    SharedMemory { arg: usize, output: usize },
    #[error("a tensor of {have} is read as {want}")]
    ElementType { have: DType, want: DType },
    #[error("{tensor} has no memory bound to it")]
    NoMemory { tensor: String },
    #[error("a constant tensor is written to")]
    ReadOnly,
    #[error("sizes {asked:?} do not fit {what} {bounds:?}")]
    Sizes { asked: Dims, what: &'static str, bounds: Dims },
    #[error("a tensor of {from} cannot be a view of one of {to}")]
    ViewType { from: DType, to: DType },
}

impl RuntimeError {
    fn status(&self) -> Status {
        match self {
            Self::NoSuchMethod { .. } => Status::NotFound,
            Self::Missing { missing, .. } if missing.operators.is_empty() => Status::BackendMissing,
            Self::Missing { .. } => Status::OperatorMissing,
            Self::PlannedTooLarge { .. } => Status::MemoryAllocationFailed,
            Self::ExternalData { .. } => Status::NotFound,
            Self::ExternalNoTensor { .. } | Self::ExternalLayout { .. } | Self::ExternalTwice { .. } => {
                Status::InvalidExternalData
            }
            Self::RetypedArgMissing { .. } | Self::RetypedNotTensor { .. } => Status::DelegateInvalidCompatibility,
            Self::NoSuchMethodId(_)
            | Self::NoSuchSlot { .. }
            | Self::NotATensor { .. }
            | Self::ConstantSlot { .. }
            | Self::BindLength { .. }
            | Self::BindOutside { .. }
            | Self::BindUnaligned { .. }
            | Self::FixedSizes { .. }
            | Self::SizesTooLarge { .. }
            | Self::NotConstant(_) => Status::InvalidArgument,
            Self::Unbound { .. } | Self::ForeignArena { .. } | Self::NoOutput { .. } | Self::NoMemory { .. } => {
                Status::InvalidState
            }
            Self::ElementType { .. } | Self::NotScalar { .. } | Self::ViewType { .. } => Status::InvalidType,
            Self::Sizes { .. } => Status::InvalidArgument,
            Self::NotCompiled { .. } => Status::NotSupported,
            _ => Status::InvalidProgram,
        }
    }
}

impl From<RuntimeError> for Error {
    fn from(error: RuntimeError) -> Self {
        Error::from_source(error.status(), error)
    }
}
