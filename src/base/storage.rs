//! The bytes of a file, mapped or owned, and checked ranges of them that keep the whole alive.
#![allow(unsafe_code)]

use crate::error::{Error, Result, Status};
use std::fs::File;
use std::hash::{Hash, Hasher};
use std::ops::{Deref, Range};
use std::path::Path;
use std::sync::{Arc, Weak};

/// Bytes of one file.
pub enum Storage {
    /// Mapped read-only; pages come in as they are touched.
    Mapped(memmap2::Mmap),
    /// Held in memory.
    Owned(Vec<u8>),
}

impl std::fmt::Debug for Storage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Storage({} bytes)", self.len())
    }
}

impl Storage {
    /// Maps the file at `path`. Errors name the path: missing, a directory, a pipe or device, unreadable.
    pub fn map(path: &Path) -> Result<Arc<Self>> {
        let fail = |why: String| Error::new(Status::AccessFailed, format!("cannot read {}: {why}", path.display()));
        // Opening a pipe would wait for a writer, so the kind is looked at first.
        let meta = std::fs::metadata(path).map_err(|error| fail(error.to_string()))?;
        if meta.is_dir() {
            return Err(fail("it is a directory".into()));
        }
        if !meta.is_file() {
            return Err(fail("it is not a regular file".into()));
        }
        let file = File::open(path).map_err(|error| fail(error.to_string()))?;
        if file.metadata().map_err(|error| fail(error.to_string()))?.len() == 0 {
            return Ok(Arc::new(Self::Owned(Vec::new())));
        }
        // SAFETY: the map is private and read-only. A file that another process truncates while it is mapped is the
        // one hazard of mapping; the README asks hosts to replace model files by renaming, as this crate's own
        // writer does.
        let map = unsafe { memmap2::Mmap::map(&file) }.map_err(|error| fail(error.to_string()))?;
        Ok(Arc::new(Self::Mapped(map)))
    }

    /// Maps a range of an open file, which must be written already and not change afterwards.
    pub(crate) fn map_range(file: &File, range: Range<u64>) -> std::io::Result<Arc<Self>> {
        if range.is_empty() {
            return Ok(Arc::new(Self::Owned(Vec::new())));
        }
        let inside = file.metadata()?.len() >= range.end;
        let len = usize::try_from(range.end - range.start).ok().filter(|_| inside);
        let len = len.ok_or_else(|| std::io::Error::other(format!("bytes {range:?} are not in the file")))?;
        // SAFETY: as in `map`; the range was in the file just now, and the caller holds the file for its own use.
        let map = unsafe { memmap2::MmapOptions::new().offset(range.start).len(len).map(file) }?;
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

/// A range of a [`Storage`], checked when made. Blobs are equal when their bytes are; see also [`Blob::same_place`].
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
        self.place() == other.place()
    }

    /// Equal for blobs at the same place, different for all others that are alive.
    pub(crate) fn place(&self) -> (*const Storage, Range<usize>) {
        (Arc::as_ptr(&self.storage), self.range.clone())
    }

    /// The whole that it is a range of.
    pub(crate) fn storage(&self) -> &Arc<Storage> {
        &self.storage
    }

    /// As [`Blob::place`], and good for longer: it does not keep the bytes, yet no later blob is ever equal to it.
    pub(crate) fn lasting_place(&self) -> Place {
        Place { storage: Arc::downgrade(&self.storage), range: self.range.clone() }
    }

    /// Tells the system that these bytes, if they are a file's, will not be read soon: their pages leave memory and
    /// come back from the file when they are touched. Best effort, and costs nothing but time to those who read on.
    pub fn release(&self) {
        #[cfg(unix)]
        if let Storage::Mapped(map) = &*self.storage {
            let advice = memmap2::UncheckedAdvice::DontNeed;
            // SAFETY: the map is a read-only map of a file, so no page of it holds anything that the file does not; a
            // dropped page is read from the file again, and holds the same bytes.
            let advised = unsafe { map.unchecked_advise_range(advice, self.range.start, self.range.len()) };
            if let Err(error) = advised {
                crate::log_warning!("pages {:?} stay in memory: {error}", self.range);
            }
        }
    }

    /// The first `len` bytes, or all when there are fewer.
    pub fn head(&self, len: usize) -> Self {
        let end = self.range.start.saturating_add(len).min(self.range.end);
        Self { storage: Arc::clone(&self.storage), range: self.range.start..end }
    }

