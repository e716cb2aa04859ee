//! Journal files in the state directory: one of each running log writer, and those with a batch that dead log writers
//! left over.
//!
//! A log writer creates a new journal. It never writes into a leftover one before its batch is recovered, which needs
//! the descriptors of the container (`Adopt`). A leftover journal is removed when its batch was recovered.

use std::{io, thread, time::Duration};

use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{AtFlags, Dir, FlockOperation, Mode, OFlags, flock, openat, unlinkat},
    io::Errno,
};

use crate::log::journal::{Entry, Journal};

const PREFIX: &str = "journal-";
/// Total number of attempts to lock the journals of log writers that were just killed and may still be exiting. A
/// writer that hangs takes longer, and does not change its journal any longer.
const LOCK_ATTEMPTS: u32 = 20;
const LOCK_RETRY: Duration = Duration::from_millis(1);

/// Journal left over by a dead log writer.
struct LeftoverJournal {
    name: String,
    entry: Entry,
}

/// The journals in the state directory.
pub(crate) struct Journals {
    state: OwnedFd,
    leftovers: Vec<LeftoverJournal>,
    next: u64,
}

impl Journals {
    /// Scans the journals left over by an earlier monitor, or by the previous program of this one. None of their log
    /// writers may be running.
    pub(crate) fn open(state: OwnedFd) -> io::Result<Self> {
        let mut journals = Self { state, leftovers: Vec::new(), next: 0 };
        names(journals.state.as_fd())?;
        journals.scan();
        Ok(journals)
    }

    /// Reads all journals. All log writers must be dead, or killed and about to exit.
    pub(crate) fn scan(&mut self) {
        let mut lock_attempts = LOCK_ATTEMPTS;
        self.leftovers.clear();
        let names = names(self.state.as_fd()).unwrap_or_else(|errno| {
            eprintln!("pinmon: list journals: {errno}");
            Vec::new()
        });
        for name in names {
            let number = name[PREFIX.len()..].parse().map_or(0, |number: u64| number + 1);
            self.next = self.next.max(number);
            self.inspect(&name, &mut lock_attempts);
        }
    }

    /// Returns an unused name.
    pub(crate) fn next_name(&mut self) -> String {
        self.next += 1;
        format!("{PREFIX}{}", self.next - 1)
    }

    /// Returns the state directory.
    pub(crate) fn state(&self) -> &OwnedFd {
        &self.state
    }

    /// Removes the journal of a dead log writer, or keeps it for [`Journals::take`] if it has a batch.
    pub(crate) fn retire(&mut self, name: &str) {
        self.inspect(name, &mut 0);
    }

    /// Returns the log file system of a leftover batch of this container.
    pub(crate) fn device_of(&self, container: &str) -> Option<Option<u64>> {
        let leftover = self.leftovers.iter().find(|leftover| leftover.entry.container == container)?;
        Some(leftover.entry.log.map(|log| log.device))
    }

    /// Takes the names of the journals with a batch of this container.
    pub(crate) fn take(&mut self, container: &str) -> Vec<String> {
        let (matching, leftovers) =
            std::mem::take(&mut self.leftovers).into_iter().partition(|leftover| leftover.entry.container == container);
        self.leftovers = leftovers;
        matching.into_iter().map(|leftover: LeftoverJournal| leftover.name).collect()
    }

    /// Removes recovered journals. If `failed`, those with a batch are kept until the container is deleted.
    pub(crate) fn recovered(&mut self, container: &str, names: Vec<String>, failed: bool) {
        for name in names {
            match failed {
                true => self.retire(&name),
                false => self.unlink(&name),
            }
        }
        if failed {
            eprintln!("pinmon: recover output of container {container}: the last batch may be lost or repeated");
        }
    }

    /// Removes the journals of a deleted container.
    pub(crate) fn forget(&mut self, container: &str) {
        for name in self.take(container) {
            self.unlink(&name);
        }
    }

    /// Creates an idle journal for programs without log writers, which continue with the journal that the state names.
    pub(crate) fn placeholder(&mut self) -> String {
        let name = self.next_name();
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        // Programs with log writers do not need it.
        let _ = openat(&self.state, &name, flags, Mode::RUSR | Mode::WUSR);
        name
    }

    fn inspect(&mut self, name: &str, lock_attempts: &mut u32) {
        match self.read(name, lock_attempts) {
            Ok(Some(entry)) => self.leftovers.push(LeftoverJournal { name: name.to_owned(), entry }),
            Ok(None) => self.unlink(name),
            // The journal was in memory only.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => eprintln!("pinmon: read {name}: {error}; kept"),
        }
    }

    fn read(&self, name: &str, lock_attempts: &mut u32) -> io::Result<Option<Entry>> {
        let file = openat(&self.state, name, OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::empty())?;
        while let Err(Errno::WOULDBLOCK) = flock(&file, FlockOperation::NonBlockingLockExclusive)
            && *lock_attempts > 0
        {
            *lock_attempts -= 1;
            thread::sleep(LOCK_RETRY);
        }
        Journal::inspect(&file)
    }

    fn unlink(&self, name: &str) {
        match unlinkat(&self.state, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => eprintln!("pinmon: remove {name}: {errno}"),
        }
    }
}

fn names(state: BorrowedFd<'_>) -> Result<Vec<String>, Errno> {
    let mut names = Vec::new();
    for entry in Dir::read_from(state)? {
        if let Ok(name) = entry?.file_name().to_str()
            && name.starts_with(PREFIX)
        {
            names.push(name.to_owned());
        }
    }
    names.sort_unstable();
    Ok(names)
}
