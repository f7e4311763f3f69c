//! Exit codes of the programs: one a status family, so that a script can tell what failed without reading messages.
//!
//! | code | status |
//! |---|---|
//! | 0 | success, and nothing else |
//! | 1 | `Internal`: a fault of this library |
//! | 2 | the command line was not understood |
//! | 3 | `InvalidState` |
//! | 16, 18, 19, 20 | `NotSupported`, `InvalidArgument`, `InvalidType`, `OperatorMissing` |
//! | 32 … 37 | `NotFound`, `MemoryAllocationFailed`, `AccessFailed`, `InvalidProgram`, `InvalidExternalData`, `OutOfResources` |
//! | 48, 49, 50 | `DelegateInvalidCompatibility`, `DelegateMemoryAllocationFailed`, `DelegateInvalidHandle` |
//! | 64 … 71 | `BackendMissing`, `LibraryUnavailable`, `BackendFailed`, `ContextExceeded`, `Cancelled`, `Panic`, `Poisoned`, `TokenizerFailed` |
//!
//! Below 64 a code is ExecuTorch's own number (34 = 0x22 = `AccessFailed`), except `InvalidState`, whose 2 is taken by
//! the custom for command lines; from 64 on it is the low byte of our number plus 64.

use llama_runner::Status;

/// A command line that was not understood.
pub const USAGE: u8 = 2;

/// The exit code of `status`.
pub fn code(status: Status) -> u8 {
    match status {
        // An error without a status is still no success.
        Status::Ok => 1,
        Status::InvalidState => 3,
        other => {
            let number = other as i32;
            (if number < 0x1000 { number } else { 64 + (number & 0xff) }) as u8
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn codes_are_distinct_and_clear_of_shells_and_signals() {
        use Status::*;
        let all = [
            Internal,
            InvalidState,
            NotSupported,
            InvalidArgument,
            InvalidType,
            OperatorMissing,
            NotFound,
            MemoryAllocationFailed,
            AccessFailed,
            InvalidProgram,
            InvalidExternalData,
            OutOfResources,
            DelegateInvalidCompatibility,
            DelegateMemoryAllocationFailed,
            DelegateInvalidHandle,
            BackendMissing,
            LibraryUnavailable,
            BackendFailed,
            ContextExceeded,
            Cancelled,
            Panic,
            Poisoned,
            TokenizerFailed,
        ];
        let codes: BTreeSet<u8> = all.iter().map(|&status| code(status)).collect();
        assert_eq!(codes.len(), all.len());
        assert!(codes.iter().all(|&code| (1..101).contains(&code) && code != USAGE));
    }

    #[test]
    fn o4_executorch_numbers_are_kept() {
        for (status, want) in [
            (Status::AccessFailed, 34),
            (Status::OperatorMissing, 20),
            (Status::InvalidArgument, 18),
            (Status::BackendMissing, 64),
            (Status::ContextExceeded, 67),
            (Status::TokenizerFailed, 71),
        ] {
            assert_eq!(code(status), want);
        }
    }
}
