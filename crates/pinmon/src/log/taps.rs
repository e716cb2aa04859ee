//! Clients attached to the output of a container. They receive raw copies of it.
//!
//! A client whose pipe is full delays the output of its container, not the monitor. The data that it has not read is
//! kept (at most one batch), and the streams of the container pause until it is read. A client that reads nothing for
//! [`CLIENT_TIMEOUT`] is dropped.

use std::time::Duration;

use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    io::Errno,
};

use crate::{clock, event::Epoll, stream::StreamKind};

/// Time after which a client that reads nothing is dropped.
pub(crate) const CLIENT_TIMEOUT: Duration = Duration::from_secs(10);

/// A pipe of a client.
#[derive(Debug)]
pub(crate) struct Tap {
    /// Number of the pipe in the event loop.
    pub(crate) number: u8,
    pub(crate) kind: StreamKind,
    pub(crate) pipe: OwnedFd,
    /// Data that the client must read before output continues, and the deadline for reading some of it.
    pub(crate) backlog: Option<(Vec<u8>, Duration)>,
}

/// All pipes attached to one container.
#[derive(Debug, Default)]
pub(crate) struct Taps {
    list: Vec<Tap>,
    /// Numbers of pipes dropped since the last [`Taps::take_gone`].
    gone: Vec<u8>,
}

impl Taps {
    /// Whether no client is attached.
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Adds a non-blocking pipe. Its number must be unused.
    pub(crate) fn add(&mut self, number: u8, kind: StreamKind, pipe: OwnedFd) {
        self.list.push(Tap { number, kind, pipe, backlog: None });
    }

    /// Copies output to all pipes of this stream. Pipes that fail are dropped.
    pub(crate) fn send(&mut self, kind: StreamKind, data: &[u8]) {
        self.retain(|tap| tap.kind != kind || tap.send(data));
    }

    /// Whether a client has a backlog, so that output must pause.
    pub(crate) fn is_backlogged(&self) -> bool {
        self.list.iter().any(|tap| tap.backlog.is_some())
    }

    /// Returns the earliest deadline of a backlog.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        self.list.iter().filter_map(|tap| tap.backlog.as_ref().map(|(_, until)| *until)).min()
    }

    /// Flushes the backlog of a pipe that became writable, or drops a broken one.
    pub(crate) fn ready(&mut self, number: u8, broken: bool) {
        self.retain(|tap| tap.number != number || (!broken && tap.flush()));
    }

    /// Drops clients whose deadline has passed.
    pub(crate) fn expire(&mut self, now: Duration) {
        self.retain(|tap| tap.backlog.as_ref().is_none_or(|(_, until)| *until > now));
    }

    /// Returns the numbers of the pipes dropped since the last call.
    pub(crate) fn take_gone(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.gone)
    }

    /// Closes all pipes at the end of the output.
    pub(crate) fn close(&mut self, epoll: &Epoll) {
        for tap in std::mem::take(&mut self.list) {
            epoll.forget(tap.pipe());
        }
    }

    fn retain(&mut self, mut retained: impl FnMut(&mut Tap) -> bool) {
        let Self { list, gone } = self;
        list.retain_mut(|tap| {
            let retained = retained(tap);
            if !retained {
                gone.push(tap.number);
            }
            retained
        });
    }
}

impl Tap {
    /// Returns the pipe, for the event loop.
    pub(crate) fn pipe(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }

    fn send(&mut self, data: &[u8]) -> bool {
        if let Some((backlog, _)) = &mut self.backlog {
            // The other stream was being moved when this one was paused.
            backlog.extend_from_slice(data);
            return true;
        }
        match self.write(data) {
            Some(written) if written < data.len() => {
                self.backlog = Some((data[written..].to_vec(), clock::monotonic() + CLIENT_TIMEOUT));
                true
            }
            written => written.is_some(),
        }
    }

    fn flush(&mut self) -> bool {
        let Some((mut backlog, until)) = self.backlog.take() else { return true };
        let Some(written) = self.write(&backlog) else { return false };
        backlog.drain(..written);
        if !backlog.is_empty() {
            self.backlog = Some((backlog, if written > 0 { clock::monotonic() + CLIENT_TIMEOUT } else { until }));
        }
        true
    }

    /// Returns the number of bytes written; `None` if the reader closed the pipe.
    fn write(&self, data: &[u8]) -> Option<usize> {
        let mut written = 0;
        while written < data.len() {
            match rustix::io::write(&self.pipe, &data[written..]) {
                Ok(n) => written += n,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(_) => return None,
            }
        }
        Some(written)
    }
}
