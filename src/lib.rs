//! Runs ExecuTorch language-model programs (`.pte`) the way ExecuTorch's own llama runners do, token for token.
//!
//! The way through the house: file bytes → [`pte`] → [`runtime`] (a [`runtime::Module`]) → [`runner`] → C API and
//! programs. [`ops`], [`xnnpack`] and [`qnn`] plug into the runtime as kernels and delegates; [`builtin`] is the one place
//! that knows them all. What runs on the CPU goes [`graph`] → [`passes`] → [`engine`] → [`kernels`]. The other way, from a
//! checkpoint to a `.pte`, is [`export`].
#![deny(missing_docs, unsafe_code, unsafe_op_in_unsafe_fn)]
#![deny(clippy::undocumented_unsafe_blocks)]

pub mod base;
pub mod builtin;
pub mod capi;
pub mod engine;
pub mod error;
pub mod export;
pub mod graph;
pub mod kernels;
pub mod ops;
pub mod passes;
pub mod pte;
pub mod qnn;
pub mod runner;
pub mod runtime;
pub mod tensor;
pub mod tokenizer;
pub mod xnnpack;

pub use error::{Error, Result, Status};
