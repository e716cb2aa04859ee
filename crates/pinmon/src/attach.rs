//! Clients that are attached to a container's output: they get raw copies of it.
//!
//! A client whose pipe is full holds up its container's output, not the monitor: what it has not taken yet is kept (one
//! batch at most), the container's streams rest until it took it, and a client that takes nothing for [`PATIENCE`] is
//! dropped.

use std::time::Duration;

use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    io::Errno,
};

use crate::{clock, epoll::Epoll, stream::StreamKind};

/// How long a client may take nothing.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// One pipe of one client.
#[derive(Debug)]
pub(crate) struct Tap {
    /// Names it in the event loop.
    pub(crate) number: u8,
    pub(crate) kind: StreamKind,
    pub(crate) pipe: OwnedFd,
    /// What it must take before the container's output goes on, and until when it must take some of it.
    pub(crate) owed: Option<(Vec<u8>, Duration)>,
}

/// All pipes attached to one container.
#[derive(Debug, Default)]
pub(crate) struct Taps {
    list: Vec<Tap>,
    /// Numbers of pipes that were dropped since [`Taps::take_gone`].
    gone: Vec<u8>,
}

impl Taps {
    /// Whether nobody is attached.
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Adds a pipe, non-blocking, under a number that no other has.
    pub(crate) fn add(&mut self, number: u8, kind: StreamKind, pipe: OwnedFd) {
        self.list.push(Tap { number, kind, pipe, owed: None });
    }

    /// Copies output to all pipes of this kind; those that are gone are dropped.
    pub(crate) fn feed(&mut self, kind: StreamKind, data: &[u8]) {
        self.keep(|tap| tap.kind != kind || tap.feed(data));
    }

    /// Whether a client owes, so that the container's output must rest.
    pub(crate) fn rest(&self) -> bool {
        self.list.iter().any(|tap| tap.owed.is_some())
    }

    /// When the least patient deadline is.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        self.list.iter().filter_map(|tap| tap.owed.as_ref().map(|(_, until)| *until)).min()
    }

    /// A pipe can be written again, or broke: pays what it is owed.
    pub(crate) fn ready(&mut self, number: u8, broken: bool) {
        self.keep(|tap| tap.number != number || (!broken && tap.pay()));
    }

    /// Drops the clients whose time is up.
    pub(crate) fn expire(&mut self, now: Duration) {
        self.keep(|tap| tap.owed.as_ref().is_none_or(|(_, until)| *until > now));
    }

    /// Which pipes were dropped since the last call.
    pub(crate) fn take_gone(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.gone)
    }

    /// Closes all: the end of the output.
    pub(crate) fn close(&mut self, epoll: &Epoll) {
        for tap in std::mem::take(&mut self.list) {
            epoll.forget(tap.pipe());
        }
    }

    fn keep(&mut self, mut stays: impl FnMut(&mut Tap) -> bool) {
        let Self { list, gone } = self;
        list.retain_mut(|tap| {
            let stays = stays(tap);
            if !stays {
                gone.push(tap.number);
            }
            stays
        });
    }
}

impl Tap {
    /// The pipe, for the event loop.
    pub(crate) fn pipe(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }

    fn feed(&mut self, data: &[u8]) -> bool {
        if let Some((owed, _)) = &mut self.owed {
            // The other stream moved before the container's output came to rest.
            owed.extend_from_slice(data);
            return true;
        }
        match self.write(data) {
            Some(taken) if taken < data.len() => {
                self.owed = Some((data[taken..].to_vec(), clock::monotonic() + PATIENCE));
                true
            }
            taken => taken.is_some(),
        }
    }

    fn pay(&mut self) -> bool {
        let Some((mut owed, until)) = self.owed.take() else { return true };
        let Some(taken) = self.write(&owed) else { return false };
        owed.drain(..taken);
        if !owed.is_empty() {
            self.owed = Some((owed, if taken > 0 { clock::monotonic() + PATIENCE } else { until }));
        }
        true
    }

    /// How much the pipe took; `None`: it is gone.
    fn write(&self, data: &[u8]) -> Option<usize> {
        let mut taken = 0;
        while taken < data.len() {
            match rustix::io::write(&self.pipe, &data[taken..]) {
                Ok(n) => taken += n,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(_) => return None,
            }
        }
        Some(taken)
    }
}
