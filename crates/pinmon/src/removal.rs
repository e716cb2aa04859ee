//! Removal of groups, a bounded piece in every turn of the loop: a container makes as many groups below its own as it
//! likes, and what was killed may take its time to be gone.
//!
//! ```text
//!  Delete ──▶ Then::Forget ─┐                       ┌─ Done ─▶ record forgotten, Deletes answered
//!  failed Create ─▶ Answer ─┼─▶ step, step, … ──────┼─ Busy ─▶ Timer::Remove, at most GIVE_UP without any progress
//!  command ended ─▶ Nothing ┘     (STEP groups each)└─ error ─▶ Timer::Remove, ERRORS_MAX times; then reported
//! ```

use std::time::Duration;

use cgroup::{Group, Removal, Removing};
use monitor_api::{Failure, HeldHooks};

use crate::{child::Stage, clock, connection::Asked, failure, monitor::Monitor, timer::Timer};

/// Groups that are removed or looked into in one turn of the loop: some milliseconds.
const STEP: usize = 64;
/// How long processes that were killed may take to be gone, after the last group that could be removed.
const GIVE_UP: Duration = Duration::from_secs(10);
/// First wait for them; twice as long each time, to 2^5 times.
const FIRST: Duration = Duration::from_millis(5);
const WAITS_MAX: u32 = 5;
/// How often a step that failed is repeated, with waits like those for processes: over half a second. An error of the
/// moment, such as ENOMEM, must not leave the group of a command behind.
const ERRORS_MAX: u32 = 8;
/// Most pids that an answer names.
const PIDS_MAX: usize = 10;

/// What becomes of it when the group is gone.
pub(crate) enum Then {
    Nothing,
    /// The container of this serial is forgotten.
    Forget(u64),
    /// These are answered, after the hooks of a container's end.
    Answer(Option<Box<HeldHooks>>, Vec<(Asked, Result<(), Failure>)>),
}

/// A group on its way out.
pub(crate) struct Job {
    removal: Removal,
    then: Then,
    /// How often it was found in use since something was removed.
    tries: u32,
    /// How many steps failed.
    errors: u32,
    removed: u64,
    until: Duration,
}

fn wait_after(tries: u32) -> Duration {
    FIRST * (1 << tries.min(WAITS_MAX))
}

impl Job {
    /// Whether somebody waits for an answer.
    pub(crate) fn is_awaited(&self) -> bool {
        !matches!(self.then, Then::Nothing)
    }
}

impl Monitor {
    /// Removes the group and the record of a container that ended, and answers the `Delete`s.
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
        self.remove_group(group, Then::Forget(serial));
    }

    /// Removes a group whose processes are gone or were killed; an empty one at once.
    pub(crate) fn remove_group(&mut self, group: Group, then: Then) {
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
        self.removals.insert(serial, Job { removal, then, tries: 0, errors: 0, removed: 0, until });
        self.step_removal(serial);
    }

    /// A piece of the next one that is not waiting.
    pub(crate) fn remove_some(&mut self) {
        if let Some(serial) = self.removing.pop_front() {
            self.step_removal(serial);
        }
    }

    /// Its wait is over.
    pub(crate) fn removal_due(&mut self, serial: u64) {
        if self.removals.contains_key(&serial) {
            self.removing.push_back(serial);
        } else {
            // Of a program before this one: the container's.
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
            Ok(Removing::Pending) => return self.removing.push_back(serial),
            Ok(Removing::Done) => {
                let job = self.removals.remove(&serial);
                return job.map_or((), |job| self.group_removed(job.then));
            }
            Ok(Removing::Busy) if clock::monotonic() < job.until => {
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
            Ok(Removing::Busy) => job.removal.still_used(),
            Err(error) => error,
        };
        if let Some(job) = self.removals.remove(&serial) {
            self.removal_failed(job, &error);
        }
    }

    fn group_removed(&mut self, then: Then) {
        match then {
            Then::Nothing => {}
            Then::Forget(serial) => self.forget_container(serial),
            Then::Answer(hooks, answers) => self.stop_with_hooks(hooks.as_deref(), answers),
        }
    }

    fn removal_failed(&mut self, job: Job, error: &cgroup::Error) {
        let Job { removal, then, .. } = job;
        let Then::Forget(serial) = then else {
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
                format!("processes {pids:?} of its cgroup do not end; see what they wait for in /proc/<pid>/stack")
            }
        };
        (child.group, child.removing) = (Some(group), false);
        let failure = failure::state("delete", &child.id, &why);
        for asked in std::mem::take(&mut child.deletes) {
            self.reply(asked, Err(failure.clone()));
        }
    }

    /// Nothing of it is left in the kernel.
    fn forget_container(&mut self, serial: u64) {
        let Some(child) = self.containers.remove(&serial) else { return };
        self.commands.retain(|_, command| command.container != child.id);
        if let Some(pidfd) = &child.pidfd {
            self.epoll.forget(pidfd);
        }
        self.journals.forget(&child.id);
        self.release_output(serial, child.id, child.output);
        let answers = child.deletes.into_iter().map(|asked| (asked, Ok(()))).collect();
        self.stop_with_hooks(child.hooks.as_deref(), answers);
    }
}
