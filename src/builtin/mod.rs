//! The one place that knows every kernel and backend of this build and wires them together.

pub mod default_model;
pub mod inspect;

use crate::base::env;
use crate::engine::Resources;
use crate::error::{Context, Error, Result, Status};
use crate::log_info;
use crate::ops::{self, GraphCompiler};
use crate::pte::{FlatTensor, Program};
use crate::qnn::{LibraryOptions, QnnBackend, QnnOptions};
use crate::runtime::{BackendRegistry, Execution, KernelRegistry, Module, NativeModule};
use crate::xnnpack::XnnpackBackend;
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
    /// How methods are executed. `Auto` leaves it to the environment variable `LLR_EXECUTION`: `auto`, `compiled` or
    /// `instructions`.
    pub execution: Execution,
}

/// Opens the program at `path` with every kernel and backend of this build.
pub fn open_program(path: &Path, options: &ProgramOptions) -> Result<Box<dyn Module>> {
    load_program(Program::open(path)?, &path.display().to_string(), options)
}

/// Opens [`default_model`] likewise.
pub fn open_default_program(options: &ProgramOptions) -> Result<Box<dyn Module>> {
    log_info!("no model was named: {} runs", default_model::NAME);
    load_program(Program::from_storage(default_model::program())?, default_model::NAME, options)
}

/// Makes `program` ready to run; `name` is what messages call it.
pub fn load_program(program: Program, name: &str, options: &ProgramOptions) -> Result<Box<dyn Module>> {
    let data = options.data_paths.iter().map(|path| FlatTensor::open(path)).collect::<Result<Vec<_>>>()?;
    let resources = Resources::new(options.cpu_threads);
    let module = NativeModule::with_data(program, data, kernels(), backends(options, &resources));
    let module = module.with_context(|| format!("cannot load {name}"))?;
    Ok(Box::new(module.with_compiler(Arc::new(GraphCompiler::new(resources)), execution(options)?)))
}

fn execution(options: &ProgramOptions) -> Result<Execution> {
    match (options.execution, env::execution().as_deref()) {
        (Execution::Auto, Some("compiled")) => Ok(Execution::Compiled),
        (Execution::Auto, Some("instructions")) => Ok(Execution::Instructions),
        (Execution::Auto, None | Some("auto")) => Ok(Execution::Auto),
        (Execution::Auto, Some(other)) => {
            let message = format!("{} is {other:?}; it may be auto, compiled or instructions", env::EXECUTION);
            Err(Error::new(Status::InvalidArgument, message))
        }
        (asked, _) => Ok(asked),
    }
}

/// Every kernel of this build.
pub fn kernels() -> KernelRegistry {
    let mut kernels = KernelRegistry::default();
    ops::register(&mut kernels);
    kernels
}

/// Every backend of this build. One whose library is absent is in it too: it says so when a program asks for it.
/// Those that compute on the CPU do so with `resources`.
pub fn backends(options: &ProgramOptions, resources: &Arc<Resources>) -> BackendRegistry {
    let library = LibraryOptions { path: options.qnn_lib_dir.clone(), ..LibraryOptions::default() };
    let mut backends = BackendRegistry::default();
    backends.register(Arc::new(QnnBackend::new(QnnOptions { library, ..QnnOptions::default() })));
    backends.register(Arc::new(XnnpackBackend::new(Arc::clone(resources))));
    backends
}
