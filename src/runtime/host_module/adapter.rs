//! Host modules from a library of its own: a prebuilt adapter, such as `cpp-harness/executorch_module` makes of ExecuTorch,
//! found and loaded at run time and asked for a module of a program.
#![allow(unsafe_code)]

use super::calls::Host;
use super::error::HostError;
use super::table::{HostTable, OpenHostModule};
use crate::base::dynamic_library::{self, Candidate, named_file, words};
use crate::base::env;
use crate::error::Result;
use crate::log_info;
use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::Arc;

/// File name of ExecuTorch's adapter.
const FILE: &str = "libllr_module_executorch.so";
/// What an adapter exports, an [`OpenHostModule`]. The version is that of the function's parameters.
const SYMBOL: &str = "llr_module_open_v1";
const ADVICE: &str = "cpp-harness/executorch_module builds it (cmake -S cpp-harness/executorch_module -B build \
    -DEXECUTORCH_DIR=DIR), and LLR_MODULE_EXECUTORCH or the option module_library may name it";

/// Opens the program at `program`, with these external data files, in an adapter's runtime. The adapter is the library
/// at `library`, a file or its directory; else the one that the environment variable `LLR_MODULE_EXECUTORCH` names; else
/// libllr_module_executorch.so beside the running program, or where the loader finds it. A library that was named is the
/// only one tried. It stays loaded until the process ends, for what it registers cannot be taken back.
///
/// # Errors
/// [`HostError::AdapterMissing`], which says where it was looked for, [`HostError::NoAdapter`],
/// [`HostError::AdapterOpen`], and those of [`Host::new`].
pub fn open_adapter(library: Option<&Path>, program: &Path, data: &[PathBuf]) -> Result<Arc<Host>> {
    // SAFETY: running the initialisers of an adapter is what loading it means; the user or the loader's search path chose
    // the file.
    let load = |path: &Path| unsafe { libloading::Library::new(path) };
    let (adapter, path) = dynamic_library::open(candidates(library), load)
        .map_err(|attempts| HostError::AdapterMissing { attempts, advice: ADVICE })?;
    let path_text = || path.display().to_string();
    // SAFETY: the name with its version stands for this type.
    let open = unsafe { adapter.get::<OpenHostModule>(SYMBOL.as_bytes()) }
        .map(|symbol| *symbol)
        .map_err(|error| HostError::NoAdapter { path: path_text(), why: words(&error) })?;
    let program_text = c_path(program)?;
    let data = data.iter().map(|path| c_path(path)).collect::<Result<Vec<_>, _>>()?;
    let data_texts: Vec<_> = data.iter().map(|path| path.as_ptr()).collect();
    let (mut table, mut module) = (ptr::null::<HostTable>(), ptr::null_mut());
    // SAFETY: the function's contract; everything lives during the call.
    let number = unsafe { open(program_text.as_ptr(), data_texts.as_ptr(), data_texts.len(), &mut table, &mut module) };
    if number != 0 {
        let program = program.display().to_string();
        return Err(HostError::AdapterOpen { path: path_text(), program, number }.into());
    }
    // The table and its callbacks are the library's.
    std::mem::forget(adapter);
    log_info!("module adapter {}", path.display());
    // SAFETY: an adapter gives a table that does what it should, and the library stays.
    Ok(unsafe { Host::new(table, module) }?)
}

/// Where the adapter may be, best first.
fn candidates(library: Option<&Path>) -> Vec<Candidate> {
    let named = library.map(|path| (path.to_owned(), "given path"));
    if let Some((path, origin)) = named.or_else(|| env::module_executorch().map(|path| (path, env::MODULE_EXECUTORCH)))
    {
        return vec![(named_file(path, FILE), origin)];
    }
    let own = std::env::current_exe().ok();
    let own = own.as_deref().and_then(Path::parent).map(|dir| (dir.join(FILE), "beside this program"));
    own.into_iter().chain([(PathBuf::from(FILE), "search path of the loader")]).collect()
}

fn c_path(path: &Path) -> Result<CString, HostError> {
    let refuse = || HostError::Path(path.display().to_string());
    CString::new(path.to_str().ok_or_else(refuse)?).map_err(|_| refuse())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Status;

    fn refused(library: &Path) -> (Status, String) {
        let error = open_adapter(Some(library), Path::new("program.pte"), &[]).unwrap_err();
        (error.status(), error.chain())
    }

    #[test]
    fn a_missing_adapter_says_where_it_was_looked_for_and_how_it_is_built() {
        let dir = tempfile::tempdir().unwrap();
        for library in [dir.path().to_owned(), dir.path().join(FILE)] {
            let (status, text) = refused(&library);
            assert_eq!(status, Status::LibraryUnavailable);
            for words in [dir.path().join(FILE).to_str().unwrap(), "given path", "No such file", "cmake -S"] {
                assert!(text.contains(words), "{text}");
            }
        }
    }

    #[test]
    fn without_a_named_place_the_programs_comes_before_the_loaders() {
        let origins: Vec<_> = candidates(None).into_iter().map(|(_, origin)| origin).collect();
        if env::module_executorch().is_none() {
            assert_eq!(origins, ["beside this program", "search path of the loader"]);
        }
    }
}
