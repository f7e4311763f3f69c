//! Which version this is: in the header for the compiler, in functions for the running library.

use super::guard::guard_value;
use std::ffi::c_char;

/// Changes when something that worked stops working; while it is 0, the minor number does this.
pub const LLR_VERSION_MAJOR: u32 = 0;
/// Changes when something is added.
pub const LLR_VERSION_MINOR: u32 = 1;
/// Changes when something is repaired.
pub const LLR_VERSION_PATCH: u32 = 0;
/// The three in one number that can be compared: major * 1000000 + minor * 1000 + patch.
pub const LLR_VERSION_NUMBER: u32 = LLR_VERSION_MAJOR * 1000000 + LLR_VERSION_MINOR * 1000 + LLR_VERSION_PATCH;

/// LLR_VERSION_NUMBER of the library that is running, to be compared with the header's. Never fails.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn llr_version() -> u32 {
    guard_value(0, || LLR_VERSION_NUMBER)
}

/// "major.minor.patch" of the library that is running. A static string, never freed. Never fails.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn llr_version_string() -> *const c_char {
    guard_value(c"".as_ptr(), || concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast())
}

/// One line about the build: version, the revisions of ExecuTorch's runner whose behaviour it mirrors, the QNN API it
/// speaks. For people: its form may change. A static string, never freed. Never fails.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn llr_build_string() -> *const c_char {
    guard_value(c"".as_ptr(), || {
        concat!("llama-runner ", env!("CARGO_PKG_VERSION"), "; ExecuTorch runner d8ac8666, cff6f4dd; QNN core API 2\0")
            .as_ptr()
            .cast()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    #[test]
    fn numbers_and_strings_agree_with_the_package() {
        let numbers = format!("{LLR_VERSION_MAJOR}.{LLR_VERSION_MINOR}.{LLR_VERSION_PATCH}");
        assert_eq!(numbers, env!("CARGO_PKG_VERSION"));
        assert_eq!(llr_version(), LLR_VERSION_NUMBER);
        // SAFETY: static strings that end with NUL.
        let (version, build) = unsafe { (CStr::from_ptr(llr_version_string()), CStr::from_ptr(llr_build_string())) };
        assert_eq!(version.to_str().unwrap(), numbers);
        assert!(build.to_str().unwrap().starts_with(&format!("llama-runner {numbers}; ")));
    }
}
