//! The one error type that crosses rooms: a status number, a message that names what was wrong and where, and its cause.
//!
//! Each room has its own typed error enum and converts it into [`Error`]; [`Error::find`] gets it back.

use std::error::Error as StdError;
use std::fmt;

/// Status numbers. Those below 0x40 are ExecuTorch's `runtime::Error` numbers; ours begin at 0x1000. Numbers never
/// change and are never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(i32)]
pub enum Status {
    /// No error.
    Ok = 0x00,
    /// A fault of this library.
    Internal = 0x01,
    /// The object is in no state for this call.
    InvalidState = 0x02,
    /// The request is outside what this build or program can do.
    NotSupported = 0x10,
    /// The caller passed something unusable.
    InvalidArgument = 0x12,
    /// A value has another type than the operation needs.
    InvalidType = 0x13,
    /// The program calls operators that this build lacks.
    OperatorMissing = 0x14,
    /// Something of a program that was asked for is not there: a method, a tensor.
    NotFound = 0x20,
    /// Memory could not be had.
    MemoryAllocationFailed = 0x21,
    /// A file is missing, or could not be opened, read or written.
    AccessFailed = 0x22,
    /// The program file is damaged or inconsistent.
    InvalidProgram = 0x23,
    /// Another input file (tokenizer, tokenized prompt) is damaged.
    InvalidExternalData = 0x24,
    /// Memory or address space of a device is used up.
    OutOfResources = 0x25,
    /// The delegate blob does not fit the backend library.
    DelegateInvalidCompatibility = 0x30,
    /// The backend could not get memory.
    DelegateMemoryAllocationFailed = 0x31,
    /// The backend refused or failed an execution.
    DelegateInvalidHandle = 0x32,
    /// The program names backends that this build lacks.
    BackendMissing = 0x1000,
    /// A vendor library is missing or cannot be loaded.
    LibraryUnavailable = 0x1001,
    /// A call into the vendor's library failed.
    BackendFailed = 0x1002,
    /// The prompt, with what is already in the context, exceeds a limit.
    ContextExceeded = 0x1003,
    /// The caller's callback asked to stop, or another thread cancelled.
    Cancelled = 0x1004,
    /// A panic was caught at the C border; the handle can only be freed.
    Panic = 0x1005,
    /// An earlier panic poisoned the handle.
    Poisoned = 0x1006,
    /// The tokenizer file was not understood, or cannot do what was asked.
    TokenizerFailed = 0x1007,
}

impl Status {
    /// The constant's name, as in messages: `InvalidArgument`.
    pub fn name(self) -> String {
        format!("{self:?}")
    }
}

/// Shorthand of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failure: status, message, cause.
pub struct Error {
    status: Status,
    message: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    /// An error with no deeper cause.
    pub fn new(status: Status, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), source: None }
    }

    /// An error whose `Display` comes from `source`, the typed error of a room.
    pub fn from_source(status: Status, source: impl StdError + Send + Sync + 'static) -> Self {
        Self { status, message: String::new(), source: Some(Box::new(source)) }
    }

    /// Says what was being done when `self` happened; the status stays.
    pub fn context(self, message: impl Into<String>) -> Self {
        Self { status: self.status, message: message.into(), source: Some(Box::new(self)) }
    }

    /// The status number.
    pub fn status(&self) -> Status {
        self.status
    }

    /// The first cause of type `T`, looking down the chain.
    pub fn find<T: StdError + 'static>(&self) -> Option<&T> {
        let mut next: Option<&(dyn StdError + 'static)> = Some(self);
        while let Some(error) = next {
            if let Some(found) = error.downcast_ref::<T>() {
                return Some(found);
            }
            next = error.source();
        }
        None
    }

    /// The message with every cause, on one line: `a: b: c`. Control characters, which names in a damaged file may hold,
    /// become spaces, but for NUL, which the C border writes in its own way.
    pub fn chain(&self) -> String {
        let mut text = self.to_string();
        let mut next = self.source();
        // A transparent error's text is its source's own; say it once.
        if self.message.is_empty() {
            next = next.and_then(StdError::source);
        }
        while let Some(error) = next {
            let line = error.to_string();
            if !text.ends_with(&line) {
                text.push_str(": ");
                text.push_str(&line);
            }
            next = error.source();
        }
        text.replace(|c: char| c.is_control() && c != '\0', " ")
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.source, self.message.is_empty()) {
            (Some(source), true) => write!(f, "{source}"),
            _ => f.write_str(&self.message),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} ({:#x}): {}", self.status, self.status as i32, self.chain())
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|s| s as _)
    }
}

/// Adds [`Error::context`] to results.
pub trait Context<T> {
    /// Wraps the error, computing the message only on failure.
    fn with_context<M: Into<String>>(self, message: impl FnOnce() -> M) -> Result<T>;
}

impl<T, E: Into<Error>> Context<T> for std::result::Result<T, E> {
    fn with_context<M: Into<String>>(self, message: impl FnOnce() -> M) -> Result<T> {
        self.map_err(|error| error.into().context(message()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("byte 7 is wrong")]
    struct Typed;

    #[test]
    fn chain_names_every_cause_once() {
        let error = Error::from_source(Status::InvalidProgram, Typed).context("reading x.pte").context("creating");
        assert_eq!(error.chain(), "creating: reading x.pte: byte 7 is wrong");
        assert_eq!(error.status(), Status::InvalidProgram);
        assert!(error.find::<Typed>().is_some());
    }

    #[test]
    fn chain_is_one_line_that_moves_no_cursor() {
        assert_eq!(Error::new(Status::NotFound, "no\x1b[2J\r\nfile\u{9b}1m é").chain(), "no [2J  file 1m é");
    }

    #[test]
    fn transparent_error_says_its_source_once() {
        assert_eq!(Error::from_source(Status::Internal, Typed).chain(), "byte 7 is wrong");
    }
}
