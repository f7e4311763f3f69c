//! Where big results of an export go instead of memory: one temporary file, written once and read through maps.

use crate::base::storage::{Blob, Storage};
use crate::error::{Error, Result, Status};
use parking_lot::Mutex;
use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Blobs begin at multiples of this, so that any element type can be read in place.
const ALIGNMENT: u64 = 64;

/// What can go wrong with a scratch file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScratchError {
    /// The folder takes no new file.
    #[error("cannot make a temporary file in {}", folder.display())]
    Create {
        /// The folder.
        folder: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// No space is left for it.
    #[error("no space is left in {} for {bytes} more bytes of temporary data", folder.display())]
    Full {
        /// The folder.
        folder: PathBuf,
        /// Bytes of the blob that was being written.
        bytes: u64,
        /// What the operating system said.
        source: io::Error,
    },
    /// Any other failure to write or map it.
    #[error("cannot use the temporary file in {}", folder.display())]
    Access {
        /// The folder.
        folder: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// A writer was given fewer or more bytes than it was made for.
    #[error("{written} bytes were written to a temporary blob of {bytes}")]
    Length {
        /// Bytes given.
        written: u64,
        /// Bytes announced.
        bytes: u64,
    },
}

impl From<ScratchError> for Error {
    fn from(error: ScratchError) -> Self {
        let status = match &error {
            ScratchError::Full { .. } => Status::OutOfResources,
            ScratchError::Create { .. } | ScratchError::Access { .. } => Status::AccessFailed,
            ScratchError::Length { .. } => Status::Internal,
        };
        Error::from_source(status, error)
    }
}

/// A temporary file without a name: it is gone when the scratch and all of its blobs are.
///
/// Its blobs are maps of it, so they take memory only while they are read; [`Blob::release`] gives that back at once.
#[derive(Debug)]
pub struct Scratch {
    folder: PathBuf,
    file: Mutex<Reserved>,
}

#[derive(Debug)]
struct Reserved {
    file: File,
    end: u64,
}

impl Scratch {
    /// Makes the file in `folder`, which should be on a disk with room for the model's weights in f32.
    ///
    /// # Errors
    /// [`ScratchError::Create`] as [`AccessFailed`](Status::AccessFailed).
    pub fn new(folder: &Path) -> Result<Self> {
        let file = unnamed(folder).map_err(|source| ScratchError::Create { folder: folder.into(), source })?;
        Ok(Self::over(file, folder))
    }

    fn over(file: File, folder: &Path) -> Self {
        Self { folder: folder.into(), file: Mutex::new(Reserved { file, end: 0 }) }
    }

    /// Writes `bytes` and gives them back as a blob.
    ///
    /// # Errors
    /// [`ScratchError::Full`] as [`OutOfResources`](Status::OutOfResources), [`ScratchError::Access`] as
    /// [`AccessFailed`](Status::AccessFailed).
    pub fn append(&self, bytes: &[u8]) -> Result<Blob> {
        let mut writer = self.writer(bytes.len());
        writer.write(bytes)?;
        writer.finish()
    }

    /// A blob of `bytes` bytes that is written piece by piece. Writers may be used side by side.
    pub fn writer(&self, bytes: usize) -> ScratchWriter<'_> {
        let mut reserved = self.file.lock();
        let start = reserved.end.next_multiple_of(ALIGNMENT);
        reserved.end = start + bytes as u64;
        ScratchWriter { scratch: self, start, bytes: bytes as u64, written: 0 }
    }

    fn fail(&self, source: io::Error, bytes: u64) -> ScratchError {
        let folder = self.folder.clone();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                ScratchError::Full { folder, bytes, source }
            }
            _ => ScratchError::Access { folder, source },
        }
    }
}

/// Writes one blob of a [`Scratch`], front to back.
#[derive(Debug)]
pub struct ScratchWriter<'a> {
    scratch: &'a Scratch,
    start: u64,
    bytes: u64,
    written: u64,
}

