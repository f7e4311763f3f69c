//! The C border: guard, handles, status; one file a C type.
//!
//! `include/llama_runner.h` is generated from these files with `cbindgen.toml`, which also holds the rules that a C
//! reader needs; `tests/header.rs` compares the two. Each `extern "C"` body runs inside `guard`, so neither a NULL
//! nor a panic gets through, and each object is a `handle`, so two threads on one object are an error and never a
//! data race.
#![allow(unsafe_code)]
#![allow(non_camel_case_types)] // The names are those of the header.

pub mod chunk;
pub mod decoding_options;
pub mod error;
pub mod generation_config;
mod guard;
mod handle;
pub mod host_module;
pub mod load_progress;
pub mod log;
pub mod memory;
pub mod options;
mod plan;
mod pointer;
pub mod program;
pub mod runner;
pub mod runner_facts;
pub mod state;
pub mod stats;
pub mod status;
pub mod stream;
pub mod text_stream;
pub mod tokens;
pub mod version;
