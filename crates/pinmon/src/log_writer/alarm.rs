//! The alarm of a log writer. It sets it before it touches anything that may hang, and it rings at the monitor.

use std::{io, time::Duration};

use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime},
};

/// How long after it was set it rings, and how old it may be when a step begins.
const RINGS: Duration = Duration::from_millis(200);
const RENEWED: Duration = Duration::from_millis(100);
/// A step that takes so long when it rings is why it rings.
pub(crate) const LATE: Duration = Duration::from_millis(100);

/// A timer that monitor and writer share.
#[derive(Debug)]
pub(crate) struct Alarm(OwnedFd);

impl Alarm {
    /// Not set.
    pub(crate) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        Ok(Self(timerfd_create(TimerfdClockId::Monotonic, flags)?))
    }

    /// Takes note of its ringing.
    pub(crate) fn heard(&self) {
        // Nothing to read: it rang before, or was set again.
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }

    fn set(&self, rings: Duration) {
        let rings = Timespec { tv_sec: rings.as_secs() as i64, tv_nsec: i64::from(rings.subsec_nanos()) };
        let once = Itimerspec { it_interval: Timespec::default(), it_value: rings };
        // It fails for invalid times only.
        let _ = timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &once);
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The writer's side.
pub(super) struct Setting<'a> {
    alarm: &'a Alarm,
    set_at: Option<Duration>,
}

impl<'a> Setting<'a> {
    pub(super) fn of(alarm: &'a Alarm) -> Self {
        Self { alarm, set_at: None }
    }

    /// A step begins at this moment.
    pub(super) fn begin(&mut self, now: Duration) {
        if self.set_at.is_none_or(|at| now.saturating_sub(at) >= RENEWED) {
            self.alarm.set(RINGS);
            self.set_at = Some(now);
        }
    }

    /// All steps are done.
    pub(super) fn stop(&mut self) {
        if self.set_at.take().is_some() {
            self.alarm.set(Duration::ZERO);
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, poll};

    use super::*;

    #[test]
    fn it_rings_when_it_is_not_stopped_in_time() {
        let alarm = Alarm::new().expect("timerfd");
        let rings = |patience: i64| {
            let patience = Timespec { tv_sec: patience, tv_nsec: 0 };
            poll(&mut [PollFd::new(&alarm, PollFlags::IN)], Some(&patience)).expect("poll") == 1
        };
        let mut setting = Setting::of(&alarm);
        setting.begin(Duration::ZERO);
        assert!(rings(10));
        alarm.heard();
        assert!(!rings(0));
        setting.begin(RENEWED);
        setting.stop();
        assert!(!rings(1));
    }
}
