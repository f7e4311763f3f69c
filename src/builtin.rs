//! The one place that knows every kernel and backend of this build and wires them together.

use crate::error::{Error, Result, Status};
use crate::runtime::Module;
use std::path::{Path, PathBuf};

/// How a program is opened.
#[derive(Debug, Clone, Default)]
pub struct ProgramOptions {
    /// Where libQnnHtp.so and libQnnSystem.so are; searched first. `None`: the documented search order.
    pub qnn_lib_dir: Option<PathBuf>,
}

/// Opens the program at `path` with every kernel and backend of this build.
pub fn open_program(path: &Path, _options: &ProgramOptions) -> Result<Box<dyn Module>> {
    Err(Error::new(Status::NotSupported, format!("cannot open {}", path.display())))
}
