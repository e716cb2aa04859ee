//! Thawing of killed processes. A process in a frozen cgroup of a v1 freezer exits only after it is thawed.
//!
//! Root in a container can mount the v1 freezer next to a v2 tree, and freeze its processes in nested cgroups there,
//! which `cgroup.kill` does not thaw. These may be many, so a limited number of them is thawed per iteration of the
//! event loop.
//!
//! ```text
//!  killed ─▶ FIRST ─▶ exited? ─ no ─▶ step, step, … ─▶ wait ─▶ exited? … at most GIVE_UP
//!                       └ yes ─▶ done  (STEP cgroups each)
//! ```

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use cgroup::{Group, ThawDescendants};

use crate::{
    clock,
    event::{Timer, Timers},
};

/// Maximum number of cgroups visited in one iteration, which takes a millisecond.
const STEP: usize = 64;
/// Time after which processes that were killed and still run are assumed to be frozen. The interval is doubled up to
/// five times.
const FIRST: Duration = Duration::from_millis(50);
const WAITS_MAX: u32 = 5;
/// Time limit of thawing after a kill. A container that keeps running in new processes may freeze them all the time.
const GIVE_UP: Duration = Duration::from_secs(60);

/// Killed containers and execs that have not exited, by serial number.
#[derive(Default)]
pub(crate) struct Thaws {
    jobs: BTreeMap<u64, ThawJob>,
    /// Jobs that can continue in the next iteration.
    ready: VecDeque<u64>,
}

struct ThawJob {
    /// The current pass over the cgroups. `None`: between two passes.
    pass: Option<ThawDescendants>,
    /// Number of completed passes.
    passes: u32,
    until: Duration,
}

impl Thaws {
    /// Whether a job can continue immediately.
    pub(crate) fn is_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Schedules thawing for a container or exec whose processes were all killed, in case they do not exit.
    pub(crate) fn schedule(&mut self, serial: u64, timers: &mut Timers) {
        let until = clock::monotonic() + GIVE_UP;
        if let Some(job) = self.jobs.get_mut(&serial) {
            job.until = until;
            return;
        }
        self.jobs.insert(serial, ThawJob { pass: None, passes: 0, until });
        timers.after(FIRST, Timer::Thaw(serial));
    }

    /// Starts the next pass over this cgroup. `None`: its processes have exited.
    pub(crate) fn due(&mut self, serial: u64, unfinished_group: Option<&Group>) {
        let pass = unfinished_group.and_then(Group::thaw_descendants);
        let job = self.jobs.get_mut(&serial).filter(|job| job.pass.is_none() && clock::monotonic() < job.until);
        match (job, pass) {
            (Some(job), Some(pass)) => {
                job.pass = Some(pass);
                self.ready.push_back(serial);
            }
            _ => drop(self.jobs.remove(&serial)),
        }
    }

    /// Performs a step of the next job that is ready.
    pub(crate) fn step_next(&mut self, timers: &mut Timers) {
        let Some(serial) = self.ready.pop_front() else { return };
        let Some(job) = self.jobs.get_mut(&serial) else { return };
        let Some(pass) = &mut job.pass else { return };
        match pass.step(STEP) {
            Ok(false) if clock::monotonic() < job.until => return self.ready.push_back(serial),
            Ok(_) => {}
            Err(error) => eprintln!("pinmon: {error}"),
        }
        job.pass = None;
        job.passes += 1;
        let wait = FIRST * (1 << job.passes.min(WAITS_MAX));
        timers.after(wait, Timer::Thaw(serial));
    }
}
