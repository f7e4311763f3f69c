//! What every room may use: aligned memory, mapped files, flatbuffers, environment knobs, vendor libraries, the log sink,
//! hashes, names, numbers as text, files that are whole, and the process.

pub mod aligned;
pub mod dynamic_library;
pub mod env;
pub(crate) mod fingerprint;
pub mod flatbuffer;
pub mod fnv;
pub mod log;
pub mod process;
pub mod storage;
pub mod text;
pub mod whole_file;
