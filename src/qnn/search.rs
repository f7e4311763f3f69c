//! Where libQnnHtp.so and libQnnSystem.so are looked for, and what is said when they are not there.

use super::cstd;
use super::library::LibraryError;
use super::lock::QnnLock;
use super::stdout;
use crate::base::dynamic_library::{self, Candidate, named_file};
use crate::base::env;
use std::path::{Path, PathBuf};

pub(super) const BACKEND_FILE: &str = "libQnnHtp.so";
pub(super) const SYSTEM_FILE: &str = "libQnnSystem.so";

/// Where to look and what to insist on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LibraryOptions {
    /// The directory of the libraries, or libQnnHtp.so itself. When given, nothing else is tried.
    pub path: Option<PathBuf>,
    /// Refuse a library whose build id does not start so (`v2.49.40`).
    pub expected_build_id: Option<String>,
}

/// Where libQnnHtp.so may be, best first.
pub(super) fn backend_candidates(options: &LibraryOptions) -> Result<Vec<Candidate>, LibraryError> {
    let named = match &options.path {
        Some(path) if path.as_os_str().is_empty() => return Err(LibraryError::EmptyPath),
        Some(path) => Some((path.clone(), "given path")),
        None => env::qnn_lib_dir().map(|dir| (dir, env::QNN_LIB_DIR)),
    };
    if let Some((path, origin)) = named {
        return Ok(vec![(named_file(path, BACKEND_FILE), origin)]);
    }
    let own = cstd::file_of((backend_candidates as *const ()).cast());
    let own = own.as_deref().and_then(Path::parent).map(|dir| (dir.join(BACKEND_FILE), "beside this library"));
    Ok(own.into_iter().chain([(PathBuf::from(BACKEND_FILE), "search path of the loader")]).collect())
}

/// Where libQnnSystem.so may be when libQnnHtp.so is `backend`.
pub(super) fn system_candidates(backend: &Path) -> Vec<Candidate> {
    let beside = backend.parent().map(|dir| (dir.join(SYSTEM_FILE), "beside libQnnHtp.so"));
    beside.into_iter().chain([(PathBuf::from(SYSTEM_FILE), "search path of the loader")]).collect()
}

/// Loads the first candidate that can be, and says which.
pub(super) fn open(
    lock: &QnnLock,
    file: &'static str,
    candidates: Vec<Candidate>,
) -> Result<(libloading::Library, PathBuf), LibraryError> {
    // SAFETY: running the initialisers of a vendor's library is what loading it means; the user or the system's search
    // path chose the file.
    let load = |path: &Path| stdout::on_stderr(lock, || unsafe { libloading::Library::new(path) });
    dynamic_library::open(candidates, load).map_err(|attempts| LibraryError::NotLoaded { file, attempts })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load_error(path: &Path) -> (LibraryError, String) {
        let options = LibraryOptions { path: Some(path.to_path_buf()), ..LibraryOptions::default() };
        let error = super::super::QnnLibrary::load(&options).unwrap_err();
        let text = error.to_string();
        (error, text)
    }

    #[test]
    fn o6_an_empty_path_is_refused() {
        assert_eq!(load_error(Path::new("")).0, LibraryError::EmptyPath);
    }

    #[test]
    fn o6_what_is_no_library_is_refused_in_the_loaders_words() {
        let dir = tempfile::tempdir().unwrap();
        let text_file = dir.path().join("libQnnHtp.so");
        // Long enough that the loader looks at the header.
        std::fs::write(&text_file, "not a library ".repeat(100)).unwrap();
        let missing = dir.path().join("nowhere");
        let empty_dir = tempfile::tempdir().unwrap();
        for (path, place, words) in [
            (text_file.as_path(), text_file.clone(), "invalid ELF header"),
            (dir.path(), text_file.clone(), "invalid ELF header"),
            (empty_dir.path(), empty_dir.path().join("libQnnHtp.so"), "No such file"),
            (missing.as_path(), missing.join("libQnnHtp.so"), "No such file"),
        ] {
            let (error, text) = load_error(path);
            assert!(matches!(error, LibraryError::NotLoaded { .. }), "{text}");
            assert!(text.contains(&place.display().to_string()) && text.contains(words), "{text}");
            assert!(text.contains("given path"), "{text}");
        }
    }

    #[test]
    fn without_a_named_place_ours_comes_before_the_loaders() {
        if env::qnn_lib_dir().is_none() {
            let candidates = backend_candidates(&LibraryOptions::default()).unwrap();
            let origins: Vec<_> = candidates.iter().map(|(_, origin)| *origin).collect();
            assert_eq!(origins, ["beside this library", "search path of the loader"]);
        }
        let system = system_candidates(Path::new("/qnn/libQnnHtp.so"));
        assert_eq!(system[0].0, Path::new("/qnn/libQnnSystem.so"));
        assert_eq!(system[1].0, Path::new("libQnnSystem.so"));
    }
}
