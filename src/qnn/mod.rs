//! QnnBackend: Qualcomm's HTP through libQnnHtp.so, loaded at run time.
//!
//! Three levels, as usual for a vendor's C library: [`sys`] is bindgen's output, `result.rs` wraps one function each and
//! makes errors of codes, everything else is safe. [`QnnBackend`] is the way in; [`fake`] stands in for the library.
//!
//! # Safety
//! * Every call is made under [`QnnLock`], one lock for the process, so raw handles may be sent between threads.
//! * A handle's owner holds its parent: a graph its context, a context its [`Device`] and its bytes, a device the backend
//!   and log it was made from, those the [`QnnLibrary`]. Nothing is freed while something made from it lives.
//! * Libraries are never unloaded.
//! * Memory that the library knows by a handle is held by that handle's owner, as is the context that it is known to.
//! * The library trusts buffer sizes, so a delegate checks each buffer at each call; it trusts tensor ids, so they are
//!   only ever taken from the binary's own contents.
//! * The library's answers are bytes from outside: [`BinaryInfo`] caps every count and copies everything at once.
#![allow(unsafe_code)]

mod backend;
mod binary_info;
mod binding;
mod blob;
mod codes;
mod compile_spec;
pub mod compiler;
mod compose_api;
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
mod mem_api;

mod registrations;
mod result;
mod search;
mod soc;
mod stdout;
#[rustfmt::skip]
pub mod sys;
mod tensor_info;
mod version;

pub use backend::{BlobInfo, DelegateError, QNN_BACKEND, QnnBackend, QnnOptions};
pub use binary_info::{BinaryInfo, GraphInfo, InfoError, spill_fill_bytes};
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
pub use search::LibraryOptions;
pub use soc::{SOCS, Soc, UnknownSoc};
pub use tensor_info::{QnnType, Quantization, TensorInfo};
pub use version::Version;
#[cfg(test)]
mod tests;
