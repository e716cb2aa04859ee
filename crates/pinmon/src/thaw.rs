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

use crate::{clock, exec::ExecStage, monitor::Monitor, timer::Timer};

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
}

impl Monitor {
    /// Schedules thawing for a container or exec whose processes were all killed, in case they do not exit.
    pub(crate) fn thaw_later(&mut self, serial: u64) {
        let until = clock::monotonic() + GIVE_UP;
        if let Some(job) = self.thaws.jobs.get_mut(&serial) {
            job.until = until;
            return;
        }
        self.thaws.jobs.insert(serial, ThawJob { pass: None, passes: 0, until });
        self.timers.after(FIRST, Timer::Thaw(serial));
    }

    /// Starts the next pass, unless the processes have exited.
    pub(crate) fn thaw_due(&mut self, serial: u64) {
        let pass = match self.unfinished_group(serial) {
            Some(group) => group.thaw_descendants(),
            None => None,
        };
        let job = self.thaws.jobs.get_mut(&serial).filter(|job| job.pass.is_none() && clock::monotonic() < job.until);
        match (job, pass) {
            (Some(job), Some(pass)) => {
                job.pass = Some(pass);
                self.thaws.ready.push_back(serial);
            }
            _ => drop(self.thaws.jobs.remove(&serial)),
        }
    }

    /// Performs a step of the next job that is ready.
    pub(crate) fn thaw_some(&mut self) {
        let Some(serial) = self.thaws.ready.pop_front() else { return };
        let Some(job) = self.thaws.jobs.get_mut(&serial) else { return };
        let Some(pass) = &mut job.pass else { return };
        match pass.step(STEP) {
            Ok(false) if clock::monotonic() < job.until => return self.thaws.ready.push_back(serial),
            Ok(_) => {}
            Err(error) => eprintln!("pinmon: {error}"),
        }
        job.pass = None;
        job.passes += 1;
        let wait = FIRST * (1 << job.passes.min(WAITS_MAX));
        self.timers.after(wait, Timer::Thaw(serial));
    }

    /// Returns the cgroup of a killed container or exec while processes of it are running.
    fn unfinished_group(&self, serial: u64) -> Option<&Group> {
        let lives = |group: &&Group| !group.is_empty().unwrap_or(true);
        if let Some(child) = self.containers.get(&serial) {
            return child.group().filter(|group| !child.has_ended() || lives(group));
        }
        let exec = self.execs.get(&serial)?;
        Some(exec.group()).filter(|group| exec.stage != ExecStage::Leftover || lives(group))
    }
}
