//! QnnBackend: Qualcomm's HTP through libQnnHtp.so, loaded at run time.
#![allow(unsafe_code)]

mod backend;
mod binary_info;
mod binding;
mod blob;
mod codes;
mod compile_spec;
mod context;
mod cstd;
mod delegate;
#[doc(hidden)]
pub mod fake;
mod handles;
mod hint;
mod library;
mod lock;
mod log;
mod result;
mod search;
mod stdout;
#[rustfmt::skip]
pub mod sys;
mod tensor_info;
mod version;

pub use backend::{BlobInfo, DelegateError, QnnBackend, QnnOptions};
pub use binary_info::{BinaryInfo, GraphInfo, InfoError};
pub use binding::BindingError;
pub use blob::{BlobError, DelegateBlob, Layout};
pub use codes::code_name;
pub use compile_spec::{COMPILE_SPEC_KEY, CompileOptions, HtpOptions, soc_name};
pub use context::Context;
pub use delegate::QnnDelegate;
pub use handles::Device;
pub use library::{LibraryError, LibraryInfo, QnnLibrary};
pub use lock::QnnLock;
pub use result::{QnnApi, QnnError, SystemApi};
pub use search::{Attempt, LibraryOptions};
pub use tensor_info::{QnnType, Quantization, TensorInfo};
pub use version::Version;
#[cfg(test)]
mod tests;
