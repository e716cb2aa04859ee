//! How many sessions there are and were.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use crate::Request;

/// Of one kind of session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KindCounts {
    /// Connected now.
    pub open: u64,
    /// Connected ever.
    pub started: u64,
}

/// By kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Commands.
    pub exec: KindCounts,
    /// Attached clients.
    pub attach: KindCounts,
    /// Clients that forward ports, each with any number of connections.
    pub port_forward: KindCounts,
}

#[derive(Debug, Default)]
struct Kind {
    open: AtomicU64,
    started: AtomicU64,
}

impl Kind {
    fn read(&self) -> KindCounts {
        KindCounts { open: self.open.load(Ordering::Relaxed), started: self.started.load(Ordering::Relaxed) }
    }
}

/// The counters behind [`Counts`].
#[derive(Debug, Default)]
pub(crate) struct Counters {
    exec: Kind,
    attach: Kind,
    port_forward: Kind,
}

impl Counters {
    pub(crate) fn read(&self) -> Counts {
        Counts { exec: self.exec.read(), attach: self.attach.read(), port_forward: self.port_forward.read() }
    }

    fn of(&self, request: &Request) -> &Kind {
        match request {
            Request::Exec(_) => &self.exec,
            Request::Attach(_) => &self.attach,
            Request::PortForward(_) => &self.port_forward,
        }
    }
}

/// A session that is counted as open while this lives.
pub(crate) struct Counted<'a>(&'a Kind);

impl<'a> Counted<'a> {
    pub(crate) fn new(counters: &'a Arc<Counters>, request: &Request) -> Self {
        let kind = counters.of(request);
        kind.open.fetch_add(1, Ordering::Relaxed);
        kind.started.fetch_add(1, Ordering::Relaxed);
        Self(kind)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}
