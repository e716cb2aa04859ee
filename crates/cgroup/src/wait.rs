//! Waits for changes of a group, by kernel notification if available, else by polling.

use std::time::{Duration, Instant};

use rustix::{
    event::{PollFd, PollFlags, Timespec},
    fd::OwnedFd,
    fs::OFlags,
    io::Errno,
};

use crate::{Group, tree::read_all};

/// The longest interval between two checks: the awaited state may be that of a v1 tree, for which v2 does not notify.
const INTERVAL: Duration = Duration::from_millis(20);
/// The first interval without notifications (v1 only); it doubles up to `INTERVAL`.
const FIRST_INTERVAL: Duration = Duration::from_micros(50);

/// A wait with a deadline: `loop { arm; check; if !next() { give up } }`.
pub(crate) struct Wait {
    /// `cgroup.events` of v2.
    events: Option<OwnedFd>,
    deadline: Instant,
    pause: Duration,
}

impl Wait {
    pub(crate) fn new(group: &Group, seconds: u64) -> Self {
        let events =
            group.trees.v2().and_then(|tree| tree.open(&group.file(tree, "cgroup.events"), OFlags::RDONLY).ok());
        Self { events, deadline: Instant::now() + Duration::from_secs(seconds), pause: FIRST_INTERVAL }
    }

    /// Arms the notification: later changes end the next wait. To be called before the check.
    pub(crate) fn arm(&self) {
        if let Some(events) = &self.events {
            // Reading the file arms the notification. If the group does not exist, the interval bounds the wait.
            let _: Result<String, Errno> = read_all(events);
        }
    }

    /// Waits for a change. Returns false if the deadline has passed.
    pub(crate) fn next(&mut self) -> bool {
        let remaining = self.deadline.saturating_duration_since(Instant::now());
        if remaining.is_zero() {
            return false;
        }
        let pause = if self.events.is_some() { INTERVAL } else { self.pause }.min(remaining);
        self.pause = (self.pause * 2).min(INTERVAL);
        let timeout = Timespec { tv_sec: pause.as_secs() as i64, tv_nsec: i64::from(pause.subsec_nanos()) };
        let mut fds: Vec<PollFd<'_>> = self.events.iter().map(|fd| PollFd::new(fd, PollFlags::PRI)).collect();
        let _ = rustix::event::poll(&mut fds, Some(&timeout));
        true
    }
}
