//! Waiting for a group to change, by the kernel's notification where there is one.

use std::time::{Duration, Instant};

use rustix::{
    event::{PollFd, PollFlags, Timespec},
    fd::OwnedFd,
    fs::OFlags,
    io::Errno,
};

use crate::{Group, tree::read_all};

/// Longest wait between two looks: what is waited for may be a v1 tree's state, of which v2 does not tell.
const LOOK: Duration = Duration::from_millis(20);
/// First wait between two looks where nothing tells of changes (v1 alone); doubles up to `LOOK`.
const FIRST_LOOK: Duration = Duration::from_micros(50);

/// `loop { arm; look; if !next() { give up } }`.
pub(crate) struct Wait {
    /// v2's `cgroup.events`.
    events: Option<OwnedFd>,
    deadline: Instant,
    pause: Duration,
}

impl Wait {
    pub(crate) fn new(group: &Group, seconds: u64) -> Self {
        let events =
            group.trees.v2().and_then(|tree| tree.open(&group.file(tree, "cgroup.events"), OFlags::RDONLY).ok());
        Self { events, deadline: Instant::now() + Duration::from_secs(seconds), pause: FIRST_LOOK }
    }

    /// Changes from here on end the next wait. To be called before the look.
    pub(crate) fn arm(&self) {
        if let Some(events) = &self.events {
            // Reading arms the notification. A group that is gone cannot be read: then the pause bounds the wait.
            let _: Result<String, Errno> = read_all(events);
        }
    }

    /// Waits for a change; false: the time is over.
    pub(crate) fn next(&mut self) -> bool {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        let pause = if self.events.is_some() { LOOK } else { self.pause }.min(left);
        self.pause = (self.pause * 2).min(LOOK);
        let timeout = Timespec { tv_sec: pause.as_secs() as i64, tv_nsec: i64::from(pause.subsec_nanos()) };
        let mut fds: Vec<PollFd<'_>> = self.events.iter().map(|fd| PollFd::new(fd, PollFlags::PRI)).collect();
        let _ = rustix::event::poll(&mut fds, Some(&timeout));
        true
    }
}
