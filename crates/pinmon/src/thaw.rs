//! What was killed and is frozen by a v1 freezer dies when it is thawed. Root in a container can mount the v1 freezer
//! next to a v2 tree and freeze its processes in groups of its own there, which `cgroup.kill` does not thaw. They may
//! be many, so all of them are thawed a bounded piece in every turn of the loop.
//!
//! ```text
//!  killed ─▶ FIRST ─▶ has it ended? ─ no ─▶ step, step, … ─▶ wait ─▶ has it ended? … at most GIVE_UP
//!                            └ yes ─▶ forgotten  (STEP groups each)
//! ```

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use cgroup::{Group, ThawBelow};

use crate::{clock, command::CommandStage, monitor::Monitor, timer::Timer};

/// Groups that are visited in one turn of the loop: a millisecond.
const STEP: usize = 64;
/// How long killed processes may take to end before it is held that they are frozen; twice as long each time, to 2^5
/// times.
const FIRST: Duration = Duration::from_millis(50);
const WAITS_MAX: u32 = 5;
/// How long groups are thawed after a kill. In a container that lives on new ones may be frozen all the time.
const GIVE_UP: Duration = Duration::from_secs(60);

/// What was killed and has not ended, by the serial number of the container or command.
#[derive(Default)]
pub(crate) struct Thaws {
    jobs: BTreeMap<u64, Job>,
    /// Those that wait for nothing but their turn.
    ready: VecDeque<u64>,
}

struct Job {
    /// `None`: between two passes.
    pass: Option<ThawBelow>,
    /// How many passes there were.
    passes: u32,
    until: Duration,
}

impl Thaws {
    /// Whether there is something to do at once.
    pub(crate) fn is_ready(&self) -> bool {
        !self.ready.is_empty()
    }
}

impl Monitor {
    /// A container or command was killed as a whole: if it does not end, what it froze below its group is thawed.
    pub(crate) fn thaw_later(&mut self, serial: u64) {
        let until = clock::monotonic() + GIVE_UP;
        if let Some(job) = self.thaws.jobs.get_mut(&serial) {
            job.until = until;
            return;
        }
        self.thaws.jobs.insert(serial, Job { pass: None, passes: 0, until });
        self.timers.after(FIRST, Timer::Thaw(serial));
    }

    /// Its wait is over.
    pub(crate) fn thaw_due(&mut self, serial: u64) {
        let begun = match self.unfinished_group(serial) {
            Some(group) => group.thaw_below(),
            None => None,
        };
        let job = self.thaws.jobs.get_mut(&serial).filter(|job| job.pass.is_none() && clock::monotonic() < job.until);
        match (job, begun) {
            (Some(job), Some(pass)) => {
                job.pass = Some(pass);
                self.thaws.ready.push_back(serial);
            }
            _ => drop(self.thaws.jobs.remove(&serial)),
        }
    }

    /// A piece of the next one that is not waiting.
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

    /// The group of a container or command that was killed, while something of it lives.
    fn unfinished_group(&self, serial: u64) -> Option<&Group> {
        let lives = |group: &&Group| !group.is_empty().unwrap_or(true);
        if let Some(child) = self.containers.get(&serial) {
            return child.group().filter(|group| !child.has_ended() || lives(group));
        }
        let command = self.commands.get(&serial)?;
        Some(command.group()).filter(|group| command.stage != CommandStage::Left || lives(group))
    }
}
