//! libcdsprpc.so, which hands out memory that the CPU and the DSP both see: found and loaded at run time.
#![allow(unsafe_code)]

use crate::base::dynamic_library::{self, Attempt, Candidate, list, named_file, words};
use crate::base::env;
use crate::error::{Error, Status};
use crate::log_info;
use std::ffi::c_void;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::Arc;

const FILE: &str = "libcdsprpc.so";
/// Where Android keeps it, if the loader's own search path does not lead there.
const ANDROID: &str = "/vendor/lib64/libcdsprpc.so";

/// The heap and the flags of `rpcmem_alloc` that QNN's documentation of shared buffers and ExecuTorch use.
const HEAP_SYSTEM: i32 = 25;
const DEFAULT_FLAGS: u32 = 1;

/// Why there is no shared memory.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // The messages say what the fields are.
pub enum RpcMemError {
    #[error("{FILE} cannot be loaded; tried {}", list(attempts))]
    NotLoaded { attempts: Vec<Attempt> },
    #[error("the path of {FILE} is empty")]
    EmptyPath,
    #[error("{} lacks the function {function}: {why}", path.display())]
    FunctionMissing { path: PathBuf, function: &'static str, why: String },
    #[error("{bytes} bytes are more than rpcmem_alloc can be asked for ({})", i32::MAX)]
    TooLarge { bytes: usize },
    #[error("rpcmem_alloc of {} gave no memory for {bytes} bytes", path.display())]
    NoMemory { path: PathBuf, bytes: usize },
    #[error("rpcmem_to_fd of {} gave {fd} for a block of {bytes} bytes", path.display())]
    NoDescriptor { path: PathBuf, fd: i32, bytes: usize },
}

impl From<RpcMemError> for Error {
    fn from(error: RpcMemError) -> Self {
        let status = match error {
            RpcMemError::NotLoaded { .. } | RpcMemError::EmptyPath | RpcMemError::FunctionMissing { .. } => {
                Status::LibraryUnavailable
            }
            RpcMemError::TooLarge { .. } | RpcMemError::NoMemory { .. } => Status::MemoryAllocationFailed,
            RpcMemError::NoDescriptor { .. } => Status::OutOfResources,
        };
        Self::from_source(status, error)
    }
}

type Alloc = unsafe extern "C" fn(heap: i32, flags: u32, size: i32) -> *mut c_void;
type Free = unsafe extern "C" fn(block: *mut c_void);
type ToFd = unsafe extern "C" fn(block: *mut c_void) -> i32;

/// The loaded library. It stays loaded until the process ends, as QNN's libraries do, which use it themselves.
#[derive(Debug)]
pub struct RpcMem {
    path: PathBuf,
    alloc: Alloc,
    free: Free,
    to_fd: ToFd,
}

/// A block of the library's memory, with its descriptor.
pub(super) struct RpcBlock {
    pub(super) base: NonNull<u8>,
    pub(super) fd: i32,
}

impl RpcMem {
    /// Finds and loads the library. Searched are, in this order: `path`, the library itself or its directory; what the
    /// environment variable `LLR_RPCMEM_LIB` names, likewise; the loader's own search path; Android's vendor directory.
    /// A path that was named (the first two) is the only one tried.
    pub fn load(path: Option<&Path>) -> Result<Arc<Self>, RpcMemError> {
        // SAFETY: running the initialisers of a vendor's library is what loading it means; the user or the system's
        // search path chose the file.
        let load = |path: &Path| unsafe { libloading::Library::new(path) };
        let (library, path) =
            dynamic_library::open(candidates(path)?, load).map_err(|attempts| RpcMemError::NotLoaded { attempts })?;
        let missing = |function, error: &libloading::Error| RpcMemError::FunctionMissing {
            path: path.clone(),
            function,
            why: words(error),
        };
        // SAFETY: this is the function's type in Qualcomm's rpcmem.h; the library is never unloaded.
        let alloc = *unsafe { library.get::<Alloc>(c"rpcmem_alloc") }.map_err(|e| missing("rpcmem_alloc", &e))?;
        // SAFETY: as above.
        let free = *unsafe { library.get::<Free>(c"rpcmem_free") }.map_err(|e| missing("rpcmem_free", &e))?;
        // SAFETY: as above.
        let to_fd = *unsafe { library.get::<ToFd>(c"rpcmem_to_fd") }.map_err(|e| missing("rpcmem_to_fd", &e))?;
        std::mem::forget(library);
        log_info!("shared memory: {}", path.display());
        Ok(Arc::new(Self { path, alloc, free, to_fd }))
    }

    /// The file that was loaded.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A block of `bytes` bytes of any content, at whatever address the library likes.
    pub(super) fn alloc(&self, bytes: usize) -> Result<RpcBlock, RpcMemError> {
        let size = i32::try_from(bytes).map_err(|_| RpcMemError::TooLarge { bytes })?;
        // SAFETY: the function takes any heap, flags and size.
        let base = unsafe { (self.alloc)(HEAP_SYSTEM, DEFAULT_FLAGS, size) };
        let path = || self.path.clone();
        let base = NonNull::new(base.cast::<u8>()).ok_or_else(|| RpcMemError::NoMemory { path: path(), bytes })?;
        // SAFETY: the block is the library's own and live.
        let fd = unsafe { (self.to_fd)(base.as_ptr().cast()) };
        if fd < 0 {
            // SAFETY: nobody else knows the block.
            unsafe { self.free(base) };
            return Err(RpcMemError::NoDescriptor { path: path(), fd, bytes });
        }
        Ok(RpcBlock { base, fd })
    }

    /// # Safety
    /// `base` must come from `alloc` of this library, be used by nobody, and not be freed again.
    pub(super) unsafe fn free(&self, base: NonNull<u8>) {
        // SAFETY: as the caller says.
        unsafe { (self.free)(base.as_ptr().cast()) }
    }
}

fn candidates(path: Option<&Path>) -> Result<Vec<Candidate>, RpcMemError> {
    let named = match path {
        Some(path) if path.as_os_str().is_empty() => return Err(RpcMemError::EmptyPath),
        Some(path) => Some((path.to_path_buf(), "given path")),
        None => env::rpcmem_lib().map(|path| (path, env::RPCMEM_LIB)),
    };
    Ok(match named {
        Some((path, origin)) => vec![(named_file(path, FILE), origin)],
        None => vec![(FILE.into(), "search path of the loader"), (ANDROID.into(), "vendor directory of Android")],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(path: &Path) -> (RpcMemError, String) {
        let error = RpcMem::load(Some(path)).unwrap_err();
        let text = error.to_string();
        (error, text)
    }

    #[test]
    fn an_absent_library_is_refused_with_the_places_tried() {
        assert_eq!(refusal(Path::new("")).0, RpcMemError::EmptyPath);
        let dir = tempfile::tempdir().unwrap();
        let (error, text) = refusal(dir.path());
        assert!(matches!(error, RpcMemError::NotLoaded { .. }));
        assert!(text.contains(&dir.path().join(FILE).display().to_string()), "{text}");
        assert!(text.contains("given path") && text.contains("No such file"), "{text}");
        assert_eq!(Error::from(error).status(), Status::LibraryUnavailable);
    }

    #[test]
    fn without_a_named_place_the_loader_and_the_vendor_directory_are_tried() {
        if env::rpcmem_lib().is_none() {
            let origins: Vec<_> = candidates(None).unwrap().into_iter().map(|(_, origin)| origin).collect();
            assert_eq!(origins, ["search path of the loader", "vendor directory of Android"]);
        }
    }
}
