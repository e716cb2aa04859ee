//! Exit of a container: its remaining output is written to its log, for a limited time.

use std::time::Duration;

use monitor_api::{Event, ExitStatus};

use super::Monitor;
use crate::{
    clock,
    containers::{Container, Stage},
    event::Timer,
    failure::state,
    log_writer::order::EndPhase,
    process::{ExitLookup, ProcessExit, look_up_exit},
};

/// Number of attempts, and the first interval, to get the status of a process that has not been reaped by its parent.
const TRIES: u32 = 12;
const FIRST: Duration = Duration::from_millis(1);
/// Interval in which the remaining output of an exited container is checked. Another process may hold its pipes open.
const DRAIN_INTERVAL: Duration = Duration::from_millis(250);
/// Time after which the exit is reported although output remains: if the log hangs, and if it is only slow. The output
/// is still written.
const REPORT_IF_STUCK: Duration = Duration::from_secs(2);
const REPORT_AT_LATEST: Duration = Duration::from_secs(12);

impl Monitor {
    /// Checks a process that may not be a child of this one. Its status is known once its parent has reaped it.
    pub(crate) fn check_exit(&mut self, serial: u64, tries: u32) {
        let Some(container) = self.containers.get(serial) else { return };
        let Some(pidfd) = container.pidfd().filter(|_| !container.has_ended()) else { return };
        let exit = match look_up_exit(pidfd, container.pid(), container.description.start_time) {
            ExitLookup::Exited(exit) => exit,
            ExitLookup::NotReaped if tries < TRIES => {
                return self.services.timers.after(FIRST * (1 << tries), Timer::Exit(serial, tries + 1));
            }
            ExitLookup::NotReaped | ExitLookup::Unknown => ProcessExit::UNKNOWN,
            ExitLookup::Alive => return,
        };
        self.process_ended(serial, exit);
    }

    /// Handles the exit of a container's process. The remaining processes of its cgroup are killed, and its output is
    /// drained.
    pub(crate) fn process_ended(&mut self, serial: u64, exit: ProcessExit) {
        let ProcessExit { code, signal } = exit;
        self.ended(serial, ExitStatus { code, signal, oom_killed: false, at: clock::realtime() });
    }

    /// Handles the exit of a container with this status, to which the OOM kills of its cgroup are added.
    pub(crate) fn ended(&mut self, serial: u64, exit: ExitStatus) {
        // It may have reached execve and exited at once; then `Start` is answered first.
        self.advance_container(serial);
        let is_current = |container: &&mut Container| !container.has_ended() && !container.is_undone_by_runtime();
        let Some(container) = self.containers.get_mut(serial).filter(is_current) else { return };
        let (setup, request_id) = match container.change() {
            Stage::Created(setup) => (Some(setup), None),
            Stage::Starting(setup, request_id) => (Some(setup), Some(request_id)),
            _ => (None, None),
        };
        if let Some(setup) = setup {
            self.services.epoll.forget(setup.sync());
            container.keep(setup);
        }
        let was_killed = exit.code == Some(128 + libc::SIGKILL) || exit.signal == Some(libc::SIGKILL);
        let oom_kills = self
            .oom_kills
            .of_exited(&self.node.trees, serial, &container.description.cgroup, was_killed)
            .unwrap_or_else(|| container.group.as_ref().map_or(0, cgroup::Group::oom_kills));
        let at = if exit.at == 0 { clock::realtime() } else { exit.at };
        let status = ExitStatus { oom_killed: exit.oom_killed || oom_kills > 0, at, ..exit };
        container.stage = Stage::Draining(status);
        container.stdin = None;
        container.kill_remaining();
        if let Some(pidfd) = &container.pidfd {
            self.services.epoll.forget(pidfd);
        }
        if let Some(output) = self.outputs.map.get_mut(serial) {
            output.ended_at = clock::monotonic();
        }
        if let Some(request_id) = request_id {
            let failure = state("start", &container.description.id, "its process exited without reporting an error");
            self.services.reply(request_id, Err(failure));
        }
        self.drain(serial, false);
    }

    /// Drains the output of an exited container, and reports its exit when that is done or takes too long.
    ///
    /// `grace_is_over`: processes of others that hold the output open had time to write.
    pub(crate) fn drain(&mut self, serial: u64, grace_is_over: bool) {
        let Some(container) = self.containers.get(serial) else { return };
        let Some(output) = self.outputs.map.get_mut(serial) else { return };
        if !matches!(container.stage, Stage::Draining(_)) {
            return;
        }
        if !output.is_open() {
            return self.report_exit(serial);
        }
        // No process of the container can write any longer, and output of others that hold the FIFO open is not waited
        // for.
        let group_is_empty = container.group.as_ref().is_some_and(|group| group.is_empty().unwrap_or(false));
        if group_is_empty && output.is_empty() {
            return self.drained(serial);
        }
        output.end(if group_is_empty || grace_is_over { EndPhase::Final } else { EndPhase::Ended });
        let since = clock::monotonic().saturating_sub(output.ended_at);
        let (place, awaits_log) = (output.place, output.awaits_log);
        self.outputs.hand_over(serial, &mut self.services);
        let is_stuck = || awaits_log || self.outputs.is_stuck(place);
        if since >= REPORT_AT_LATEST || (since >= REPORT_IF_STUCK && is_stuck()) {
            return self.report_exit(serial);
        }
        self.services.timers.after(DRAIN_INTERVAL, Timer::Drain(serial));
    }

    /// Handles the end of a container's output: all of it is in the log.
    pub(super) fn drained(&mut self, serial: u64) {
        let place = self.outputs.finish(serial, &mut self.services);
        match self.containers.get(serial).map(|container| (&container.stage, &container.description.id)) {
            Some((Stage::Draining(_), _)) => self.report_exit(serial),
            Some((_, id)) => self.services.notify(Event::Drained { container: id.clone() }),
            None => {}
        }
        // Sent last, because no request waits for the close.
        if let Some(place) = place {
            self.outputs.send_orders(place, &mut self.services);
        }
    }

    /// Reports the exit of a container.
    fn report_exit(&mut self, serial: u64) {
        let Some(container) = self.containers.get_mut(serial) else { return };
        let Stage::Draining(status) = container.change() else { return };
        container.stage = Stage::Exited(status.clone());
        let (id, deleted) = (container.description.id.clone(), !container.deletes.is_empty());
        let output = self.outputs.map.get_mut(serial);
        let is_pending = output.as_ref().is_some_and(|output| output.is_open());
        if let Some(output) = output.filter(|_| !is_pending) {
            // Close the clients of a container without output.
            output.close(false);
        }
        self.kill_execs(self.execs.in_container(&id).collect());
        if is_pending {
            self.services.notify(Event::OutputPending { container: id.clone() });
        }
        self.services.notify(Event::Exited { container: id, status });
        if deleted {
            self.try_remove(serial);
        }
    }
}
