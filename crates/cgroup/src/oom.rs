use rustix::{
    event::{EventfdFlags, eventfd},
    fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    fs::{OFlags, inotify},
};

use crate::{Error, Group, GroupPath, Hierarchies, controller::Controller};

impl Hierarchies {
    /// Returns the number of processes of a group (on v2: and its descendants) that the OOM killer killed so far
    /// (Linux 4.13). `None`: the group does not exist, or has no memory controller.
    pub fn oom_kills(&self, path: &GroupPath) -> Option<u64> {
        let tree = self.with(Controller::Memory)?;
        let file = if tree.v2 { "memory.events" } else { "memory.oom_control" };
        let text = tree.try_read(&format!("{}/{file}", path.relative())).ok()?;
        text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.parse().ok())
    }
}

impl Group {
    /// Returns the number of processes of this group (on v2: and its descendants) that the OOM killer killed so far
    /// (Linux 4.13). 0 without a memory controller, or if the group does not exist: call it before [`Group::remove`].
    pub fn oom_kills(&self) -> u64 {
        // An exec group on v2 has no memory files; its memory is charged to its parent.
        self.trees.oom_kills(&self.path).unwrap_or(0)
    }

    /// Returns how often the memory limit of this group was hit, not the limit of a group above or below: on v2 `oom`
    /// of `memory.events.local` (Linux 5.2), on v1 `memory.failcnt` (which also counts hits after which reclaim freed
    /// enough memory). 0 if that is not available.
    pub fn memory_limit_hits(&self) -> u64 {
        let Some(tree) = self.trees.with(Controller::Memory) else { return 0 };
        let read = |file: &str| tree.try_read(&format!("{}/{file}", self.path.relative())).unwrap_or_default();
        if tree.v2 {
            let text = read("memory.events.local");
            return text.lines().find_map(|line| line.strip_prefix("oom ")?.parse().ok()).unwrap_or(0);
        }
        ["memory.failcnt", "memory.memsw.failcnt"].iter().filter_map(|file| read(file).trim().parse::<u64>().ok()).sum()
    }

    /// Returns OOM notifications of the group: on v1 an eventfd of `memory.oom_control`, on v2 an inotify watch of
    /// `memory.events`, which also reports other events: after a notification, compare [`Group::oom_kills`]. `None`
    /// without a memory controller.
    ///
    /// # Errors
    /// The group does not exist; the limit of inotify instances or watches is reached.
    pub fn oom_notifications(&self) -> Result<Option<OomNotifications>, Error> {
        let Some(tree) = self.trees.with(Controller::Memory) else { return Ok(None) };
        let name = if tree.v2 { "memory.events" } else { "memory.oom_control" };
        let path = format!("{}/{name}", self.path.relative());
        let failed = |errno| Error::io("watch", tree.describe(&path), errno);
        let file = tree.open(&path, OFlags::RDONLY).map_err(failed)?;
        if tree.v2 {
            let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
            let descriptor = inotify::init(flags).map_err(failed)?;
            let link = format!("/proc/self/fd/{}", file.as_raw_fd());
            inotify::add_watch(&descriptor, link, inotify::WatchFlags::MODIFY).map_err(failed)?;
            return Ok(Some(OomNotifications { descriptor, early: false }));
        }
        let descriptor = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(failed)?;
        let control = format!("{}/cgroup.event_control", self.path.relative());
        tree.write(&control, &format!("{} {}", descriptor.as_raw_fd(), file.as_raw_fd()))?;
        Ok(Some(OomNotifications { descriptor, early: true }))
    }
}

/// A descriptor that is readable after an OOM notification, and on v1 also after the removal of the group.
#[derive(Debug)]
pub struct OomNotifications {
    descriptor: OwnedFd,
    early: bool,
}

impl OomNotifications {
    /// Consumes pending notifications. Returns whether there were any.
    pub fn clear(&self) -> bool {
        let mut notified = false;
        // The contents are not needed, also after an overflow: the caller reads the count of the group.
        while matches!(rustix::io::read(&self.descriptor, &mut [0u8; 4096]), Ok(1..)) {
            notified = true;
        }
        notified
    }

    /// Reports whether a notification precedes the change of [`Group::oom_kills`]: v1 notifies when the group runs out
    /// of memory, and selects a process to kill after that.
    pub fn are_early(&self) -> bool {
        self.early
    }
}

impl AsFd for OomNotifications {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}