impl ScratchWriter<'_> {
    /// Writes the next bytes: large pieces are best, for each is one call of the operating system.
    ///
    /// # Errors
    /// As [`Scratch::append`], and [`ScratchError::Length`] for more bytes than announced.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let written = self.written + bytes.len() as u64;
        if written > self.bytes {
            return Err(ScratchError::Length { written, bytes: self.bytes }.into());
        }
        let file = &mut self.scratch.file.lock().file;
        let at = SeekFrom::Start(self.start + self.written);
        file.seek(at).and_then(|_| file.write_all(bytes)).map_err(|error| self.scratch.fail(error, self.bytes))?;
        self.written = written;
        Ok(())
    }

    /// The blob, when all of its bytes are written.
    ///
    /// # Errors
    /// [`ScratchError::Length`] for fewer bytes than announced, [`ScratchError::Access`] when it cannot be mapped.
    pub fn finish(self) -> Result<Blob> {
        if self.written != self.bytes {
            return Err(ScratchError::Length { written: self.written, bytes: self.bytes }.into());
        }
        let range = self.start..self.start + self.bytes;
        let storage = Storage::map_range(&self.scratch.file.lock().file, range);
        let storage = storage.map_err(|error| self.scratch.fail(error, self.bytes))?;
        Blob::new(&storage, 0..storage.len()).ok_or_else(|| Error::new(Status::Internal, "a blob outside its map"))
    }
}

/// A new file in `folder` that has no name any more.
fn unnamed(folder: &Path) -> io::Result<File> {
    let mut number = std::process::id();
    loop {
        let path = folder.join(format!(".llr-scratch-{number:08x}"));
        match OpenOptions::new().read(true).write(true).create_new(true).open(&path) {
            Ok(file) => return std::fs::remove_file(&path).map(|()| file),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number = number.wrapping_add(0x9e37_79b1),
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blobs_are_what_was_written_aligned_and_the_folder_stays_empty() {
        let folder = tempfile::tempdir().unwrap();
        let scratch = Scratch::new(folder.path()).unwrap();
        let first = scratch.append(&[1, 2, 3]).unwrap();
        let (mut a, mut b) = (scratch.writer(5000), scratch.writer(2));
        a.write(&[4; 4000]).unwrap();
        b.write(&[5, 6]).unwrap();
        a.write(&[7; 1000]).unwrap();
        let (a, b, empty) = (a.finish().unwrap(), b.finish().unwrap(), scratch.append(&[]).unwrap());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        drop(scratch);
        assert_eq!((&first[..], &b[..], empty.len()), (&[1, 2, 3][..], &[5, 6][..], 0));
        assert!(a[..4000].iter().all(|&x| x == 4) && a[4000..] == [7; 1000]);
        for blob in [&first, &a, &b] {
            assert_eq!(blob.as_ptr().addr() % ALIGNMENT as usize, 0);
        }
    }

    #[test]
    fn released_pages_come_back_from_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let blob = Scratch::new(folder.path()).unwrap().append(&[9; 100_000]).unwrap();
        blob.release();
        assert!(blob.iter().all(|&x| x == 9));
    }

    #[test]
    fn writer_with_too_few_or_too_many_bytes_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let scratch = Scratch::new(folder.path()).unwrap();
        let length = |error: Error| match error.find::<ScratchError>() {
            Some(ScratchError::Length { written, bytes }) => (*written, *bytes),
            other => panic!("{other:?}"),
        };
        let mut writer = scratch.writer(4);
        assert_eq!(length(writer.write(&[0; 5]).unwrap_err()), (5, 4));
        writer.write(&[0; 3]).unwrap();
        assert_eq!(length(writer.finish().unwrap_err()), (3, 4));
    }

    #[test]
    fn folder_that_is_missing_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let error = Scratch::new(&folder.path().join("missing")).unwrap_err();
        assert_eq!(error.status(), Status::AccessFailed);
        assert!(error.chain().contains("missing"), "{error:?}");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn full_disk_is_a_typed_error() {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let error = Scratch::over(full, Path::new("/dev")).append(&[0; 8]).unwrap_err();
        assert!(matches!(error.find(), Some(ScratchError::Full { bytes: 8, .. })), "{error:?}");
        assert_eq!(error.status(), Status::OutOfResources);
    }
}
