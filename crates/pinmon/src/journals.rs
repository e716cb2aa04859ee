//! The journal files in the state directory: ours, and those that killed monitors left with a batch on its way.
//!
//! A new monitor never writes into an old journal before its batch is recovered, which needs the container's descriptors
//! (`Adopt`): so each monitor has a journal of its own, and an old one is removed when its batch is home.

use std::io;

use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{AtFlags, Dir, Mode, OFlags, openat, unlinkat},
    io::Errno,
};

use crate::{
    log::{
        journal::{Entry, Journal},
        recover::recover,
        sink::Sink,
    },
    stream::StreamKind,
};

const PREFIX: &str = "journal-";

/// A journal that a killed monitor left.
struct Left {
    name: String,
    journal: Journal,
    entry: Entry,
}

/// See the head of this file.
pub(crate) struct Journals {
    folder: OwnedFd,
    left: Vec<Left>,
    own: String,
}

impl Journals {
    /// Finds what is left in the state directory and makes a journal of our own.
    pub(crate) fn open(folder: OwnedFd) -> io::Result<(Self, Journal)> {
        let names = names(folder.as_fd())?;
        let number =
            names.iter().filter_map(|name| name[PREFIX.len()..].parse::<u64>().ok()).max().map_or(0, |n| n + 1);
        let mut journals = Self { folder, left: Vec::new(), own: format!("{PREFIX}{number}") };
        for name in names {
            match journals.look(&name) {
                Ok(Some(left)) => journals.left.push(left),
                Ok(None) => journals.unlink(&name),
                Err(error) => eprintln!("pinmon: {name}: {error}: its batch, if any, is left"),
            }
        }
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = openat(&journals.folder, &journals.own, flags, Mode::RUSR | Mode::WUSR)?;
        let journal = Journal::map(file)?;
        Ok((journals, journal))
    }

    /// Goes on with our own, which another program of this process had: nothing is on its way in it.
    pub(crate) fn reopen(folder: OwnedFd, own: &str) -> io::Result<(Self, Journal)> {
        let mut journals = Self { folder, left: Vec::new(), own: own.to_owned() };
        for name in names(journals.folder.as_fd())?.into_iter().filter(|name| name != own) {
            match journals.look(&name) {
                Ok(Some(left)) => journals.left.push(left),
                Ok(None) => journals.unlink(&name),
                Err(error) => eprintln!("pinmon: {name}: {error}: its batch, if any, is left"),
            }
        }
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let journal = Journal::map(openat(&journals.folder, own, flags, Mode::empty())?)?;
        match journal.pending()? {
            None => Ok((journals, journal)),
            Some(_) => Err(io::Error::other(format!("{own} holds a batch"))),
        }
    }

    /// The folder of state.
    pub(crate) fn folder(&self) -> &OwnedFd {
        &self.folder
    }

    /// Our own journal's name.
    pub(crate) fn own(&self) -> &str {
        &self.own
    }

    /// Brings home what was on its way from this container when a monitor was killed.
    pub(crate) fn recover(
        &mut self,
        container: &str,
        fifo: impl Fn(StreamKind) -> Option<OwnedFd>,
        sink: &mut Sink,
        line_max: usize,
    ) {
        for mut left in self.take(container) {
            let fifo = fifo(left.entry.stream);
            match recover(&mut left.journal, fifo.as_ref().map(AsFd::as_fd), sink, line_max) {
                Ok(()) => self.unlink(&left.name),
                Err(error) => {
                    eprintln!("pinmon: recover the output of container {container}: {error}");
                    self.left.push(left);
                }
            }
        }
    }

    /// The container is gone, and so is its output.
    pub(crate) fn forget(&mut self, container: &str) {
        for left in self.take(container) {
            self.unlink(&left.name);
        }
    }

    /// Removes our own: nothing is on its way any more.
    pub(crate) fn close(&self) {
        self.unlink(&self.own);
    }

    fn take(&mut self, container: &str) -> Vec<Left> {
        let (taken, left) =
            std::mem::take(&mut self.left).into_iter().partition(|left| left.entry.container == container);
        self.left = left;
        taken
    }

    fn look(&self, name: &str) -> io::Result<Option<Left>> {
        let file = openat(&self.folder, name, OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::empty())?;
        let journal = Journal::map(file)?;
        let pending = journal.pending()?;
        Ok(pending.map(|(_, entry)| Left { name: name.to_owned(), journal, entry }))
    }

    fn unlink(&self, name: &str) {
        if let Err(errno) = unlinkat(&self.folder, name, AtFlags::empty()) {
            eprintln!("pinmon: remove {name}: {errno}");
        }
    }
}

fn names(folder: BorrowedFd<'_>) -> Result<Vec<String>, Errno> {
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        if let Ok(name) = entry?.file_name().to_str()
            && name.starts_with(PREFIX)
        {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}
