//! epoll, always edge-triggered.

use std::{io, time::Duration};

use rustix::{
    event::{
        Timespec,
        epoll::{self, CreateFlags, Event, EventData, EventFlags},
    },
    fd::{AsFd, OwnedFd},
    io::Errno,
};

use crate::token::Token;

/// Events taken at once.
const EVENTS: usize = 64;

/// See the head of this file.
#[derive(Debug)]
pub(crate) struct Epoll(OwnedFd);

/// Something that happened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Happened {
    pub(crate) token: Token,
    /// The other side is gone.
    pub(crate) broken: bool,
}

impl Epoll {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(epoll::create(CreateFlags::CLOEXEC)?))
    }

    /// Reports something to read, or the other side's end. What is watched already stays so.
    pub(crate) fn watch(&self, fd: impl AsFd, token: Token) -> io::Result<()> {
        self.add(fd, token, EventFlags::IN | EventFlags::RDHUP | EventFlags::ET)
    }

    fn add(&self, fd: impl AsFd, token: Token, flags: EventFlags) -> io::Result<()> {
        match epoll::add(&self.0, fd, EventData::new_u64(token.word()), flags) {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Reports something to read or the other side's end, and with `room` also room to write. What is watched already
    /// is watched for these from now on, and reported once more where it is ready.
    pub(crate) fn rewatch(&self, fd: impl AsFd, token: Token, room: bool) -> io::Result<()> {
        let room = if room { EventFlags::OUT } else { EventFlags::empty() };
        let (data, flags) =
            (EventData::new_u64(token.word()), EventFlags::IN | EventFlags::RDHUP | EventFlags::ET | room);
        match epoll::add(&self.0, &fd, data, flags) {
            Err(Errno::EXIST) => Ok(epoll::modify(&self.0, &fd, data, flags)?),
            added => Ok(added?),
        }
    }

    /// Tells of room to write, or of the reader's end.
    pub(crate) fn watch_room(&self, fd: impl AsFd, token: Token) -> io::Result<()> {
        self.add(fd, token, EventFlags::OUT | EventFlags::ET)
    }

    /// Ends it. Closing is not enough where another process holds the same open file.
    pub(crate) fn forget(&self, fd: impl AsFd) {
        let _ = epoll::delete(&self.0, fd);
    }

    /// Waits for events, at most so long (`None`: for ever).
    pub(crate) fn wait(&self, most: Option<Duration>) -> io::Result<Vec<Happened>> {
        let empty = Event { flags: EventFlags::empty(), data: EventData::new_u64(0) };
        let mut events = [empty; EVENTS];
        let most = most.map(|most| Timespec { tv_sec: most.as_secs() as i64, tv_nsec: i64::from(most.subsec_nanos()) });
        let count = match epoll::wait(&self.0, &mut events[..], most.as_ref()) {
            Ok(count) => count,
            Err(Errno::INTR) => 0,
            Err(errno) => return Err(errno.into()),
        };
        let happened = |event: &Event| {
            // Copied out: the kernel's struct is packed.
            let (flags, data) = (event.flags, event.data);
            let broken = flags.intersects(EventFlags::ERR | EventFlags::HUP);
            Token::from_word(data.u64()).map(|token| Happened { token, broken })
        };
        Ok(events[..count].iter().filter_map(happened).collect())
    }
}
