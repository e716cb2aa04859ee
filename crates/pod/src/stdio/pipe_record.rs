//! Record of the daemon's pipes, for the next daemon if this one is killed and cannot exit.
//!
//! FIFOs of containers are found by their names. Pipes of exec sessions are known only by their inode numbers. These
//! are in a small mapped file on the tmpfs of the state directory, so that a stored number persists whenever this
//! process dies.

use std::{
    fs::{self, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use syscall::shared_memory::SharedMemory;

use crate::{Error, error::failed};

const NAME: &str = "pipes";
/// Size of an inode number in bytes.
const WORD: usize = size_of::<u64>();
/// Number of pipes that are recorded at the same time; further ones are not recorded.
const PIPES_MAX: usize = 2048;

/// Record of the pipes of this daemon's exec sessions.
#[derive(Default)]
pub(crate) struct PipeRecord(Mutex<Option<Table>>);

struct Table {
    memory: SharedMemory,
    free: Vec<usize>,
}

impl PipeRecord {
    /// Creates an empty record, which replaces that of an earlier daemon. If that fails, for example on a full file
    /// system, neither record exists.
    pub(crate) fn create(state_dir: &Path) -> Result<Self, Error> {
        let path = state_dir.join(NAME);
        let new = path.with_extension("new");
        let memory = map(&new).and_then(|memory| fs::rename(&new, &path).map(|()| memory)).map_err(|error| {
            // The numbers of an earlier daemon would be taken for this one's.
            let _ = (fs::remove_file(&new), fs::remove_file(&path));
            failed(format!("create {}", path.display()))(error)
        })?;
        Ok(Self(Mutex::new(Some(Table { memory, free: (0..PIPES_MAX).rev().collect() }))))
    }

    /// Records a pipe until it is closed.
    pub(crate) fn add(self: &Arc<Self>, file: OwnedFd) -> PipeFile {
        let number = rustix::fs::fstat(&file).map(|status| status.st_ino);
        let slot = number.ok().and_then(|number| self.take(number));
        PipeFile { file, _entry: slot.map(|slot| Entry { record: Arc::clone(self), slot }) }
    }

    fn take(&self, number: u64) -> Option<usize> {
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let table = table.as_mut()?;
        let slot = table.free.pop()?;
        table.store(slot, number);
        Some(slot)
    }

    fn release(&self, slot: usize) {
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(table) = table.as_mut() {
            table.store(slot, 0);
            table.free.push(slot);
        }
    }
}

fn map(path: &Path) -> io::Result<SharedMemory> {
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o600).open(path)?;
    SharedMemory::map(file.into(), PIPES_MAX * WORD)
}

impl Table {
    fn store(&mut self, slot: usize, number: u64) {
        self.memory.bytes_mut()[slot * WORD..][..WORD].copy_from_slice(&number.to_ne_bytes());
    }
}

/// Returns the inode numbers in the record of the previous daemon; none without a record.
pub(crate) fn recorded(state_dir: &Path) -> Vec<u64> {
    let bytes = fs::read(state_dir.join(NAME)).unwrap_or_default();
    let words = bytes.chunks_exact(WORD).take(PIPES_MAX).filter_map(|word| word.try_into().ok());
    words.map(u64::from_ne_bytes).filter(|number| *number != 0).collect()
}

/// An end of a pipe with its entry in the record, which is removed after the pipe was closed.
pub(crate) struct PipeFile {
    file: OwnedFd,
    _entry: Option<Entry>,
}

struct Entry {
    record: Arc<PipeRecord>,
    slot: usize,
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.record.release(self.slot);
    }
}

impl PipeFile {
    pub(crate) fn into_file(self) -> OwnedFd {
        self.file
    }
}

impl From<OwnedFd> for PipeFile {
    /// Wraps a pipe that has a name, or needs no entry.
    fn from(file: OwnedFd) -> Self {
        Self { file, _entry: None }
    }
}

impl AsFd for PipeFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: [u64; 0] = [];

    fn number(file: impl AsFd) -> u64 {
        rustix::fs::fstat(file).expect("stat").st_ino
    }

    #[test]
    fn pipes_are_recorded_until_they_are_closed() {
        let dir = tempfile::tempdir().expect("a directory");
        assert_eq!(recorded(dir.path()), NONE);
        let record = Arc::new(PipeRecord::create(dir.path()).expect("created"));
        let (reader, writer) = std::io::pipe().expect("pipe");
        let (first, second) = (record.add(reader.into()), record.add(writer.into()));
        assert_eq!(recorded(dir.path()), [number(&first), number(&second)], "both ends have one inode");
        drop(first);
        assert_eq!(recorded(dir.path()), [number(&second)]);
        let _next = Arc::new(PipeRecord::create(dir.path()).expect("created"));
        assert_eq!(recorded(dir.path()), NONE, "the record of another daemon");
        drop(second);
    }

    #[test]
    fn a_record_that_cannot_be_created_leaves_nothing() {
        let dir = tempfile::tempdir().expect("a directory");
        fs::write(dir.path().join("pipes"), 7u64.to_ne_bytes()).expect("an earlier record");
        fs::create_dir(dir.path().join("pipes.new")).expect("a directory");
        assert!(PipeRecord::create(dir.path()).is_err());
        assert_eq!(recorded(dir.path()), NONE, "of an earlier daemon");
        fs::remove_dir(dir.path().join("pipes.new")).expect("removed");
        fs::create_dir(dir.path().join("pipes")).expect("a directory");
        assert!(PipeRecord::create(dir.path()).is_err(), "rename over a directory");
        assert!(!dir.path().join("pipes.new").exists());
    }

    #[test]
    fn pipes_beyond_the_capacity_are_not_recorded() {
        let dir = tempfile::tempdir().expect("a directory");
        let record = Arc::new(PipeRecord::create(dir.path()).expect("created"));
        let (reader, _writer) = std::io::pipe().expect("pipe");
        let reader = OwnedFd::from(reader);
        let copies: Vec<_> = (0..100).map(|_| reader.try_clone().expect("copy")).collect();
        let mut table = record.0.lock().expect("lock");
        table.as_mut().expect("a table").free.truncate(99);
        drop(table);
        let files: Vec<_> = copies.into_iter().map(|copy| record.add(copy)).collect();
        assert_eq!((recorded(dir.path()).len(), files.len()), (99, 100));
        drop(files);
        assert_eq!(recorded(dir.path()), NONE);
        assert_eq!(recorded(Path::new("/proc/nothing")), NONE);
    }
}
