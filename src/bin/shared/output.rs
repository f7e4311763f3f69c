//! Files that grow while the model talks: the text and the raw logits. Each piece is in the file before the next one is
//! made.

use llama_runner::{Error, Result, Status};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

/// A file that is opened early, to learn whether it can be written, and emptied late, so that a failing load loses nothing.
pub struct OutputFile {
    path: PathBuf,
    file: File,
}

impl OutputFile {
    /// Opens or makes the file at `path`; what it holds stays until [`begin`](Self::begin).
    pub fn open(path: &Path) -> Result<Self> {
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path);
        Ok(Self { path: path.to_owned(), file: file.map_err(|error| failure(path, &error))? })
    }

    /// Empties it.
    pub fn begin(&mut self) -> Result<()> {
        let empty = |file: &File| match file.metadata()?.is_file() {
            true => file.set_len(0),
            // A pipe or a terminal cannot be emptied and need not be.
            false => Ok(()),
        };
        empty(&self.file).map_err(|error| failure(&self.path, &error))
    }

    /// Appends `bytes`; no buffer is in between.
    pub fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_all(bytes).map_err(|error| failure(&self.path, &error))
    }
}

/// Replaces the whole file at `path`.
pub fn replace(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).map_err(|error| failure(path, &error))
}

/// Refuses outputs that are inputs too: a program is mapped into memory, and emptying it would pull that away.
pub fn refuse_inputs<'a>(
    inputs: impl IntoIterator<Item = &'a Path>,
    outputs: impl IntoIterator<Item = &'a Path>,
) -> Result<()> {
    let place = |path: &Path| path.canonicalize().ok();
    let inputs: Vec<PathBuf> = inputs.into_iter().filter_map(place).collect();
    match outputs.into_iter().find(|path| place(path).is_some_and(|place| inputs.contains(&place))) {
        Some(path) => {
            let why = format!("{} is to be read and cannot be written to", path.display());
            Err(Error::new(Status::InvalidArgument, why))
        }
        None => Ok(()),
    }
}

fn failure(path: &Path, error: &std::io::Error) -> Error {
    Error::new(Status::AccessFailed, format!("cannot write {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_text_stays_until_begin() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out.txt");
        std::fs::write(&path, "old and long").unwrap();
        let mut output = OutputFile::open(&path).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"old and long");
        output.begin().unwrap();
        output.append(b"ne").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"ne", "written at once");
        output.append(&[0xff]).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"ne\xff");
    }

    #[test]
    fn a_path_that_cannot_be_written_is_named() {
        let dir = tempfile::tempdir().unwrap();
        for path in [dir.path().to_owned(), dir.path().join("missing/out.txt")] {
            let error = OutputFile::open(&path).err().unwrap();
            assert_eq!(error.status(), Status::AccessFailed);
            assert!(error.chain().contains(&path.display().to_string()));
        }
    }
}
