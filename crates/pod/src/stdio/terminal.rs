//! Master sides of terminals, which are closed by separate threads.
//!
//! The last close of a master hangs the terminal up and waits, without a limit, for processes inside read(2) or
//! write(2) of the slave. A container can keep a process there for as long as it likes. So dedicated threads close
//! masters, and no thread of the runtime does.

use std::{
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd},
    sync::{Mutex, PoisonError},
    thread,
};

use crate::{Error, error::failed};

/// Maximum number of threads that close masters. If all of them hang, further masters stay open until one returns.
const THREADS_MAX: usize = 16;

/// Masters that wait to be closed.
struct Closing {
    waiting: Vec<OwnedFd>,
    threads: usize,
}

static CLOSING: Mutex<Closing> = Mutex::new(Closing { waiting: Vec::new(), threads: 0 });

/// A terminal master. When it is dropped, another thread closes it.
#[derive(Debug)]
pub(crate) struct Terminal(Option<OwnedFd>);

impl Terminal {
    pub(crate) fn new(master: OwnedFd) -> Self {
        Self(Some(master))
    }

    /// Duplicates the descriptor of the master.
    pub(crate) fn duplicate(&self) -> Result<Self, Error> {
        let master = self.0.as_ref().map(OwnedFd::try_clone).transpose();
        master.map(Self).map_err(failed("duplicate a terminal"))
    }

    /// Returns the master; it exists until the terminal is dropped.
    pub(crate) fn master(&self) -> Option<BorrowedFd<'_>> {
        self.0.as_ref().map(AsFd::as_fd)
    }
}

impl AsRawFd for Terminal {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_ref().map_or(-1, AsRawFd::as_raw_fd)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if let Some(master) = self.0.take() {
            close(master);
        }
    }
}

/// Has another thread close a master. If no thread can be started, it is closed with the next one.
pub(crate) fn close(master: OwnedFd) {
    let mut closing = CLOSING.lock().unwrap_or_else(PoisonError::into_inner);
    closing.waiting.push(master);
    if closing.threads < THREADS_MAX && thread::Builder::new().name("hangup".to_owned()).spawn(close_waiting).is_ok() {
        closing.threads += 1;
    }
}

fn close_waiting() {
    loop {
        let master = {
            let mut closing = CLOSING.lock().unwrap_or_else(PoisonError::into_inner);
            let master = closing.waiting.pop();
            closing.threads -= usize::from(master.is_none());
            master
        };
        match master {
            Some(master) => drop(master),
            None => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_terminal_is_closed_by_another_thread() {
        let (reader, writer) = std::io::pipe().expect("pipe");
        drop(Terminal::new(writer.into()));
        let mut text = Vec::new();
        std::io::Read::read_to_end(&mut { reader }, &mut text).expect("the other end is closed");
    }
}
