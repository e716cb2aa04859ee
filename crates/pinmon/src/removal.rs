//! Removal of cgroups, a limited number per iteration of the event loop: a container can create many cgroups below its
//! own, and killed processes may take time to exit.
//!
//! ```text
//!  Delete ──▶ Forget ───────┐                       ┌─ Done ─▶ record removed, `Delete`s answered
//!  failed Create ─▶ Answer ─┼─▶ step, step, … ──────┼─ Busy ─▶ Timer::Remove, at most GIVE_UP without any progress
//!  exec exited ─▶ Nothing ──┘    (STEP cgroups each)└─ error ─▶ Timer::Remove, ERRORS_MAX times; then reported
//! ```

use std::time::Duration;

use cgroup::{Group, Removal, RemovalStatus};
use monitor_api::{Failure, PendingHooks};

use crate::{child::Stage, clock, connection::RequestId, failure, monitor::Monitor, timer::Timer};

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

/// A cgroup that is being removed.
pub(crate) struct RemovalJob {
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
    pub(crate) fn is_awaited(&self) -> bool {
        !matches!(self.then, AfterRemoval::Nothing)
    }
}

impl Monitor {
    /// Removes the cgroup and the record of an exited container, and answers its `Delete`s.
    pub(crate) fn try_remove(&mut self, serial: u64) {
        let Some(child) = self.containers.get_mut(&serial) else { return };
        if !matches!(child.stage, Stage::Exited(_)) || child.deletes.is_empty() || child.removing {
            return;
        }
        let Some(group) = child.group.take() else { return self.forget_container(serial) };
        child.removing = true;
        if !group.is_empty().unwrap_or(true) {
            let _ = group.kill();
        }
        self.remove_group(group, AfterRemoval::Forget(serial));
    }

    /// Removes a cgroup whose processes exited or were killed. An empty one is removed immediately.
    pub(crate) fn remove_group(&mut self, group: Group, then: AfterRemoval) {
        let path = group.path().clone();
        let removal = match group.removal() {
            Ok(removal) => removal,
            Err(error) => {
                eprintln!("pinmon: remove cgroup {path}: {error}");
                return self.group_removed(then);
            }
        };
        let serial = self.next_serial();
        let until = clock::monotonic() + GIVE_UP;
        self.removals.insert(serial, RemovalJob { removal, then, tries: 0, errors: 0, removed: 0, until });
        self.step_removal(serial);
    }

    /// Performs a step of the next removal that is ready.
    pub(crate) fn remove_some(&mut self) {
        if let Some(serial) = self.ready_removals.pop_front() {
            self.step_removal(serial);
        }
    }

    /// Continues a removal after its wait.
    pub(crate) fn removal_due(&mut self, serial: u64) {
        if self.removals.contains_key(&serial) {
            self.ready_removals.push_back(serial);
        } else {
            // Timer of a previous program, which names the container.
            self.try_remove(serial);
        }
    }

    fn step_removal(&mut self, serial: u64) {
        let Some(job) = self.removals.get_mut(&serial) else { return };
        let outcome = job.removal.step(STEP);
        if job.removal.removed() > job.removed {
            (job.removed, job.tries) = (job.removal.removed(), 0);
            job.until = clock::monotonic() + GIVE_UP;
        }
        let error = match outcome {
            Ok(RemovalStatus::Pending) => return self.ready_removals.push_back(serial),
            Ok(RemovalStatus::Done) => {
                let job = self.removals.remove(&serial);
                return job.map_or((), |job| self.group_removed(job.then));
            }
            Ok(RemovalStatus::Busy) if clock::monotonic() < job.until => {
                if job.is_awaited() && job.tries.is_multiple_of(8) && job.tries > 0 {
                    let _ = job.removal.group().kill();
                }
                job.tries += 1;
                let wait = wait_after(job.tries);
                return self.timers.after(wait, Timer::Remove(serial));
            }
            Err(_) if job.errors < ERRORS_MAX => {
                job.errors += 1;
                let wait = wait_after(job.errors);
                return self.timers.after(wait, Timer::Remove(serial));
            }
            Ok(RemovalStatus::Busy) => job.removal.timeout_error(),
            Err(error) => error,
        };
        if let Some(job) = self.removals.remove(&serial) {
            self.removal_failed(job, &error);
        }
    }

    fn group_removed(&mut self, then: AfterRemoval) {
        match then {
            AfterRemoval::Nothing => {}
            AfterRemoval::Forget(serial) => self.forget_container(serial),
            AfterRemoval::Answer(hooks, answers) => self.stop_with_hooks(hooks.as_deref(), answers),
        }
    }

    fn removal_failed(&mut self, job: RemovalJob, error: &cgroup::Error) {
        let RemovalJob { removal, then, .. } = job;
        let AfterRemoval::Forget(serial) = then else {
            eprintln!("pinmon: remove cgroup {}: {error}", removal.group().path());
            return self.group_removed(then);
        };
        let Some(child) = self.containers.get_mut(&serial) else { return };
        let group = removal.into_group();
        let mut pids = group.pids().unwrap_or_default();
        pids.truncate(PIDS_MAX);
        let why = match pids.is_empty() {
            true => error.to_string(),
            false => {
                format!("processes {pids:?} of its cgroup do not exit; see /proc/<pid>/stack for what they wait for")
            }
        };
        (child.group, child.removing) = (Some(group), false);
        let failure = failure::state("delete", &child.id, &why);
        for request_id in std::mem::take(&mut child.deletes) {
            self.reply(request_id, Err(failure.clone()));
        }
    }

    /// Forgets a container that has no cgroup any longer.
    fn forget_container(&mut self, serial: u64) {
        let Some(child) = self.containers.remove(&serial) else { return };
        self.execs.retain(|_, exec| exec.container != child.id);
        if let Some(pidfd) = &child.pidfd {
            self.epoll.forget(pidfd);
        }
        self.journals.forget(&child.id);
        self.release_output(serial, child.id, child.output);
        let answers = child.deletes.into_iter().map(|request_id| (request_id, Ok(()))).collect();
        self.stop_with_hooks(child.hooks.as_deref(), answers);
    }
}
