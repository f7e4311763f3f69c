//! Every way in which a host's module can be wrong: its table, what its callbacks return, and how it is used.

use crate::base::dynamic_library::{Attempt, list};
use crate::error::{Error, Status};
use crate::runtime::Side;
use std::fmt;

/// What a call was about.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum HostPlace {
    Module,
    Method(String),
    Slot { method: String, side: Side, index: usize },
    Value { method: String, index: usize },
}

impl fmt::Display for HostPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Module => f.write_str("the module"),
            Self::Method(name) => write!(f, "method {name}"),
            Self::Slot { method, side, index } => write!(f, "{side} {index} of method {method}"),
            Self::Value { method, index } => write!(f, "value {index} of method {method}"),
        }
    }
}

/// A fault of a host's module, or in its use.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // The texts say it.
pub enum HostError {
    #[error("the module table is NULL")]
    NoTable,
    #[error("the module table says it has {have} bytes, version 1 has at least {need}: was struct_size set?")]
    TableSize { have: usize, need: usize },
    #[error("the module table has version {found}, this library works with {wanted}")]
    TableVersion { found: u32, wanted: u32 },
    #[error("the module table lacks the callback {0}")]
    CallbackMissing(&'static str),
    #[error("the module is in use by another runner")]
    InUse,
    #[error("the module did not let go of an earlier runner's memory and cannot be used any more")]
    Stuck,

    #[error("{callback} for {place} failed: {} (0x{number:02x}){}", number_name(*.number), colon(.words))]
    Failed { callback: &'static str, place: HostPlace, number: i32, words: String },
    #[error("{callback} for {place} returned {number}, which is no error number{}", colon(.words))]
    UnknownNumber { callback: &'static str, place: HostPlace, number: i32, words: String },
    #[error("{callback} says that {place} has {count} {what}: more than {max}")]
    TooMany { callback: &'static str, place: HostPlace, what: &'static str, count: usize, max: usize },
    #[error("{callback} gives a text that is {why}, index {index}")]
    Text { callback: &'static str, index: usize, why: &'static str },
    #[error("value gives kind {kind} for {place}, which is none")]
    ValueKind { place: HostPlace, kind: i32 },
    #[error("value gives {integer} as boolean for {place}")]
    ValueBool { place: HostPlace, integer: i64 },
    #[error("{callback} gives element type {dtype} for {place}, which is none of this library's")]
    ElementType { callback: &'static str, place: HostPlace, dtype: i32 },
    #[error("{callback} gives rank {rank} for {place}: at most {max} are possible")]
    Rank { callback: &'static str, place: HostPlace, rank: usize, max: usize },
    #[error("{callback} gives sizes {sizes:?} for {place}: {why}")]
    Sizes { callback: &'static str, place: HostPlace, sizes: Vec<i64>, why: &'static str },
    #[error("{callback} gives scale {scale} for {place}, which is not above 0")]
    Scale { callback: &'static str, place: HostPlace, scale: f32 },
    #[error("output gives {have} for {place}, output_info gave {want}")]
    OutputType { place: HostPlace, have: String, want: String },
    #[error("output gives {have} bytes for {place}, which has {need}")]
    OutputLength { place: HostPlace, have: usize, need: usize },
    #[error("output gives NULL for {0}")]
    OutputNull(HostPlace),
    #[error("output gives memory for {0} that is not aligned to its elements")]
    OutputUnaligned(HostPlace),
    #[error("{0} is dynamic, and the module table has no resize_input")]
    NoResize(HostPlace),

    #[error("shared_buffer requires memory shared with the device, and the module table has no register_memory")]
    NoSharedMemory,

    #[error("the module adapter cannot be loaded; tried {}; {advice}", list(.attempts))]
    AdapterMissing { attempts: Vec<Attempt>, advice: &'static str },
    #[error("{path} is no module adapter: {why}")]
    NoAdapter { path: String, why: String },
    #[error("{path} could not open {program}: {} (0x{number:02x})", number_name(*.number))]
    AdapterOpen { path: String, program: String, number: i32 },
    #[error("the path {0:?} cannot be given to a C function")]
    Path(String),
}

fn colon(words: &str) -> String {
    if words.is_empty() { String::new() } else { format!(": {words}") }
}

/// ExecuTorch's and our numbers with their names; `None` for what is neither. ExecuTorch's that [`Status`] has no
/// constant for go with what comes nearest.
pub(super) fn status_of(number: i32) -> Option<(Status, &'static str)> {
    use Status::*;
    Some(match number {
        0x01 => (Internal, "Internal"),
        0x02 => (InvalidState, "InvalidState"),
        0x03 => (InvalidState, "EndOfMethod"),
        0x04 => (InvalidState, "AlreadyLoaded"),
        0x10 => (NotSupported, "NotSupported"),
        0x11 => (NotSupported, "NotImplemented"),
        0x12 => (InvalidArgument, "InvalidArgument"),
        0x13 => (InvalidType, "InvalidType"),
        0x14 => (OperatorMissing, "OperatorMissing"),
        0x15 => (OutOfResources, "RegistrationExceedingMaxKernels"),
        0x16 => (InvalidState, "RegistrationAlreadyRegistered"),
        0x20 => (NotFound, "NotFound"),
        0x21 => (MemoryAllocationFailed, "MemoryAllocationFailed"),
        0x22 => (AccessFailed, "AccessFailed"),
        0x23 => (InvalidProgram, "InvalidProgram"),
        0x24 => (InvalidExternalData, "InvalidExternalData"),
        0x25 => (OutOfResources, "OutOfResources"),
        0x30 => (DelegateInvalidCompatibility, "DelegateInvalidCompatibility"),
        0x31 => (DelegateMemoryAllocationFailed, "DelegateMemoryAllocationFailed"),
        0x32 => (DelegateInvalidHandle, "DelegateInvalidHandle"),
        0x1000 => (BackendMissing, "BackendMissing"),
        0x1001 => (LibraryUnavailable, "LibraryUnavailable"),
        0x1002 => (BackendFailed, "BackendFailed"),
        0x1003 => (ContextExceeded, "ContextExceeded"),
        0x1004 => (Cancelled, "Cancelled"),
        0x1007 => (TokenizerFailed, "TokenizerFailed"),
        _ => return None,
    })
}

fn number_name(number: i32) -> &'static str {
    status_of(number).map_or("an unknown error", |(_, name)| name)
}

impl HostError {
    fn status(&self) -> Status {
        match self {
            Self::NoTable | Self::TableSize { .. } | Self::CallbackMissing(_) | Self::Path(_) => {
                Status::InvalidArgument
            }
            Self::TableVersion { .. } | Self::NoSharedMemory => Status::NotSupported,
            Self::InUse | Self::Stuck => Status::InvalidState,
            Self::Failed { number, .. } | Self::AdapterOpen { number, .. } => {
                status_of(*number).map_or(Status::BackendFailed, |(status, _)| status)
            }
            Self::AdapterMissing { .. } | Self::NoAdapter { .. } => Status::LibraryUnavailable,
            _ => Status::BackendFailed,
        }
    }
}

impl From<HostError> for Error {
    fn from(error: HostError) -> Self {
        Error::from_source(error.status(), error)
    }
}
