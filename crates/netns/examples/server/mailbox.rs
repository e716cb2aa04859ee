//! What the control wants of a shard.

use std::{
    net::TcpListener,
    sync::{Arc, Mutex, PoisonError},
};

use netns::NsId;
use rustix::{
    event::{EventfdFlags, eventfd},
    fd::OwnedFd,
};

use super::metrics::Counters;

/// A change of the tenants of a shard.
#[derive(Debug)]
pub(crate) enum Change {
    /// A tenant with its listeners.
    Add(Arrival),
    /// The namespace of a tenant that is gone.
    Remove(NsId),
}

/// A tenant that arrived.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) id: NsId,
    pub(crate) echo: TcpListener,
    pub(crate) http: TcpListener,
    pub(crate) counters: Arc<Counters>,
}

/// A queue of changes, and a descriptor that is readable when there are any.
#[derive(Debug)]
pub(crate) struct Mailbox {
    changes: Mutex<Vec<Change>>,
    wake: Arc<OwnedFd>,
}

impl Mailbox {
    pub(crate) fn new() -> std::io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { changes: Mutex::default(), wake: Arc::new(wake) })
    }

    pub(crate) fn wake(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.wake)
    }

    pub(crate) fn put(&self, change: Change) {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner).push(change);
        // It fails only if the counter is full; then the descriptor is readable.
        let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes());
    }

    pub(crate) fn take(&self) -> Vec<Change> {
        // Before the queue is emptied, so that no change is left without a wake-up.
        let _ = rustix::io::read(&*self.wake, &mut [0; 8]);
        std::mem::take(&mut *self.changes.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
