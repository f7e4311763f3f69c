//! The one place that knows every kernel and backend of this build and wires them together.

pub mod default_model;
pub mod inspect;

use crate::base::env;
use crate::base::storage::Storage;
use crate::engine::Resources;
use crate::error::{Context, Error, Result, Status};
use crate::ops::{self, GraphCompiler};
use crate::pte::{FlatTensor, Program};
use crate::qnn::{LibraryOptions, QNN_BACKEND, QnnBackend, QnnLibrary, QnnOptions};
use crate::runtime::{BackendRegistry, Execution, HostModule, KernelRegistry, Module, NativeModule, open_adapter};
use crate::xnnpack::XnnpackBackend;
use crate::{log_info, log_warning};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Whose runtime runs a program.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Runtime {
    /// This library's own.
    #[default]
    Native,
    /// ExecuTorch's, through an adapter library; see [`open_adapter`] for where it is looked for.
    Executorch {
        /// The adapter or its directory, when it is named.
        library: Option<PathBuf>,
    },
}

impl Runtime {
    /// From the values of the flags `--module` (`native` or `executorch`) and `--module_library`, which may be empty.
    pub fn from_flags(module: &str, library: &str) -> Result<Self> {
        let library = Some(PathBuf::from(library)).filter(|path| !path.as_os_str().is_empty());
        match (module, library) {
            ("executorch", library) => Ok(Self::Executorch { library }),
            ("native", None) => Ok(Self::Native),
            ("native", Some(_)) => Err(invalid("--module_library is for --module executorch")),
            _ => Err(invalid(format!("--module {module:?} is neither native nor executorch"))),
        }
    }
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(Status::InvalidArgument, message)
}

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
    /// Whose runtime runs it. What the other fields say of kernels and threads is for the native one.
    pub runtime: Runtime,
}

/// Opens the program at `path` with every kernel and backend of this build, or in the runtime that `options` name.
pub fn open_program(path: &Path, options: &ProgramOptions) -> Result<Box<dyn Module>> {
    if let Runtime::Executorch { library } = &options.runtime {
        return open_in_executorch(path, library.as_deref(), options);
    }
    load_program(Program::open(path)?, &path.display().to_string(), options)
}

fn open_in_executorch(path: &Path, library: Option<&Path>, options: &ProgramOptions) -> Result<Box<dyn Module>> {
    if options.cpu_threads.is_some() {
        log_warning!("cpu_threads is for the native runtime: ExecuTorch chooses its own number");
    }
    lend_qnn(path, options);
    let host = open_adapter(library, path, &options.data_paths)?;
    let module = HostModule::open(&host).with_context(|| format!("ExecuTorch cannot load {}", path.display()))?;
    // For saved contexts only; ExecuTorch has read them by itself.
    let files = std::iter::once(path).chain(options.data_paths.iter().map(PathBuf::as_path)).map(Storage::map);
    Ok(Box::new(module.of_files(files.collect::<Result<_>>().unwrap_or_default())))
}

/// ExecuTorch's QNN backend has no option for its library: it asks the loader by name, which finds what is loaded already.
fn lend_qnn(path: &Path, options: &ProgramOptions) {
    let named = options.qnn_lib_dir.clone().or_else(env::qnn_lib_dir);
    let Some((dir, program)) = named.zip(Program::open(path).ok()) else { return };
    if program.plans.iter().flat_map(|plan| &plan.delegates).any(|delegate| delegate.id == QNN_BACKEND) {
        let options = LibraryOptions { path: Some(dir), ..LibraryOptions::default() };
        if let Err(error) = QnnLibrary::load(&options) {
            log_warning!("ExecuTorch's QNN backend must find its library by itself: {error}");
        }
    }
}

/// Opens [`default_model`] likewise.
pub fn open_default_program(options: &ProgramOptions) -> Result<Box<dyn Module>> {
    if options.runtime != Runtime::Native {
        return Err(invalid("ExecuTorch's runtime needs a model file: the built-in model is for the native one"));
    }
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
            Err(invalid(format!("{} is {other:?}; it may be auto, compiled or instructions", env::EXECUTION)))
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
