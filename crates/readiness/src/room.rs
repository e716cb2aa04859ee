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

/// How often it is looked for room where it cannot be watched for.
const LOOK: Duration = Duration::from_millis(20);

/// Room to write on a socket that is watched for reading alone. It is watched for by a descriptor of its own, from the
/// first time that there is none until [`Room::forget`] or the end of this value. Where there is none to be had, or the
/// user's watches are used up (`fs.epoll.max_user_watches`, which containers of the user share), it is looked for from
/// time to time.
#[derive(Debug, Default)]
pub struct Room {
    watched: Option<AsyncFd<OwnedFd>>,
    later: Option<Pin<Box<Sleep>>>,
}

impl Room {
    /// Whether there is room now; also where the socket is broken or cannot be asked, so that a write reports it.
    pub fn is_there(socket: impl AsFd) -> bool {
        loop {
            match poll(&mut [PollFd::new(&socket, PollFlags::OUT)], Some(&Timespec::default())) {
                Ok(ready) => return ready > 0,
                Err(Errno::INTR) => {}
                Err(_) => return true,
            }
        }
    }

    /// Waits for room. It may be taken by others by the time this is ready. Must be polled within a runtime that has
    /// timers.
    pub fn poll(&mut self, socket: impl AsFd, context: &mut Context<'_>) -> Poll<()> {
        while !Self::is_there(&socket) {
            if self.watched.is_none() {
                let duplicate = socket.as_fd().try_clone_to_owned();
                self.watched = duplicate.and_then(|file| watch(file, Interest::WRITABLE)).ok();
            }
            match &self.watched {
                // What was seen before there was none left; what comes from now on is an event.
                Some(watched) => match ready!(watched.poll_write_ready(context)) {
                    Ok(mut seen) => seen.clear_ready(),
                    // The runtime ends.
                    Err(_) => break,
                },
                None => {
                    let later = self.later.get_or_insert_with(|| Box::pin(sleep(LOOK)));
                    ready!(later.as_mut().poll(context));
                    self.later = None;
                }
            }
        }
        self.later = None;
        Poll::Ready(())
    }

    /// Watches no longer.
    pub fn forget(&mut self) {
        *self = Self::default();
    }
}
