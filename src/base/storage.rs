//! The bytes of a file, mapped or owned, and checked ranges of them that keep the whole alive.
#![allow(unsafe_code)]

use crate::error::{Error, Result, Status};
use std::fs::File;
use std::ops::{Deref, Range};
use std::path::Path;
use std::sync::Arc;

/// Bytes of one file.
pub enum Storage {
    /// Mapped read-only; pages come in as they are touched.
    Mapped(memmap2::Mmap),
    /// Held in memory.
    Owned(Vec<u8>),
}

impl Storage {
    /// Maps the file at `path`. Errors name the path: missing, a directory, empty, unreadable.
    pub fn map(path: &Path) -> Result<Arc<Self>> {
        let fail = |why: String| Error::new(Status::AccessFailed, format!("cannot read {}: {why}", path.display()));
        let file = File::open(path).map_err(|error| fail(error.to_string()))?;
        let meta = file.metadata().map_err(|error| fail(error.to_string()))?;
        if meta.is_dir() {
            return Err(fail("it is a directory".into()));
        }
        if !meta.is_file() || meta.len() == 0 {
            return Err(fail("it is empty".into()));
        }
        // SAFETY: the map is private and read-only. A file that another process truncates while it is mapped is the
        // one hazard of mapping; the README asks hosts to replace model files by renaming, as this crate's own
        // writer does.
        let map = unsafe { memmap2::Mmap::map(&file) }.map_err(|error| fail(error.to_string()))?;
        Ok(Arc::new(Self::Mapped(map)))
    }
}

impl Deref for Storage {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Self::Mapped(map) => map,
            Self::Owned(bytes) => bytes,
        }
    }
}

/// A range of a [`Storage`], checked when made.
#[derive(Clone)]
pub struct Blob {
    storage: Arc<Storage>,
    range: Range<usize>,
}

impl Blob {
    /// `None` when `range` does not lie inside `storage`.
    pub fn new(storage: &Arc<Storage>, range: Range<usize>) -> Option<Self> {
        storage.get(range.clone())?;
        Some(Self { storage: Arc::clone(storage), range })
    }

    /// A blob of its own.
    pub fn from_vec(bytes: Vec<u8>) -> Self {
        let range = 0..bytes.len();
        Self { storage: Arc::new(Storage::Owned(bytes)), range }
    }

    /// Where it lies in its file, for messages and for telling that two blobs are the same bytes.
    pub fn range(&self) -> Range<usize> {
        self.range.clone()
    }

    /// True when both are the same range of the same file.
    pub fn same_place(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.storage, &other.storage) && self.range == other.range
    }
}

impl Deref for Blob {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.storage[self.range.clone()]
    }
}

impl std::fmt::Debug for Blob {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Blob({:?})", self.range)
    }
}
