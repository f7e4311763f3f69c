//! Where tests find outside material: `../shared` (real models, recorded runs) and QNN libraries.
#![allow(dead_code)] // Each test program uses its own part.

use std::path::{Path, PathBuf};

/// `../shared`, beside the repository.
pub fn shared() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared")
}

/// A file of `../shared/models`.
pub fn model(name: &str) -> PathBuf {
    shared().join("models").join(name)
}

/// The directory with libQnnHtp.so that `LLR_QNN_LIB_DIR` names.
pub fn qnn_lib_dir() -> Option<PathBuf> {
    llama_runner::base::env::qnn_lib_dir()
}

/// Directories with libQnnHtp.so of several SDKs, from `LLR_QNN_SDK_DIRS` (separated by colons).
pub fn qnn_sdk_dirs() -> Vec<PathBuf> {
    std::env::var_os("LLR_QNN_SDK_DIRS").map(|dirs| std::env::split_paths(&dirs).collect()).unwrap_or_default()
}
