//! The end of processes: they are reaped, waited for, and removed.

use std::time::Duration;

use agent_api::{ProcessId, Reply};
use cgroup::RemovalStatus;
use rustix::process::{Signal, WaitOptions, WaitStatus, pidfd_send_signal, wait};

use crate::{
    agent::{Agent, GroupRemoval},
    clock,
    connection::Caller,
    failure::system,
    process::{Outcome, Stage},
    pump::{Direction, Pump},
};

/// Maximum number of cgroups removed in one iteration.
const STEP: usize = 64;
/// How long killed processes may take to leave a cgroup.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(10);

impl Agent {
    /// Reaps all children that have exited: processes of the pod, and orphans.
    pub(crate) fn reap(&mut self) {
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            let owner = self.processes.values().find(|process| process.is_alive() && process.setup.pid == pid);
            if let Some(id) = owner.map(|process| process.id.clone()) {
                self.exited(&id, status);
            }
        }
    }

    fn exited(&mut self, id: &ProcessId, status: WaitStatus) {
        // What it reported before comes first: that it has executed its program, or why it failed.
        if self.processes.get(id).is_some_and(|process| process.reports()) {
            self.advance(id);
        }
        let Some(process) = self.processes.get_mut(id) else { return };
        let has_failed = process.stage == Stage::Failed;
        process.exited(status);
        self.pumps.values_mut().filter(|pump| pump.owner == *id).for_each(Pump::process_exited);
        let (pending, deleting) = (process.pending.take(), process.deleting.take());
        if let Some(caller) = pending {
            let cause = "the process ended before it could execute its command";
            let failure = system(format_args!("start {}", crate::failure::name(id)), cause);
            self.answer(caller, Err(failure));
        }
        if has_failed || deleting.is_some() {
            self.remove(id, deleting);
        }
    }

    /// Answers the calls that wait for processes that have exited, once their output was written.
    pub(crate) fn answer_waiting(&mut self) {
        let exited = self.processes.values().filter(|process| !process.is_alive() && !process.waiting.is_empty());
        let ids: Vec<ProcessId> = exited.map(|process| process.id.clone()).collect();
        for id in ids {
            let mut outputs =
                self.pumps.values_mut().filter(|pump| pump.owner == id && pump.direction == Direction::Output);
            let is_written = outputs.all(Pump::finish);
            let Some(process) = self.processes.get_mut(&id).filter(|_| is_written) else { continue };
            let Stage::Exited(exit) = process.stage else { continue };
            for caller in std::mem::take(&mut process.waiting) {
                self.answer(caller, Ok(Reply::Exited(exit)));
            }
        }
    }

    /// Removes a process from the records; kills it first. The caller is answered when it is gone.
    pub(crate) fn delete(&mut self, caller: Caller, id: &ProcessId) -> Outcome<Option<Reply>> {
        let Some(process) = self.processes.get_mut(id) else { return Ok(Some(Reply::Done)) };
        if !process.is_alive() {
            self.remove(id, Some(caller));
            return Ok(None);
        }
        process.group().kill().map_err(|error| system(format_args!("kill {}", crate::failure::name(id)), error))?;
        let _ = pidfd_send_signal(&process.setup.pidfd, Signal::KILL);
        if let Some(earlier) = process.deleting.replace(caller) {
            self.answer(earlier, Ok(Reply::Done));
        }
        Ok(None)
    }

    /// Forgets a process that was reaped, and removes its cgroup.
    pub(crate) fn remove(&mut self, id: &ProcessId, caller: Option<Caller>) {
        let Some(process) = self.processes.remove(id) else { return };
        self.pumps.retain(|_, pump| pump.owner != *id);
        for waiting in process.waiting {
            self.answer(waiting, Err(crate::failure::unknown("wait for", id)));
        }
        let is_container = id.exec.is_none();
        if is_container {
            let execs: Vec<ProcessId> =
                self.processes.keys().filter(|other| other.container == id.container).cloned().collect();
            execs.iter().for_each(|exec| self.forget_exec(exec));
            // Processes of the container that are in no PID namespace of its own outlive its first one.
            let _ = process.setup.group.kill();
        }
        let until = if is_container { clock::monotonic() + REMOVAL_TIMEOUT } else { Duration::ZERO };
        match process.setup.group.removal() {
            Ok(removal) => self.removals.push(GroupRemoval { removal, caller, until }),
            Err(error) => {
                caller.into_iter().for_each(|caller| self.answer(caller, Err(system("remove a cgroup", &error))));
            }
        }
    }

    /// Forgets an exec whose container is removed, and with it the exec's cgroup.
    fn forget_exec(&mut self, id: &ProcessId) {
        let Some(process) = self.processes.remove(id) else { return };
        self.pumps.retain(|_, pump| pump.owner != *id);
        let callers = process.waiting.into_iter().chain(process.pending);
        for caller in callers {
            self.answer(caller, Err(crate::failure::unknown("wait for", id)));
        }
        process.deleting.into_iter().for_each(|caller| self.answer(caller, Ok(Reply::Done)));
    }

    /// Continues the removals of cgroups.
    pub(crate) fn remove_groups(&mut self) {
        for mut job in std::mem::take(&mut self.removals) {
            let result = match job.removal.step(STEP) {
                Ok(RemovalStatus::Done) => Ok(Reply::Done),
                Ok(_) if clock::monotonic() < job.until => {
                    self.removals.push(job);
                    continue;
                }
                // What an exec leaves running is removed with its container.
                Ok(_) if job.until.is_zero() => Ok(Reply::Done),
                Ok(_) => Err(system("remove a container", job.removal.timeout_error())),
                Err(error) => Err(system("remove a container", error)),
            };
            job.caller.into_iter().for_each(|caller| self.answer(caller, result.clone()));
        }
    }
}
