//! The one place that knows every kernel and backend of this build and wires them together.

use crate::error::{Context, Result};
use crate::ops;
use crate::pte::Program;
use crate::qnn::{LibraryOptions, QnnBackend, QnnOptions};
use crate::runtime::{BackendRegistry, KernelRegistry, Module, NativeModule};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How a program is opened.
#[derive(Debug, Clone, Default)]
pub struct ProgramOptions {
    /// Where libQnnHtp.so and libQnnSystem.so are; searched first. `None`: the documented search order.
    pub qnn_lib_dir: Option<PathBuf>,
}

/// Opens the program at `path` with every kernel and backend of this build.
pub fn open_program(path: &Path, options: &ProgramOptions) -> Result<Box<dyn Module>> {
    let program = Program::open(path)?;
    let module = NativeModule::new(program, kernels(), backends(options));
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
