//! Output on its way, and the end of a container once all of it is where it belongs.

use std::time::Duration;

use monitor_api::{Event, ExitStatus};

use crate::{
    child::{Child, Stage},
    clock,
    failure::state,
    monitor::Monitor,
    process::End,
    timer::Timer,
};

/// How long a container that ended may keep its output open (by a descriptor that somebody else holds).
const DRAIN: Duration = Duration::from_millis(250);

impl Monitor {
    /// Moves what there is of a container's output; `late`: it ended and had its time.
    pub(crate) fn move_output(&mut self, serial: u64, late: bool) {
        let Self { containers, pump, timers, busy, .. } = self;
        let Some(child) = containers.get_mut(&serial) else { return };
        let last = child.has_ended();
        let round = child.output.round(pump, &child.id, last, late);
        for (kind, after) in round.rests {
            timers.after(after, Timer::Rest(serial, kind.word()));
        }
        if round.more {
            busy.push_back(serial);
        }
        let rests = child.output.taps.rest();
        if let Some(until) = child.output.taps.deadline() {
            timers.at(until, Timer::Taps(serial));
        }
        let news = child.output.sink.take_news().map(|dropped| Event::LogFailed {
            container: child.id.clone(),
            message: dropped.message,
            dropped: dropped.total,
        });
        let draining = matches!(child.stage, Stage::Draining(_)) && !round.more;
        // No process of the container is left that could write: what else keeps the FIFO open adds nothing.
        let alone = draining && !late && child.group.as_ref().is_some_and(|group| group.is_empty().unwrap_or(false));
        let more = alone && !rests && !child.output.ended() && child.output.round(pump, &child.id, true, true).more;
        if more {
            busy.push_back(serial);
        }
        let done = draining && !more && (alone || late || child.output.ended());
        if let Some(news) = news {
            self.tell(news);
        }
        match (done, rests) {
            (true, false) => self.report_exit(serial),
            // An attached client holds up the last output: it has its own patience.
            (true, true) => self.timers.after(DRAIN, Timer::Drain(serial)),
            (false, _) => {}
        }
    }

    /// A container's process ended: what it left in its group ends too, its output is brought home.
    pub(crate) fn process_ended(&mut self, serial: u64, end: End) {
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
        self.timers.after(DRAIN, Timer::Drain(serial));
        if let Some(asked) = asked {
            self.reply(asked, Err(ended));
        }
        self.move_output(serial, false);
    }

    fn report_exit(&mut self, serial: u64) {
        let Some(child) = self.containers.get_mut(&serial) else { return };
        let Stage::Draining(status) = child.change() else { return };
        child.stage = Stage::Exited(status.clone());
        child.output.close(&self.epoll);
        let container = child.id.clone();
        let deleted = !child.deletes.is_empty();
        self.end_commands_of(&container);
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
