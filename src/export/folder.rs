//! The folder of an export's output: made where it is not there, gone again if it was made for nothing.

use crate::error::{Error, Result, Status};
use crate::pte::is_program;
use std::path::{Path, PathBuf};

/// An output that is there already may be replaced if it is a program, and nothing else: a checkpoint or a device that was
/// named by mistake must stay.
fn check_output(output: &Path) -> Result<()> {
    let Ok(known) = std::fs::metadata(output) else { return Ok(()) };
    let why = match known.is_file() {
        _ if known.is_dir() => "is a folder",
        false => "is no regular file",
        true if known.len() == 0 || is_program(output) => return Ok(()),
        true => "is there already and is no program (.pte); remove it, or name another",
    };
    Err(Error::new(Status::InvalidArgument, format!("the output {} {why}", output.display())))
}

/// The folder of the output, which goes again if it was made for nothing.
pub(super) struct Folder {
    pub path: PathBuf,
    /// Folders that were not there before, the innermost first.
    made: Vec<PathBuf>,
}

impl Folder {
    /// Makes it where it is not there.
    pub fn of(output: &Path) -> Result<Self> {
        check_output(output)?;
        let path = match output.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
            _ => PathBuf::from("."),
        };
        let missing = path.ancestors().take_while(|folder| !folder.as_os_str().is_empty() && !folder.exists());
        let folder = Self { made: missing.map(Path::to_owned).collect(), path: path.clone() };
        std::fs::create_dir_all(&path).map_err(|error| {
            Error::new(Status::AccessFailed, format!("cannot make the folder {}: {error}", path.display()))
        })?;
        Ok(folder)
    }

    /// There is something in it now.
    pub fn keep(mut self) {
        self.made.clear();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // One that others have put something into stays, as it should.
        self.made.iter().for_each(|folder| _ = std::fs::remove_dir(folder));
    }
}
