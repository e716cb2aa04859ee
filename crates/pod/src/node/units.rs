//! The units of systemd's cgroup driver: a scope for each container and each pod's init, a slice for each pod that names
//! no parent cgroup.
//!
//! An operation creates and removes cgroups itself, as with cgroupfs, and never waits for systemd. What systemd has to
//! know is queued here, by the name of the unit, and a thread passes it on:
//!
//! ```text
//! created ── Register ──▶ StartTransientUnit, then all limits are written again: systemd has written those it supports
//! updated ── Update ────▶ SetUnitProperties, likewise
//! removed ── Stop ──────▶ StopUnit; systemd may have removed the unit by itself when its cgroup was empty
//! ```
//!
//! The parent slice of all pods is only stopped (`StopEmpty`) when the driver does not create pods in it anymore.
//!
//! A later entry replaces an earlier one of the same unit, so the queue has at most one for each. While systemd does not
//! answer, entries wait, and pods work without their units. What was lost with a daemon, dropped or refused is found by an audit:
//! units are listed and compared with the objects on record.

mod queue;
mod worker;

use std::sync::{
    Arc, Condvar, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, Ordering},
};
use std::time::Duration;

use cgroup::{GroupPath, Hierarchies};
use queue::{Audit, Entry, Queue};

/// A group with everything that systemd has to know about it.
#[derive(Clone, Debug)]
pub(crate) struct Registration {
    pub(crate) path: GroupPath,
    /// Pid and start time of a process in it; `None` for a slice.
    pub(crate) process: Option<(u32, u64)>,
    pub(crate) resources: oci::Resources,
}

impl Registration {
    /// Returns the resources of a group that was created with limits and updated since. An update has neither device
    /// rules nor the default limit of processes.
    pub(crate) fn updated(created: oci::Resources, update: oci::Resources) -> oci::Resources {
        oci::Resources { devices: created.devices, pids: update.pids.or(created.pids), ..update }
    }
}

/// The queue of changes, and the thread that passes them to systemd.
pub(crate) struct Units {
    shared: Arc<Shared>,
    started: AtomicBool,
    owner: UnitOwner,
}

/// Which units belong to this engine.
#[derive(Clone, Debug)]
pub(crate) struct UnitOwner {
    /// The description of all its units. It contains the state directory, of which every engine has its own.
    pub(crate) description: String,
    /// The pattern of the slices of its pods.
    pub(crate) pod_slices: String,
}

/// What the engine and the thread share.
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
    trees: Hierarchies,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Units {
    pub(crate) fn new(trees: &Hierarchies, owner: UnitOwner) -> Self {
        let shared = Shared { queue: Mutex::default(), changed: Condvar::new(), trees: trees.clone() };
        Self { shared: Arc::new(shared), started: AtomicBool::new(false), owner }
    }

    /// Registers a group that exists.
    pub(crate) fn register(&self, registration: Registration) {
        self.push(Entry::Register(registration));
    }

    /// Changes the limits of a group. `resources` are all of its limits.
    pub(crate) fn update(&self, path: GroupPath, resources: oci::Resources) {
        self.push(Entry::Update(path, resources));
    }

    /// Makes systemd forget a group that was removed. The name is never used again.
    pub(crate) fn stop(&self, path: GroupPath) {
        self.push(Entry::Stop(path));
    }

    /// Stops a slice that no object of this engine uses anymore, unless something else is in it.
    pub(crate) fn stop_empty(&self, path: GroupPath) {
        self.push(Entry::StopEmpty(path));
    }

    /// Returns a number for [`Units::audit`]; to be called before the objects are listed.
    pub(crate) fn begin_listing(&self) -> u64 {
        self.shared.lock().begin_listing()
    }

    /// Registers what is not registered, and stops units of this engine that are not among them and have no process.
    pub(crate) fn audit(&self, listing: u64, wanted: Vec<Registration>) {
        self.shared.lock().audit = Some(Audit { listing, wanted });
        self.wake();
    }

    /// Waits until systemd has applied everything that is queued. Returns whether it has, within this time.
    pub(crate) fn flush(&self, timeout: Duration) -> bool {
        let is_busy = |queue: &mut Queue| queue.is_processing || !queue.is_idle();
        let queue = self.shared.lock();
        let waited = self.shared.changed.wait_timeout_while(queue, timeout, is_busy);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    fn push(&self, entry: Entry) {
        self.shared.lock().push(entry);
        self.wake();
    }

    /// Starts the thread with the first entry: a node without systemd never has one.
    fn wake(&self) {
        if !self.started.swap(true, Ordering::AcqRel)
            && let Err(error) = worker::start(Arc::clone(&self.shared), self.owner.clone())
        {
            tracing::warn!("start the thread that registers cgroups with systemd: {error}; retrying");
            self.started.store(false, Ordering::Release);
        }
        self.shared.changed.notify_all();
    }
}

impl Drop for Units {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.changed.notify_all();
    }
}
