//! Master sides of terminals.

use std::rc::Rc;

use container::{ContainerSetup, Progress};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};

use super::queue::CloseQueue;

/// Master side of a terminal, which is put into a [`CloseQueue`] when it is dropped.
#[derive(Debug)]
pub(crate) struct Terminal {
    master: Rc<OwnedFd>,
    close_queue: CloseQueue,
}

impl Terminal {
    /// Wraps a master, which is put into `close_queue` when it is dropped.
    pub(crate) fn new(master: OwnedFd, close_queue: &CloseQueue) -> Self {
        Self { master: Rc::new(master), close_queue: close_queue.clone() }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.close_queue.put(Rc::clone(&self.master));
    }
}

impl AsFd for Terminal {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.master.as_fd()
    }
}

/// Takes the terminal that a process sent before it was given up. Closing the socket would close the master that is in
/// it.
pub(crate) fn take_unread_terminal(setup: &mut ContainerSetup, close_queue: &CloseQueue) {
    while let Ok(Progress::Ready { terminal }) = setup.advance() {
        drop(terminal.map(|master| Terminal::new(master, close_queue)));
    }
}
