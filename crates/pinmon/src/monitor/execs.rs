//! Execs: their end, and the removal of their cgroups.

use monitor_api::{Failure, FailureKind};

use super::Monitor;
use crate::{
    containers::Container,
    exec::{ExecDue, ExecEnd},
    failure::state,
    process::{ProcessExit, is_alive, is_ending},
    removal::AfterRemoval,
};

impl Monitor {
    /// Handles the deadline to execve, and that of reaping a killed process.
    pub(crate) fn exec_due(&mut self, serial: u64) {
        match self.execs.due(serial, &mut self.services) {
            ExecDue::Nothing => {}
            ExecDue::Killed => self.thaws.schedule(serial, &mut self.services.timers),
            ExecDue::GivenUp => self.finish_exec(serial, ProcessExit::UNKNOWN),
        }
    }

    /// Handles a reaped child that is neither a container nor a log writer: an exec'd process or an orphan.
    pub(super) fn exec_reaped(&mut self, pid: i32, exit: ProcessExit) {
        let Some(serial) = self.execs.with_pid(pid) else { return };
        // It may have reached execve and exited since its messages were handled.
        self.execs.advance(serial, &mut self.services);
        if self.execs.get(serial).is_some_and(|exec| exec.has_pid(pid)) {
            self.finish_exec(serial, exit);
        }
    }

    /// Ends an exec that was reaped, or is not waited for any longer, and reports it.
    fn finish_exec(&mut self, serial: u64, exit: ProcessExit) {
        let end = self.execs.finish(serial, exit, &mut self.services);
        self.sweep_leftovers(serial, 0);
        match end {
            None => {}
            Some(ExecEnd::Exited(event)) => self.services.notify(event),
            Some(ExecEnd::Failed { request_id, container, failure }) => {
                let failure = self.exec_failure(&container, failure);
                self.services.reply(request_id, Err(failure));
            }
        }
    }

    /// Returns the failure of an exec; a system error is reported as an exit of the container if the container is
    /// exiting.
    pub(crate) fn exec_failure(&self, container: &str, failure: Failure) -> Failure {
        let runs = |container: &Container| container.pidfd().is_some_and(is_alive) && !is_ending(container.pid());
        let is_running = self.containers.find(container).is_some_and(|(_, container)| runs(container));
        if is_running || failure.kind != FailureKind::System {
            return failure;
        }
        state("exec in", container, &format!("the container exited in the meantime ({})", failure.message))
    }

    /// Forgets a reaped exec without leftover processes, or checks it again in increasing intervals.
    pub(crate) fn sweep_leftovers(&mut self, serial: u64, tries: u32) {
        self.sweep_exec(serial);
        self.execs.sweep_later(serial, tries, &mut self.services);
    }

    /// Sweeps all execs after an upgrade.
    pub(crate) fn sweep_all_leftovers(&mut self) {
        for serial in self.execs.leftovers().collect::<Vec<u64>>() {
            self.sweep_leftovers(serial, 0);
        }
    }

    /// Forgets a reaped exec without leftover processes, and removes its cgroup.
    pub(crate) fn sweep_exec(&mut self, serial: u64) {
        if let Some(group) = self.execs.sweep(serial) {
            self.remove_group(group, AfterRemoval::Nothing);
        }
    }

    /// Kills execs with all their descendants.
    pub(super) fn kill_execs(&mut self, serials: Vec<u64>) {
        for serial in serials {
            if let Some(exec) = self.execs.get(serial) {
                exec.kill();
            }
            self.thaws.schedule(serial, &mut self.services.timers);
            self.sweep_exec(serial);
        }
    }
}
