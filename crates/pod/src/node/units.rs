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
//! A later entry replaces an earlier one of the same unit, so the queue has at most one for each. While systemd does not
//! answer, entries wait, and pods work without their units. What was lost with a daemon is found by an audit: units are
//! listed and compared with the objects on record.

mod queue;
mod worker;

use std::sync::{
    Arc, Condvar, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use cgroup::{GroupPath, Hierarchies};
use queue::{Entry, Queue};

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

    /// Registers what is not registered, and stops units of this engine that are not among them and have no process.
    pub(crate) fn audit(&self, wanted: Vec<Registration>) {
        self.shared.lock().audit = Some(wanted);
        self.wake();
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
        self.shared.changed.notify_one();
    }
}

impl Drop for Units {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.changed.notify_one();
    }
}
