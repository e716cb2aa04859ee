//! Counters of sessions.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use crate::Request;

/// Counters of one kind of session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KindCounts {
    /// Number of open sessions.
    pub open: u64,
    /// Number of sessions since the start of the server.
    pub started: u64,
}

/// Counters of sessions by kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Exec sessions.
    pub exec: KindCounts,
    /// Attach sessions.
    pub attach: KindCounts,
    /// Port-forward sessions; each can have any number of connections.
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

/// The atomic counters that [`Counts`] is read from.
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

/// An open session; dropping it decrements the counter.
pub(crate) struct OpenSession<'a>(&'a Kind);

impl<'a> OpenSession<'a> {
    pub(crate) fn new(counters: &'a Arc<Counters>, request: &Request) -> Self {
        let kind = counters.of(request);
        kind.open.fetch_add(1, Ordering::Relaxed);
        kind.started.fetch_add(1, Ordering::Relaxed);
        Self(kind)
    }
}

impl Drop for OpenSession<'_> {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}
