//! Removal of cgroups, a limited number per iteration of the event loop: a container can create many cgroups below its
//! own, and killed processes may take time to exit.
//!
//! ```text
//!  Delete ──▶ Forget ───────┐                       ┌─ Done ─▶ record removed, `Delete`s answered
//!  failed Create ─▶ Answer ─┼─▶ step, step, … ──────┼─ Busy ─▶ Timer::Remove, at most GIVE_UP without any progress
//!  exec exited ─▶ Nothing ──┘    (STEP cgroups each)└─ error ─▶ Timer::Remove, ERRORS_MAX times; then reported
//! ```

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use cgroup::{Group, Removal, RemovalStatus};
use monitor_api::{Failure, PendingHooks};
use rustix::process::Pid;

use crate::{clock, event::Timer, link::RequestId, services::Services};

/// Maximum number of cgroups removed or inspected in one iteration, which takes some milliseconds.
const STEP: usize = 64;
/// Time that killed processes may take to exit, after the last cgroup that could be removed.
const GIVE_UP: Duration = Duration::from_secs(10);
/// First interval of waiting for killed processes. It is doubled up to five times.
const FIRST: Duration = Duration::from_millis(5);
const WAITS_MAX: u32 = 5;
/// Number of retries of a failed step, with the same intervals, over more than half a second. A transient error such as
/// ENOMEM must not leak the cgroup of an exec.
const ERRORS_MAX: u32 = 8;
/// Maximum number of pids named in a failure.
const PIDS_MAX: usize = 10;

/// What to do after the cgroup is removed.
pub(crate) enum AfterRemoval {
    Nothing,
    /// Forget the container with this serial number.
    Forget(u64),
    /// Run the poststop hooks, and then answer these requests.
    Answer(Option<Box<PendingHooks>>, Vec<(RequestId, Result<(), Failure>)>),
}

/// End of a removal.
pub(crate) enum RemovalEnd {
    /// The cgroup is removed, or was given up for an object that nobody waits for.
    Removed(AfterRemoval),
    /// The cgroup of the container with this serial number cannot be removed.
    Failed { container: u64, group: Group, why: String },
}

/// Cgroups that are being removed, by serial number.
#[derive(Default)]
pub(crate) struct Removals {
    jobs: BTreeMap<u64, RemovalJob>,
    /// Removals that can continue in the next iteration.
    ready: VecDeque<u64>,
}

/// A cgroup that is being removed.
struct RemovalJob {
    removal: Removal,
    then: AfterRemoval,
    /// Number of times that it was busy since the last progress.
    tries: u32,
    /// Number of failed steps.
    errors: u32,
    removed: u64,
    until: Duration,
}

fn wait_after(tries: u32) -> Duration {
    FIRST * (1 << tries.min(WAITS_MAX))
}

impl RemovalJob {
    /// Whether a request waits for the removal.
    fn is_awaited(&self) -> bool {
        !matches!(self.then, AfterRemoval::Nothing)
    }
}

impl Removals {
    pub(crate) fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Whether a removal can continue immediately.
    pub(crate) fn is_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Whether a request waits for a removal.
    pub(crate) fn are_awaited(&self) -> bool {
        self.jobs.values().any(RemovalJob::is_awaited)
    }

    /// Starts to remove a cgroup whose processes exited or were killed. An empty one is removed immediately.
    pub(crate) fn start(&mut self, group: Group, then: AfterRemoval, services: &mut Services) -> Option<RemovalEnd> {
        let path = group.path().clone();
        let removal = match group.removal() {
            Ok(removal) => removal,
            Err(error) => {
                eprintln!("pinmon: remove cgroup {path}: {error}");
                return Some(RemovalEnd::Removed(then));
            }
        };
        let serial = services.next_serial();
        let until = clock::monotonic() + GIVE_UP;
        self.jobs.insert(serial, RemovalJob { removal, then, tries: 0, errors: 0, removed: 0, until });
        self.step(serial, services)
    }

    /// Performs a step of the next removal that is ready.
    pub(crate) fn step_next(&mut self, services: &mut Services) -> Option<RemovalEnd> {
        let serial = self.ready.pop_front()?;
        self.step(serial, services)
    }

    /// Continues a removal after its wait. Returns `false` if this removal is unknown.
    pub(crate) fn resume(&mut self, serial: u64) -> bool {
        let exists = self.jobs.contains_key(&serial);
        if exists {
            self.ready.push_back(serial);
        }
        exists
    }

    fn step(&mut self, serial: u64, services: &mut Services) -> Option<RemovalEnd> {
        let job = self.jobs.get_mut(&serial)?;
        let outcome = job.removal.step(STEP);
        if job.removal.removed() > job.removed {
            (job.removed, job.tries) = (job.removal.removed(), 0);
            job.until = clock::monotonic() + GIVE_UP;
        }
        let error = match outcome {
            Ok(RemovalStatus::Pending) => {
                self.ready.push_back(serial);
                return None;
            }
            Ok(RemovalStatus::Done) => return self.jobs.remove(&serial).map(|job| RemovalEnd::Removed(job.then)),
            Ok(RemovalStatus::Busy) if clock::monotonic() < job.until => {
                if job.is_awaited() && job.tries.is_multiple_of(8) && job.tries > 0 {
                    let _ = job.removal.group().kill();
                }
                job.tries += 1;
                services.timers.after(wait_after(job.tries), Timer::Remove(serial));
                return None;
            }
            Err(_) if job.errors < ERRORS_MAX => {
                job.errors += 1;
                services.timers.after(wait_after(job.errors), Timer::Remove(serial));
                return None;
            }
            Ok(RemovalStatus::Busy) => job.removal.timeout_error(),
            Err(error) => error,
        };
        self.jobs.remove(&serial).map(|job| job.give_up(&error))
    }
}

impl RemovalJob {
    /// Ends a removal that failed.
    fn give_up(self, error: &cgroup::Error) -> RemovalEnd {
        let AfterRemoval::Forget(container) = self.then else {
            eprintln!("pinmon: remove cgroup {}: {error}", self.removal.group().path());
            return RemovalEnd::Removed(self.then);
        };
        let group = self.removal.into_group();
        let pids = group.pids().unwrap_or_default();
        let pids: Vec<i32> = pids.into_iter().take(PIDS_MAX).map(Pid::as_raw_pid).collect();
        let why = match pids.is_empty() {
            true => error.to_string(),
            false => {
                format!("processes {pids:?} of its cgroup do not exit; see /proc/<pid>/stack for what they wait for")
            }
        };
        RemovalEnd::Failed { container, group, why }
    }
}
