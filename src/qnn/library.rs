//! libQnnHtp.so and libQnnSystem.so, found and loaded at run time and held as a value.

use super::cstd;
use super::lock::QnnLock;
use super::result::{QnnApi, SystemApi};
use super::search::{self, LibraryOptions};
use super::sys;
use super::version::Version;
use crate::base::dynamic_library::{Attempt, list, words};
use crate::error::{Error, Status};
use crate::{log_info, log_warning};
use std::any::Any;
use std::ffi::{CStr, c_char};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The structures this build knows are those of core interface 2.27 (SDK 2.37) and later; a new major number may
/// change them.
const CORE_MAJOR: u32 = 2;
const CORE_MIN_MINOR: u32 = 27;
const SYSTEM_MAJOR: u32 = 1;

/// More providers than this in one library are a fault of it.
const MAX_PROVIDERS: u32 = 64;

/// Why the libraries cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum LibraryError {
    #[error("{file} cannot be loaded; tried {}", list(attempts))]
    NotLoaded { file: &'static str, attempts: Vec<Attempt> },
    #[error("the QNN library path is empty")]
    EmptyPath,
    #[error("{} is no QNN library: {why}", path.display())]
    NoEntryPoint { path: PathBuf, why: String },
    #[error("{} has no usable interface: {why}", path.display())]
    NoProvider { path: PathBuf, why: String },
    #[error("{} has interface version {found}, this build works with {wanted}", path.display())]
    ApiVersion { path: PathBuf, found: Version, wanted: String },
    #[error("{} lacks the function {function}", path.display())]
    FunctionMissing { path: PathBuf, function: &'static str },
    #[error("{} has build id {found}, expected was {expected}", path.display())]
    BuildId { path: PathBuf, found: String, expected: String },
}

impl From<LibraryError> for Error {
    fn from(error: LibraryError) -> Self {
        Self::from_source(Status::LibraryUnavailable, error)
    }
}

/// Which library is loaded.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LibraryInfo {
    /// Absolute path of libQnnHtp.so; empty for a table that comes from no file.
    pub path: PathBuf,
    /// The SDK it comes from: `v2.49.40.…`.
    pub build_id: String,
    /// Name of the chosen interface: `HTP_QTI_AISW`.
    pub provider: String,
    /// Version of the core interface.
    pub core: Version,
    /// Version of the backend's part.
    pub backend: Version,
    /// Absolute path and interface version of libQnnSystem.so.
    pub system: Option<(PathBuf, Version)>,
}

impl fmt::Display for LibraryInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, build_id, core, backend, .. } = self;
        write!(f, "library build {build_id}, core interface {core}, backend {backend}")?;
        if path.as_os_str().is_empty() { Ok(()) } else { write!(f, ", {}", path.display()) }
    }
}

/// Loaded libraries, or a fake's tables.
pub struct QnnLibrary {
    api: QnnApi,
    system: Result<SystemApi, LibraryError>,
    info: LibraryInfo,
    _keep: Option<Box<dyn Any + Send + Sync>>,
}

impl fmt::Debug for QnnLibrary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("QnnLibrary").field(&self.info).finish()
    }
}

impl QnnLibrary {
    /// Finds and loads the libraries. Searched are, in this order: the path of `options`; the directory that the
    /// environment variable `LLR_QNN_LIB_DIR` names; the directory that this code was loaded from; the loader's own
    /// search path. A path that was named (the first two) is the only one tried.
    ///
    /// libQnnSystem.so is taken from the directory of libQnnHtp.so, else from the loader's search path.
    ///
    /// They stay loaded until the process ends: threads and thread-local destructors of theirs may outlive any value
    /// of ours.
    pub fn load(options: &LibraryOptions) -> Result<Arc<Self>, LibraryError> {
        let lock = QnnLock::acquire();
        let (api, mut info) = load_backend(&lock, options)?;
        let system = load_system(&lock, &info.path);
        info.system = system.as_ref().ok().map(|(_, path, version)| (path.clone(), *version));
        log_info!("QNN: {info}");
        match &system {
            Ok((_, path, version)) => log_info!("QNN: system interface {version}, {}", path.display()),
            Err(error) => log_warning!("QNN: {error}"),
        }
        Ok(Arc::new(Self { api, system: system.map(|(api, ..)| api), info, _keep: None }))
    }

    /// A library made of tables instead of files, for fakes. `keep` lives as long as the library.
    pub fn from_tables(
        api: QnnApi,
        system: Option<SystemApi>,
        info: LibraryInfo,
        keep: Option<Box<dyn Any + Send + Sync>>,
    ) -> Arc<Self> {
        let system = system.ok_or(LibraryError::NotLoaded { file: search::SYSTEM_FILE, attempts: Vec::new() });
        Arc::new(Self { api, system, info, _keep: keep })
    }

    /// The backend's functions.
    pub(super) fn api(&self) -> &QnnApi {
        &self.api
    }

    /// libQnnSystem's functions; the error says why it is not there.
    pub fn system(&self) -> Result<&SystemApi, LibraryError> {
        self.system.as_ref().map_err(Clone::clone)
    }

    /// Which library this is.
    pub fn info(&self) -> &LibraryInfo {
        &self.info
    }
}

