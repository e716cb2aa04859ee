//! The end of a container: its output is brought to where it belongs, as far as that can be waited for.

use std::time::Duration;

use monitor_api::{Event, ExitStatus};

use crate::{
    child::{Child, Stage},
    clock,
    failure::state,
    log_writer::order::End,
    monitor::Monitor,
    process,
    timer::Timer,
};

/// How long a container that ended may keep its output open (by a descriptor that somebody else holds).
const DRAIN: Duration = Duration::from_millis(250);
/// Its end is reported so late at the latest when its log hangs, and when it is only slow. Its output is moved all the
/// same.
const HANGS: Duration = Duration::from_secs(2);
const SLOW: Duration = Duration::from_secs(12);

impl Monitor {
    /// A container's process ended: what it left in its group ends too, its output is brought home.
    pub(crate) fn process_ended(&mut self, serial: u64, end: process::End) {
        // It may have come to execve and to its end at once: whoever asked for the start is answered first.
        self.advance(serial);
        let Some(child) = self.containers.get_mut(&serial).filter(|child| !child.has_ended()) else { return };
        let (nascent, asked) = match child.change() {
            Stage::Created(nascent) => (Some(nascent), None),
            Stage::Starting(nascent, asked) => (Some(nascent), Some(asked)),
            _ => (None, None),
        };
        if let Some(nascent) = nascent {
            self.epoll.forget(nascent.sync());
            child.keep(nascent);
        }
        let oom_killed = child.group.as_ref().is_some_and(|group| group.oom_kills() > 0);
        let status = ExitStatus { code: end.code, signal: end.signal, oom_killed, at: clock::realtime() };
        child.stage = Stage::Draining(status);
        child.stdin = None;
        kill_rest(child);
        if let Some(pidfd) = &child.pidfd {
            self.epoll.forget(pidfd);
        }
        let ended = state("start", &child.id, "its process ended and did not say why");
        child.output.ended_at = clock::monotonic();
        if let Some(asked) = asked {
            self.reply(asked, Err(ended));
        }
        self.drain(serial, false);
    }

    /// Has the rest of a container's output moved, and reports its end when that is done or cannot be waited for.
    /// `late`: who else holds its output open had its time.
    pub(crate) fn drain(&mut self, serial: u64, late: bool) {
        let Some(child) = self.containers.get_mut(&serial) else { return };
        if !matches!(child.stage, Stage::Draining(_)) {
            return;
        }
        if !child.output.is_open() {
            return self.report_exit(serial);
        }
        // No process of the container is left that could write: what else keeps the FIFO open adds nothing.
        let alone = child.group.as_ref().is_some_and(|group| group.is_empty().unwrap_or(false));
        if alone && child.output.is_empty() {
            return self.drained(serial);
        }
        child.output.end(if alone || late { End::Final } else { End::Ended });
        let (since, place) = (clock::monotonic().saturating_sub(child.output.ended_at), child.output.place);
        let awaits_log = child.output.awaits_log;
        self.hand_over(serial);
        if since >= SLOW || (since >= HANGS && (awaits_log || self.writers.is_stuck(place))) {
            return self.report_exit(serial);
        }
        self.timers.after(DRAIN, Timer::Drain(serial));
    }

    /// Reports the end of a container.
    pub(crate) fn report_exit(&mut self, serial: u64) {
        let Some(child) = self.containers.get_mut(&serial) else { return };
        let Stage::Draining(status) = child.change() else { return };
        child.stage = Stage::Exited(status.clone());
        if !child.output.is_open() {
            // Clients of a container without output of its own.
            child.output.close(false);
        }
        let container = child.id.clone();
        let (deleted, pending) = (!child.deletes.is_empty(), child.output.is_open());
        self.end_commands_of(&container);
        if pending {
            self.tell(Event::OutputPending { container: container.clone() });
        }
        self.tell(Event::Exited { container, status });
        if deleted {
            self.try_remove(serial);
        }
    }
}

/// A container that shares its PID namespace may leave processes behind; nothing else ends them.
fn kill_rest(child: &Child) {
    if let Some(group) = &child.group
        && !group.is_empty().unwrap_or(true)
        && let Err(error) = group.kill()
    {
        eprintln!("pinmon: kill what container {} left: {error}", child.id);
    }
}
