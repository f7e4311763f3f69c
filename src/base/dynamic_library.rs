//! Vendor libraries that may be in one of several places: what was tried, and what the loader said of each.

use std::fmt;
use std::path::{Path, PathBuf};

/// One place that was tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// The path given to the loader.
    pub path: PathBuf,
    /// Why it was tried.
    pub origin: &'static str,
    /// The loader's words.
    pub error: String,
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The loader's words often begin with the path.
        let words = self.error.strip_prefix(&format!("{}: ", self.path.display())).unwrap_or(&self.error);
        write!(f, "{} ({}): {words}", self.path.display(), self.origin)
    }
}

/// Attempts in the order made, for messages.
pub fn list(attempts: &[Attempt]) -> String {
    attempts.iter().map(Attempt::to_string).collect::<Vec<_>>().join("; ")
}

/// A file to try, and why.
pub type Candidate = (PathBuf, &'static str);

/// The file that `path` names: itself, or `file` in the directory that it is.
pub fn named_file(path: PathBuf, file: &str) -> PathBuf {
    let is_file = path.is_file() || path.extension().is_some_and(|extension| extension == "so") && !path.is_dir();
    let file = if is_file { path } else { path.join(file) };
    // A name without a slash would be searched for by the loader.
    std::path::absolute(&file).unwrap_or(file)
}

/// Opens the first candidate that `load` can load, and says which; else what was tried.
pub fn open(
    candidates: Vec<Candidate>,
    load: impl Fn(&Path) -> Result<libloading::Library, libloading::Error>,
) -> Result<(libloading::Library, PathBuf), Vec<Attempt>> {
    let mut attempts = Vec::new();
    for (path, origin) in candidates {
        match load(&path) {
            Ok(library) => return Ok((library, path)),
            Err(error) => attempts.push(Attempt { path, origin, error: words(&error) }),
        }
    }
    Err(attempts)
}

/// The loader's own message, without libloading's frame.
pub fn words(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), |source| source.to_string())
}