    /// All but the first `skip` bytes; `None` when there are fewer.
    pub fn tail(&self, skip: usize) -> Option<Self> {
        let start = self.range.start.checked_add(skip).filter(|&start| start <= self.range.end)?;
        Some(Self { storage: Arc::clone(&self.storage), range: start..self.range.end })
    }
}

/// Where a blob lies, without its bytes. A place is never taken again, even when its blobs are gone.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    storage: Weak<Storage>,
    range: Range<usize>,
}

impl PartialEq for Place {
    fn eq(&self, other: &Self) -> bool {
        self.storage.ptr_eq(&other.storage) && self.range == other.range
    }
}

impl Eq for Place {}

impl Hash for Place {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.storage.as_ptr(), &self.range).hash(state);
    }
}

impl Deref for Blob {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.storage[self.range.clone()]
    }
}

impl PartialEq for Blob {
    fn eq(&self, other: &Self) -> bool {
        self.same_place(other) || self[..] == other[..]
    }
}

impl Eq for Blob {}

impl std::fmt::Debug for Blob {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Blob({:?})", self.range)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned() -> Arc<Storage> {
        Arc::new(Storage::Owned(vec![1, 2, 3, 1, 2]))
    }

    #[test]
    fn range_outside_the_storage_is_refused() {
        let storage = owned();
        assert_eq!(Blob::new(&storage, 1..3).unwrap()[..], [2, 3]);
        assert!(Blob::new(&storage, 1..6).is_none());
        assert!(Blob::new(&storage, 6..6).is_none());
        #[allow(clippy::reversed_empty_ranges)]
        let reversed = 3..1;
        assert!(Blob::new(&storage, reversed).is_none());
    }

    #[test]
    fn equality_is_of_bytes_and_same_place_of_ranges() {
        let storage = owned();
        let [first, again] = [0..2, 3..5].map(|range| Blob::new(&storage, range).unwrap());
        assert_eq!(first, again);
        assert!(!first.same_place(&again) && first.same_place(&first.clone()));
        assert_ne!(first, Blob::new(&storage, 1..3).unwrap());
        assert!(!first.same_place(&Blob::new(&owned(), 0..2).unwrap()));
    }

    #[test]
    fn lasting_place_outlives_the_bytes_and_is_not_taken_again() {
        let blob = Blob::new(&owned(), 1..3).unwrap();
        let place = blob.lasting_place();
        assert_eq!(place, blob.clone().lasting_place());
        drop(blob);
        for _ in 0..100 {
            assert_ne!(place, Blob::new(&owned(), 1..3).unwrap().lasting_place());
        }
    }

    #[test]
    fn released_pages_come_back_from_the_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let bytes: Vec<u8> = (0..100_000u32).map(|i| (i % 251) as u8).collect();
        std::fs::write(file.path(), &bytes).unwrap();
        let storage = Storage::map(file.path()).unwrap();
        let blob = Blob::new(&storage, 5_000..90_000).unwrap();
        assert_eq!(blob[..], bytes[5_000..90_000]);
        blob.release();
        Blob::new(&storage, 100_000..100_000).unwrap().release();
        Blob::from_vec(vec![1]).release();
        assert_eq!(storage[..], bytes);
    }

    #[test]
    fn head_and_tail_stay_inside() {
        let blob = Blob::new(&owned(), 1..4).unwrap();
        assert_eq!(blob.head(2)[..], [2, 3]);
        assert_eq!(blob.head(usize::MAX)[..], [2, 3, 1]);
        assert_eq!(blob.tail(2).unwrap()[..], [1]);
        assert!(blob.tail(3).unwrap().is_empty());
        assert!(blob.tail(4).is_none() && blob.tail(usize::MAX).is_none());
    }

    #[cfg(unix)]
    #[test]
    fn a_device_or_pipe_is_refused_without_waiting_for_it() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe.pte");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        for path in [&pipe, Path::new("/dev/zero")] {
            let error = Storage::map(path).err().unwrap();
            assert_eq!(error.status(), Status::AccessFailed);
            assert!(error.to_string().contains("not a regular file"), "{error}");
        }
    }

    #[test]
    fn missing_file_and_directory_are_told_apart_and_an_empty_file_has_no_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let empty = dir.path().join("empty.pte");
        std::fs::write(&empty, b"").unwrap();
        assert!(Storage::map(&empty).unwrap().is_empty());
        for (path, part) in [(dir.path(), "it is a directory"), (&dir.path().join("no"), "No such file")] {
            let error = Storage::map(path).err().unwrap();
            assert_eq!(error.status(), Status::AccessFailed);
            let text = error.to_string();
            assert!(text.contains(part) && text.contains(&path.display().to_string()), "{text}");
        }
    }
}