/// Calls a library's list of interfaces. The symbol's own file goes with them.
///
/// # Safety
/// Symbol `name` must be a function of type `QnnInterface_GetProviders_t`, up to the interface's type `T`.
unsafe fn providers<T>(
    file: &libloading::Library,
    path: &Path,
    name: &'static CStr,
) -> Result<(Vec<*const T>, PathBuf), LibraryError> {
    type GetProviders<T> = unsafe extern "C" fn(*mut *mut *const T, *mut u32) -> sys::Qnn_ErrorHandle_t;
    let no_entry = |why| LibraryError::NoEntryPoint { path: path.to_path_buf(), why };
    // SAFETY: the symbol has this type, says the caller.
    let symbol = unsafe { file.get::<GetProviders<T>>(name) }.map_err(|error| no_entry(words(&error)))?;
    let path = cstd::file_of((*symbol as *const ()).cast()).unwrap_or_else(|| path.to_path_buf());
    let (mut list, mut count) = (std::ptr::null_mut(), 0);
    // SAFETY: both out-parameters are valid.
    let code = unsafe { symbol(&mut list, &mut count) };
    if code != 0 || list.is_null() {
        let why = format!("{} gave code {code}", name.to_string_lossy());
        return Err(LibraryError::NoProvider { path, why });
    }
    // SAFETY: on success the list has `count` entries; the cap keeps a broken count from doing worse.
    let list = unsafe { std::slice::from_raw_parts(list, count.min(MAX_PROVIDERS) as usize) };
    Ok((list.iter().copied().filter(|provider| !provider.is_null()).collect(), path))
}

fn provider_name(name: *const c_char) -> String {
    if name.is_null() {
        return String::new();
    }
    // SAFETY: a provider's name is a C string in the library's constant data.
    unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
}

fn load_backend(lock: &QnnLock, options: &LibraryOptions) -> Result<(QnnApi, LibraryInfo), LibraryError> {
    let (file, path) = search::open(lock, search::BACKEND_FILE, search::backend_candidates(options)?)?;
    // SAFETY: this is the symbol's documented type.
    let (providers, path) = unsafe { providers::<sys::QnnInterface_t>(&file, &path, c"QnnInterface_getProviders") }?;
    let mut others = Vec::new();
    for provider in providers {
        // SAFETY: a provider of any version starts with these three fields.
        let (id, name, version) =
            unsafe { ((*provider).backendId, provider_name((*provider).providerName), (*provider).apiVersion) };
        if id != sys::QNN_BACKEND_ID_HTP {
            others.push(format!("{name} ({id})"));
            continue;
        }
        let core = Version::from(version.coreApiVersion);
        if core.major != CORE_MAJOR || core.minor < CORE_MIN_MINOR {
            let wanted = format!("{CORE_MAJOR}.{CORE_MIN_MINOR} and later {CORE_MAJOR}.x");
            return Err(LibraryError::ApiVersion { path, found: core, wanted });
        }
        // SAFETY: a provider of this version has all the entries that the structure names.
        let functions = unsafe { (*provider).functions };
        // SAFETY: they are the vendor's functions, and the library is never unloaded.
        let api = unsafe { QnnApi::new(functions) }
            .map_err(|function| LibraryError::FunctionMissing { path: path.clone(), function })?;
        std::mem::forget(file);
        let build_id = api.backend_build_id(lock).unwrap_or_default();
        if let Some(expected) = options.expected_build_id.as_deref().filter(|id| !build_id.starts_with(*id)) {
            return Err(LibraryError::BuildId { path, found: build_id, expected: expected.to_owned() });
        }
        let backend = version.backendApiVersion.into();
        return Ok((api, LibraryInfo { path, build_id, provider: name, core, backend, system: None }));
    }
    let why = format!("it has no HTP backend ({}), only [{}]", sys::QNN_BACKEND_ID_HTP, others.join(", "));
    Err(LibraryError::NoProvider { path, why })
}

fn load_system(lock: &QnnLock, backend: &Path) -> Result<(SystemApi, PathBuf, Version), LibraryError> {
    let (file, path) = search::open(lock, search::SYSTEM_FILE, search::system_candidates(backend))?;
    let name = c"QnnSystemInterface_getProviders";
    // SAFETY: this is the symbol's documented type.
    let (providers, path) = unsafe { providers::<sys::QnnSystemInterface_t>(&file, &path, name) }?;
    let Some(&provider) = providers.first() else {
        return Err(LibraryError::NoProvider { path, why: "it has none".into() });
    };
    // SAFETY: a provider of any version starts with these fields.
    let version = Version::from(unsafe { (*provider).systemApiVersion });
    if version.major != SYSTEM_MAJOR {
        return Err(LibraryError::ApiVersion { path, found: version, wanted: format!("{SYSTEM_MAJOR}.x") });
    }
    // SAFETY: the entries named stand first in every table of this major version.
    let functions = unsafe { (*provider).functions };
    // SAFETY: they are the vendor's functions, and the library is never unloaded.
    let api = unsafe { SystemApi::new(functions) }
        .map_err(|function| LibraryError::FunctionMissing { path: path.clone(), function })?;
    std::mem::forget(file);
    Ok((api, path, version))
}
