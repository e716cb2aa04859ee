//! Exit of a container: its remaining output is written to its log, for a limited time.

use std::time::Duration;

use monitor_api::{Event, ExitStatus};

use crate::{
    child::{Child, Stage},
    clock,
    failure::state,
    log_writer::order::EndPhase,
    monitor::Monitor,
    process,
    timer::Timer,
};

/// Interval in which the remaining output of an exited container is checked. Another process may hold its pipes open.
const DRAIN_INTERVAL: Duration = Duration::from_millis(250);
/// Time after which the exit is reported although output remains: if the log hangs, and if it is only slow. The output
/// is still written.
const REPORT_IF_STUCK: Duration = Duration::from_secs(2);
const REPORT_AT_LATEST: Duration = Duration::from_secs(12);

impl Monitor {
    /// Handles the exit of a container's process. The remaining processes of its cgroup are killed, and its output is
    /// drained.
    pub(crate) fn process_ended(&mut self, serial: u64, exit: process::ProcessExit) {
        // It may have reached execve and exited at once; then `Start` is answered first.
        self.advance(serial);
        let Some(child) = self.containers.get_mut(&serial).filter(|child| !child.has_ended()) else { return };
        let (setup, request_id) = match child.change() {
            Stage::Created(setup) => (Some(setup), None),
            Stage::Starting(setup, request_id) => (Some(setup), Some(request_id)),
            _ => (None, None),
        };
        if let Some(setup) = setup {
            self.epoll.forget(setup.sync());
            child.keep(setup);
        }
        let oom_killed = child.group.as_ref().is_some_and(|group| group.oom_kills() > 0);
        let status = ExitStatus { code: exit.code, signal: exit.signal, oom_killed, at: clock::realtime() };
        child.stage = Stage::Draining(status);
        child.stdin = None;
        kill_remaining(child);
        if let Some(pidfd) = &child.pidfd {
            self.epoll.forget(pidfd);
        }
        let failure = state("start", &child.id, "its process exited without reporting an error");
        child.output.ended_at = clock::monotonic();
        if let Some(request_id) = request_id {
            self.reply(request_id, Err(failure));
        }
        self.drain(serial, false);
    }

    /// Drains the output of an exited container, and reports its exit when that is done or takes too long.
    ///
    /// `grace_is_over`: processes of others that hold the output open had time to write.
    pub(crate) fn drain(&mut self, serial: u64, grace_is_over: bool) {
        let Some(child) = self.containers.get_mut(&serial) else { return };
        if !matches!(child.stage, Stage::Draining(_)) {
            return;
        }
        if !child.output.is_open() {
            return self.report_exit(serial);
        }
        // No process of the container can write any longer, and output of others that hold the FIFO open is not waited
        // for.
        let group_is_empty = child.group.as_ref().is_some_and(|group| group.is_empty().unwrap_or(false));
        if group_is_empty && child.output.is_empty() {
            return self.drained(serial);
        }
        child.output.end(if group_is_empty || grace_is_over { EndPhase::Final } else { EndPhase::Ended });
        let (since, place) = (clock::monotonic().saturating_sub(child.output.ended_at), child.output.place);
        let awaits_log = child.output.awaits_log;
        self.hand_over(serial);
        if since >= REPORT_AT_LATEST || (since >= REPORT_IF_STUCK && (awaits_log || self.writers.is_stuck(place))) {
            return self.report_exit(serial);
        }
        self.timers.after(DRAIN_INTERVAL, Timer::Drain(serial));
    }

    /// Reports the exit of a container.
    pub(crate) fn report_exit(&mut self, serial: u64) {
        let Some(child) = self.containers.get_mut(&serial) else { return };
        let Stage::Draining(status) = child.change() else { return };
        child.stage = Stage::Exited(status.clone());
        if !child.output.is_open() {
            // Close the clients of a container without output.
            child.output.close(false);
        }
        let container = child.id.clone();
        let (deleted, pending) = (!child.deletes.is_empty(), child.output.is_open());
        self.kill_execs_of(&container);
        if pending {
            self.notify_daemon(Event::OutputPending { container: container.clone() });
        }
        self.notify_daemon(Event::Exited { container, status });
        if deleted {
            self.try_remove(serial);
        }
    }
}

/// Kills the processes that a container without its own PID namespace left in its cgroup.
fn kill_remaining(child: &Child) {
    if let Some(group) = &child.group
        && !group.is_empty().unwrap_or(true)
        && let Err(error) = group.kill()
    {
        eprintln!("pinmon: kill leftover processes of container {}: {error}", child.id);
    }
}
