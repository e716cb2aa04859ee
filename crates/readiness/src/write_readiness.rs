use std::{
    future::Future,
    os::fd::{AsFd, OwnedFd},
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};
use tokio::{
    io::{Interest, unix::AsyncFd},
    time::{Sleep, sleep},
};

use crate::watch;

/// Poll interval for sockets that cannot be registered.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The write readiness of a socket that is registered only for reading. When the socket is full, a duplicate of its
/// descriptor is registered for writing, until [`WriteReadiness::stop`] or the end of this value. If no descriptor is
/// available, or the user's epoll watches are used up (`fs.epoll.max_user_watches`, which containers of the same user
/// share), the socket is polled periodically.
#[derive(Debug, Default)]
pub struct WriteReadiness {
    watched: Option<AsyncFd<OwnedFd>>,
    later: Option<Pin<Box<Sleep>>>,
}

impl WriteReadiness {
    /// Reports whether the socket is writable. Also true if it is broken or cannot be polled, so that a write returns
    /// the error.
    pub fn is_writable(socket: impl AsFd) -> bool {
        loop {
            match poll(&mut [PollFd::new(&socket, PollFlags::OUT)], Some(&Timespec::default())) {
                Ok(ready) => return ready > 0,
                Err(Errno::INTR) => {}
                Err(_) => return true,
            }
        }
    }

    /// Waits until the socket is writable. Another writer may have filled it again when this returns. Must be polled
    /// within a runtime that has timers.
    pub fn poll(&mut self, socket: impl AsFd, context: &mut Context<'_>) -> Poll<()> {
        while !Self::is_writable(&socket) {
            if self.watched.is_none() {
                let duplicate = socket.as_fd().try_clone_to_owned();
                self.watched = duplicate.and_then(|file| watch(file, Interest::WRITABLE)).ok();
            }
            match &self.watched {
                // Clears an event from before the socket was full; from now on a change causes a new event.
                Some(watched) => match ready!(watched.poll_write_ready(context)) {
                    Ok(mut guard) => guard.clear_ready(),
                    // The runtime is shutting down.
                    Err(_) => break,
                },
                None => {
                    let later = self.later.get_or_insert_with(|| Box::pin(sleep(POLL_INTERVAL)));
                    ready!(later.as_mut().poll(context));
                    self.later = None;
                }
            }
        }
        self.later = None;
        Poll::Ready(())
    }

    /// Removes the registration.
    pub fn stop(&mut self) {
        *self = Self::default();
    }
}
