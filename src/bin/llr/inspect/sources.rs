//! Where `llr inspect` gets its facts: the program reader, and for QNN delegates the compile spec and libQnnSystem.so.

use super::report::Qnn;
use llama_runner::pte::{BackendDelegate, Program};
use llama_runner::{Error, Result, Status};
use std::path::Path;

/// The program at `path`.
pub fn program(path: &Path) -> Result<Program> {
    Err(Error::new(Status::NotSupported, format!("cannot open {}", path.display())))
}

/// What only a QNN delegate has; `None` for the delegates of other backends.
pub fn qnn(delegate: &BackendDelegate, _lib_dir: Option<&Path>) -> Option<Qnn> {
    (delegate.id == "QnnBackend").then(|| Qnn { options: Vec::new(), graphs: Ok(Vec::new()) })
}
