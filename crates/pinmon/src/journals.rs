//! The journal files in the state directory: one of each log writer that runs, and those that dead ones left with a
//! batch on its way.
//!
//! A writer never writes into an old journal before its batch is recovered, which needs the container's descriptors
//! (`Adopt`): so each writer has a journal of its own, and an old one is removed when its batch is where it belongs.

use std::{io, thread, time::Duration};

use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{AtFlags, Dir, FlockOperation, Mode, OFlags, flock, openat, unlinkat},
    io::Errno,
};

use crate::log::journal::{Entry, Journal};

const PREFIX: &str = "journal-";
/// How long writers that were just killed may take to end, all together. One that hangs takes longer, and changes its
/// journal no more.
const ENDING: u32 = 20;
const LOOK: Duration = Duration::from_millis(1);

/// A journal that a dead writer left.
struct Left {
    name: String,
    entry: Entry,
}

/// See the head of this file.
pub(crate) struct Journals {
    state: OwnedFd,
    left: Vec<Left>,
    next: u64,
}

impl Journals {
    /// Finds what writers of an earlier monitor, or program of this one, left. None of them may run anymore.
    pub(crate) fn open(state: OwnedFd) -> io::Result<Self> {
        let mut journals = Self { state, left: Vec::new(), next: 0 };
        names(journals.state.as_fd())?;
        journals.scan();
        Ok(journals)
    }

    /// Looks at all journals. All writers are dead, or about to be as soon as the kernel lets them.
    pub(crate) fn scan(&mut self) {
        let mut looks = ENDING;
        self.left.clear();
        let names = names(self.state.as_fd()).unwrap_or_else(|errno| {
            eprintln!("pinmon: list journals: {errno}");
            Vec::new()
        });
        for name in names {
            let number = name[PREFIX.len()..].parse().map_or(0, |number: u64| number + 1);
            self.next = self.next.max(number);
            self.look(&name, &mut looks);
        }
    }

    /// A name that no journal has.
    pub(crate) fn next_name(&mut self) -> String {
        self.next += 1;
        format!("{PREFIX}{}", self.next - 1)
    }

    /// The state directory.
    pub(crate) fn state(&self) -> &OwnedFd {
        &self.state
    }

    /// A writer is dead: its journal goes, or waits for [`Journals::take`].
    pub(crate) fn retire(&mut self, name: &str) {
        self.look(name, &mut 0);
    }

    /// The file system of the log that a batch of this container, left by a dead writer, was for.
    pub(crate) fn device_of(&self, container: &str) -> Option<Option<u64>> {
        let left = self.left.iter().find(|left| left.entry.container == container)?;
        Some(left.entry.log.map(|log| log.device))
    }

    /// Names of the journals with a batch of this container.
    pub(crate) fn take(&mut self, container: &str) -> Vec<String> {
        let (taken, left) =
            std::mem::take(&mut self.left).into_iter().partition(|left| left.entry.container == container);
        self.left = left;
        taken.into_iter().map(|left: Left| left.name).collect()
    }

    /// A writer is done with these, or `failed`: then they stay until the container is deleted.
    pub(crate) fn recovered(&mut self, container: &str, names: Vec<String>, failed: bool) {
        for name in names {
            match failed {
                true => self.retire(&name),
                false => self.unlink(&name),
            }
        }
        if failed {
            eprintln!("pinmon: output of container {container} that was on its way may be lost or repeated");
        }
    }

    /// The container is gone, and so is its output.
    pub(crate) fn forget(&mut self, container: &str) {
        for name in self.take(container) {
            self.unlink(&name);
        }
    }

    /// An idle journal, for programs of before there were log writers: they go on with the one that the state names.
    pub(crate) fn placeholder(&mut self) -> String {
        let name = self.next_name();
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        // Programs that have log writers do not miss it.
        let _ = openat(&self.state, &name, flags, Mode::RUSR | Mode::WUSR);
        name
    }

    fn look(&mut self, name: &str, looks: &mut u32) {
        match self.read(name, looks) {
            Ok(Some(entry)) => self.left.push(Left { name: name.to_owned(), entry }),
            Ok(None) => self.unlink(name),
            // It was kept in memory only.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => eprintln!("pinmon: {name}: {error}: its batch, if any, is left"),
        }
    }

    fn read(&self, name: &str, looks: &mut u32) -> io::Result<Option<Entry>> {
        let file = openat(&self.state, name, OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::empty())?;
        while let Err(Errno::WOULDBLOCK) = flock(&file, FlockOperation::NonBlockingLockExclusive)
            && *looks > 0
        {
            *looks -= 1;
            thread::sleep(LOOK);
        }
        Journal::look(&file)
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
