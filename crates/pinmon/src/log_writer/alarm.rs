//! Alarm of a log writer. The writer sets it before a step that may hang, and the monitor is notified when it expires.

use std::{io, time::Duration};

use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime},
};

/// Time until the alarm expires, and the age at which it is set again by the next step.
const EXPIRY: Duration = Duration::from_millis(200);
const RENEWAL: Duration = Duration::from_millis(100);
/// A step that has taken this long when the alarm expires is the reason for it.
pub(crate) const LATE: Duration = Duration::from_millis(100);

/// A timer shared by monitor and log writer.
#[derive(Debug)]
pub(crate) struct Alarm(OwnedFd);

impl Alarm {
    /// Creates an alarm that is not set.
    pub(crate) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        Ok(Self(timerfd_create(TimerfdClockId::Monotonic, flags)?))
    }

    /// Acknowledges an expiration.
    pub(crate) fn acknowledge(&self) {
        // Nothing to read: it was acknowledged before, or set again.
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }

    fn set(&self, expires: Duration) {
        let expires = Timespec { tv_sec: expires.as_secs() as i64, tv_nsec: i64::from(expires.subsec_nanos()) };
        let once = Itimerspec { it_interval: Timespec::default(), it_value: expires };
        // It fails only for invalid times.
        let _ = timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &once);
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The alarm in the log writer.
pub(super) struct AlarmControl<'a> {
    alarm: &'a Alarm,
    set_at: Option<Duration>,
}

impl<'a> AlarmControl<'a> {
    pub(super) fn of(alarm: &'a Alarm) -> Self {
        Self { alarm, set_at: None }
    }

    /// Sets the alarm for a step that begins at this moment, unless it was set recently.
    pub(super) fn begin(&mut self, now: Duration) {
        if self.set_at.is_none_or(|at| now.saturating_sub(at) >= RENEWAL) {
            self.alarm.set(EXPIRY);
            self.set_at = Some(now);
        }
    }

    /// Stops the alarm after all steps.
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
    fn it_expires_unless_it_is_stopped_in_time() {
        let alarm = Alarm::new().expect("timerfd");
        let expires = |patience: i64| {
            let patience = Timespec { tv_sec: patience, tv_nsec: 0 };
            poll(&mut [PollFd::new(&alarm, PollFlags::IN)], Some(&patience)).expect("poll") == 1
        };
        let mut control = AlarmControl::of(&alarm);
        control.begin(Duration::ZERO);
        assert!(expires(10));
        alarm.acknowledge();
        assert!(!expires(0));
        control.begin(RENEWAL);
        control.stop();
        assert!(!expires(1));
    }
}
