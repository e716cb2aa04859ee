use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    task::{Context, Poll, ready},
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::io::{Interest, unix::AsyncFd};

use crate::watch;

/// Room to write on a socket that is watched for reading alone. It is watched for by a descriptor of its own, from the first
/// time that there is none until [`Room::forget`] or the end of this value.
#[derive(Debug, Default)]
pub struct Room(Option<AsyncFd<OwnedFd>>);

impl Room {
    /// Whether there is room now; also where the socket is broken, so that a write reports it.
    ///
    /// # Errors
    /// Those of poll(2).
    pub fn is_there(socket: impl AsFd) -> io::Result<bool> {
        Ok(poll(&mut [PollFd::new(&socket, PollFlags::OUT)], Some(&Timespec::default()))? > 0)
    }

    /// Waits for room. It may be taken by others by the time this is ready.
    ///
    /// # Errors
    /// Where the socket cannot be watched.
    pub fn poll(&mut self, socket: impl AsFd, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            if Self::is_there(&socket)? {
                return Poll::Ready(Ok(()));
            }
            if self.0.is_none() {
                self.0 = Some(watch(socket.as_fd().try_clone_to_owned()?, Interest::WRITABLE)?);
            }
            let Some(watched) = &self.0 else { continue };
            // What was seen before there was none left; what comes from now on is an event.
            ready!(watched.poll_write_ready(context))?.clear_ready();
        }
    }

    #[cfg(test)]
    pub(crate) fn is_watched(&self) -> bool {
        self.0.is_some()
    }

    /// Watches no longer.
    pub fn forget(&mut self) {
        self.0 = None;
    }
}
