//! Epoll, always edge-triggered.

use std::{io, time::Duration};

use rustix::{
    event::{
        Timespec,
        epoll::{self, CreateFlags, Event, EventData, EventFlags},
    },
    fd::{AsFd, OwnedFd},
    io::Errno,
};

use super::token::Token;

/// Maximum number of events returned by one wait.
const EVENTS: usize = 64;
/// Interval of polling a descriptor that epoll refused to watch.
///
/// `fs.epoll.max_user_watches` is a limit per user, and containers without a user namespace share it with root. A
/// container that exhausts it must not prevent others from being started, executed in or logged.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// An epoll instance.
#[derive(Debug)]
pub(crate) struct Epoll(OwnedFd);

/// An event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EpollEvent {
    pub(crate) token: Token,
    /// The peer closed its end, or an error occurred.
    pub(crate) broken: bool,
}

impl Epoll {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(epoll::create(CreateFlags::CLOEXEC)?))
    }

    /// Watches for data to read and for the close of the peer. A descriptor that is already watched remains unchanged.
    pub(crate) fn watch(&self, fd: impl AsFd, token: Token) -> io::Result<()> {
        self.add(fd, token, EventFlags::IN | EventFlags::RDHUP | EventFlags::ET)
    }

    fn add(&self, fd: impl AsFd, token: Token, flags: EventFlags) -> io::Result<()> {
        match epoll::add(&self.0, fd, EventData::new_u64(token.word()), flags) {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Watches for data to read, for the close of the peer, and with `with_room` for room to write. The events of a
    /// descriptor that is already watched are replaced, and pending ones are reported again.
    pub(crate) fn rewatch(&self, fd: impl AsFd, token: Token, with_room: bool) -> io::Result<()> {
        let with_room = if with_room { EventFlags::OUT } else { EventFlags::empty() };
        let (data, flags) =
            (EventData::new_u64(token.word()), EventFlags::IN | EventFlags::RDHUP | EventFlags::ET | with_room);
        match epoll::add(&self.0, &fd, data, flags) {
            Err(Errno::EXIST) => Ok(epoll::modify(&self.0, &fd, data, flags)?),
            added => Ok(added?),
        }
    }

    /// Watches for room to write, and for the close of the reader.
    pub(crate) fn watch_room(&self, fd: impl AsFd, token: Token) -> io::Result<()> {
        self.add(fd, token, EventFlags::OUT | EventFlags::ET)
    }

    /// Stops watching. Closing is not enough if another process has the same open file.
    pub(crate) fn forget(&self, fd: impl AsFd) {
        let _ = epoll::delete(&self.0, fd);
    }

    /// Waits for events, at most for this time. `None`: no limit.
    pub(crate) fn wait(&self, timeout: Option<Duration>) -> io::Result<Vec<EpollEvent>> {
        let empty = Event { flags: EventFlags::empty(), data: EventData::new_u64(0) };
        let mut events = [empty; EVENTS];
        let timeout = timeout
            .map(|timeout| Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: i64::from(timeout.subsec_nanos()) });
        let count = match epoll::wait(&self.0, &mut events[..], timeout.as_ref()) {
            Ok(count) => count,
            Err(Errno::INTR) => 0,
            Err(errno) => return Err(errno.into()),
        };
        let event = |event: &Event| {
            // Copied because the struct of the kernel is packed.
            let (flags, data) = (event.flags, event.data);
            let broken = flags.intersects(EventFlags::ERR | EventFlags::HUP);
            Token::from_word(data.u64()).map(|token| EpollEvent { token, broken })
        };
        Ok(events[..count].iter().filter_map(event).collect())
    }
}
