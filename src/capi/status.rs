//! Status numbers as C sees them: those of [`crate::Status`], name by name.

use super::guard::guard_value;
use crate::error::Status;
use std::ffi::{CStr, c_char};

/// What a call came to. Numbers below 0x40 are those of ExecuTorch's runtime::Error; numbers are never changed or
/// reused, new ones may come. That a turn stopped early is no error: see llr_finish_reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum llr_status {
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

impl llr_status {
    const ALL: [Self; 24] = [
        Self::Ok,
        Self::Internal,
        Self::InvalidState,
        Self::NotSupported,
        Self::InvalidArgument,
        Self::InvalidType,
        Self::OperatorMissing,
        Self::NotFound,
        Self::MemoryAllocationFailed,
        Self::AccessFailed,
        Self::InvalidProgram,
        Self::InvalidExternalData,
        Self::OutOfResources,
        Self::DelegateInvalidCompatibility,
        Self::DelegateMemoryAllocationFailed,
        Self::DelegateInvalidHandle,
        Self::BackendMissing,
        Self::LibraryUnavailable,
        Self::BackendFailed,
        Self::ContextExceeded,
        Self::Cancelled,
        Self::Panic,
        Self::Poisoned,
        Self::TokenizerFailed,
    ];

    fn name(self) -> &'static CStr {
        match self {
            Self::Ok => c"LLR_STATUS_OK",
            Self::Internal => c"LLR_STATUS_INTERNAL",
            Self::InvalidState => c"LLR_STATUS_INVALID_STATE",
            Self::NotSupported => c"LLR_STATUS_NOT_SUPPORTED",
            Self::InvalidArgument => c"LLR_STATUS_INVALID_ARGUMENT",
            Self::InvalidType => c"LLR_STATUS_INVALID_TYPE",
            Self::OperatorMissing => c"LLR_STATUS_OPERATOR_MISSING",
            Self::NotFound => c"LLR_STATUS_NOT_FOUND",
            Self::MemoryAllocationFailed => c"LLR_STATUS_MEMORY_ALLOCATION_FAILED",
            Self::AccessFailed => c"LLR_STATUS_ACCESS_FAILED",
            Self::InvalidProgram => c"LLR_STATUS_INVALID_PROGRAM",
            Self::InvalidExternalData => c"LLR_STATUS_INVALID_EXTERNAL_DATA",
            Self::OutOfResources => c"LLR_STATUS_OUT_OF_RESOURCES",
            Self::DelegateInvalidCompatibility => c"LLR_STATUS_DELEGATE_INVALID_COMPATIBILITY",
            Self::DelegateMemoryAllocationFailed => c"LLR_STATUS_DELEGATE_MEMORY_ALLOCATION_FAILED",
            Self::DelegateInvalidHandle => c"LLR_STATUS_DELEGATE_INVALID_HANDLE",
            Self::BackendMissing => c"LLR_STATUS_BACKEND_MISSING",
            Self::LibraryUnavailable => c"LLR_STATUS_LIBRARY_UNAVAILABLE",
            Self::BackendFailed => c"LLR_STATUS_BACKEND_FAILED",
            Self::ContextExceeded => c"LLR_STATUS_CONTEXT_EXCEEDED",
            Self::Cancelled => c"LLR_STATUS_CANCELLED",
            Self::Panic => c"LLR_STATUS_PANIC",
            Self::Poisoned => c"LLR_STATUS_POISONED",
            Self::TokenizerFailed => c"LLR_STATUS_TOKENIZER_FAILED",
        }
    }
}

impl From<Status> for llr_status {
    fn from(status: Status) -> Self {
        match status {
            Status::Ok => Self::Ok,
            Status::Internal => Self::Internal,
            Status::InvalidState => Self::InvalidState,
            Status::NotSupported => Self::NotSupported,
            Status::InvalidArgument => Self::InvalidArgument,
            Status::InvalidType => Self::InvalidType,
            Status::OperatorMissing => Self::OperatorMissing,
            Status::NotFound => Self::NotFound,
            Status::MemoryAllocationFailed => Self::MemoryAllocationFailed,
            Status::AccessFailed => Self::AccessFailed,
            Status::InvalidProgram => Self::InvalidProgram,
            Status::InvalidExternalData => Self::InvalidExternalData,
            Status::OutOfResources => Self::OutOfResources,
            Status::DelegateInvalidCompatibility => Self::DelegateInvalidCompatibility,
            Status::DelegateMemoryAllocationFailed => Self::DelegateMemoryAllocationFailed,
            Status::DelegateInvalidHandle => Self::DelegateInvalidHandle,
            Status::BackendMissing => Self::BackendMissing,
            Status::LibraryUnavailable => Self::LibraryUnavailable,
            Status::BackendFailed => Self::BackendFailed,
            Status::ContextExceeded => Self::ContextExceeded,
            Status::Cancelled => Self::Cancelled,
            Status::Panic => Self::Panic,
            Status::Poisoned => Self::Poisoned,
            Status::TokenizerFailed => Self::TokenizerFailed,
        }
    }
}

/// The constant's name, "LLR_STATUS_NOT_FOUND"; "LLR_STATUS_UNKNOWN" for a number that is none. A static string, never
/// freed. Never fails.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn llr_status_name(status: i32) -> *const c_char {
    guard_value(c"LLR_STATUS_UNKNOWN", || {
        llr_status::ALL
            .into_iter()
            .find(|known| *known as i32 == status)
            .map_or(c"LLR_STATUS_UNKNOWN", llr_status::name)
    })
    .as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUST: [Status; 24] = [
        Status::Ok,
        Status::Internal,
        Status::InvalidState,
        Status::NotSupported,
        Status::InvalidArgument,
        Status::InvalidType,
        Status::OperatorMissing,
        Status::NotFound,
        Status::MemoryAllocationFailed,
        Status::AccessFailed,
        Status::InvalidProgram,
        Status::InvalidExternalData,
        Status::OutOfResources,
        Status::DelegateInvalidCompatibility,
        Status::DelegateMemoryAllocationFailed,
        Status::DelegateInvalidHandle,
        Status::BackendMissing,
        Status::LibraryUnavailable,
        Status::BackendFailed,
        Status::ContextExceeded,
        Status::Cancelled,
        Status::Panic,
        Status::Poisoned,
        Status::TokenizerFailed,
    ];

    #[test]
    fn numbers_equal_those_of_the_crate() {
        for status in RUST {
            assert_eq!(llr_status::from(status) as i32, status as i32, "{status:?}");
        }
    }

    #[test]
    fn every_number_has_its_name_and_others_have_none() {
        let name = |number| {
            // SAFETY: a static string that ends with NUL.
            unsafe { CStr::from_ptr(llr_status_name(number)) }.to_str().unwrap().to_owned()
        };
        for status in RUST {
            let plain = name(status as i32)["LLR_STATUS_".len()..].replace('_', "");
            assert_eq!(plain, status.name().to_uppercase());
        }
        assert_eq!(name(-1), "LLR_STATUS_UNKNOWN");
        assert_eq!(name(0x40), "LLR_STATUS_UNKNOWN");
    }
}
