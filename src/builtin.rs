//! The one place that knows every kernel and backend of this build and wires them together.

use crate::error::{Context, Result};
use crate::ops;
use crate::pte::{FlatTensor, Program};
use crate::qnn::{LibraryOptions, QnnBackend, QnnOptions};
use crate::runtime::{BackendRegistry, KernelRegistry, Module, NativeModule};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How a program is opened.
#[derive(Debug, Clone, Default)]
pub struct ProgramOptions {
    /// Where libQnnHtp.so and libQnnSystem.so are; searched first. `None`: the documented search order.
    pub qnn_lib_dir: Option<PathBuf>,
    /// External data files (`.ptd`) with tensors and blobs that the program refers to by name.
    pub data_paths: Vec<PathBuf>,
    /// Threads that compute on the CPU. `None`: as many as this machine has fast cores.
    pub cpu_threads: Option<NonZeroUsize>,
}

/// Opens the program at `path` with every kernel and backend of this build.
pub fn open_program(path: &Path, options: &ProgramOptions) -> Result<Box<dyn Module>> {
    let program = Program::open(path)?;
    let data = options.data_paths.iter().map(|path| FlatTensor::open(path)).collect::<Result<Vec<_>>>()?;
    let module = NativeModule::with_data(program, data, kernels(), backends(options));
    Ok(Box::new(module.with_context(|| format!("cannot load {}", path.display()))?))
}

/// Every kernel of this build.
pub fn kernels() -> KernelRegistry {
    let mut kernels = KernelRegistry::default();
    ops::register(&mut kernels);
    kernels
}

/// Every backend of this build. One whose library is absent is in it too: it says so when a program asks for it.
pub fn backends(options: &ProgramOptions) -> BackendRegistry {
    let library = LibraryOptions { path: options.qnn_lib_dir.clone(), ..LibraryOptions::default() };
    let mut backends = BackendRegistry::default();
    backends.register(Arc::new(QnnBackend::new(QnnOptions { library, ..QnnOptions::default() })));
    backends
}
