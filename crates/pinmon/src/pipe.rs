//! Ends of pipes that containers have the other end of. This process never closes one as the last.
//!
//! A pipe has one lock in the kernel, and a container may hold it as long as it likes, without any privilege: splice(2)
//! from a socket to a pipe, or from a pipe to a socket, keeps it while it waits for the socket. Each read(2), write(2),
//! tee(2), open(2), `FIONREAD` and last close(2) of the pipe waits for the lock, uninterruptibly, also with
//! `O_NONBLOCK`; poll(2) and epoll do not take it. So the monitor only polls pipes. The last close is a log writer's,
//! which has copies of a container's output, or that of a closer (`terminal.rs`). What becomes of a log writer that
//! waits for the lock is said in `writers/held.rs`.

use std::rc::Rc;

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::{AsFd, BorrowedFd, OwnedFd},
};

use crate::terminal::Closing;

/// See the head of this file.
#[derive(Debug)]
pub(crate) struct Pipe {
    end: Rc<OwnedFd>,
    closing: Closing,
    elsewhere: bool,
}

impl Pipe {
    /// Goes to `closing` when it is dropped.
    pub(crate) fn new(end: OwnedFd, closing: &Closing) -> Self {
        Self { end: Rc::new(end), closing: closing.clone(), elsewhere: false }
    }

    /// Another process has a copy, which it closes later: this one can be closed here.
    pub(crate) fn is_elsewhere(&mut self) {
        self.elsewhere = true;
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        if !self.elsewhere {
            self.closing.put(Rc::clone(&self.end));
        }
    }
}

impl AsFd for Pipe {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.end.as_fd()
    }
}

/// Whether nothing is to be read of any of these; `false` where that cannot be known.
pub(crate) fn are_empty<'a>(ends: impl Iterator<Item = BorrowedFd<'a>>) -> bool {
    let mut fds: Vec<PollFd<'_>> = ends.map(|end| PollFd::from_borrowed_fd(end, PollFlags::IN)).collect();
    match poll(&mut fds, Some(&Timespec::default())) {
        Ok(_) => fds.iter().all(|fd| !fd.revents().intersects(PollFlags::IN | PollFlags::ERR | PollFlags::NVAL)),
        Err(_) => false,
    }
}
