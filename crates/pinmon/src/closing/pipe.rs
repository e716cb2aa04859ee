//! Pipes that are shared with containers. This process never performs the last close of one.
//!
//! A pipe has one lock in the kernel, and a container can hold it as long as it likes, without any privilege: splice(2)
//! from a socket to a pipe, or from a pipe to a socket, holds it while it waits for the socket. Every read(2),
//! write(2), tee(2), open(2), `FIONREAD` and last close(2) of the pipe waits for the lock, uninterruptibly, even with
//! `O_NONBLOCK`. poll(2) and epoll do not take it.
//!
//! So the monitor only polls pipes. The last close is performed by a log writer, which has copies of the output of a
//! container, or by a closer (`closing.rs`). See `output/blocked.rs` for log writers that wait for the lock.

use std::rc::Rc;

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::{AsFd, BorrowedFd, OwnedFd},
};

use super::queue::CloseQueue;

/// End of a pipe that is shared with a container.
#[derive(Debug)]
pub(crate) struct Pipe {
    end: Rc<OwnedFd>,
    close_queue: CloseQueue,
    is_copied: bool,
}

impl Pipe {
    /// Wraps an end, which is put into `close_queue` when it is dropped.
    pub(crate) fn new(end: OwnedFd, close_queue: &CloseQueue) -> Self {
        Self { end: Rc::new(end), close_queue: close_queue.clone(), is_copied: false }
    }

    /// Allows closing this end here, because another process has a copy and closes it later.
    pub(crate) fn mark_copied(&mut self) {
        self.is_copied = true;
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        if !self.is_copied {
            self.close_queue.put(Rc::clone(&self.end));
        }
    }
}

impl AsFd for Pipe {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.end.as_fd()
    }
}

/// Whether all of these pipes are empty; `false` if it is unknown.
pub(crate) fn are_empty<'a>(ends: impl Iterator<Item = BorrowedFd<'a>>) -> bool {
    let mut fds: Vec<PollFd<'_>> = ends.map(|end| PollFd::from_borrowed_fd(end, PollFlags::IN)).collect();
    match poll(&mut fds, Some(&Timespec::default())) {
        Ok(_) => fds.iter().all(|fd| !fd.revents().intersects(PollFlags::IN | PollFlags::ERR | PollFlags::NVAL)),
        Err(_) => false,
    }
}
