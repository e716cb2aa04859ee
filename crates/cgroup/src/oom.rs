use rustix::{
    event::{EventfdFlags, eventfd},
    fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    fs::{OFlags, inotify},
};

use crate::{Error, Group, controller::Controller};

impl Group {
    /// Processes of this group (on v2: and below) that the kernel's OOM killer ended so far (kernel 4.13+). 0 where
    /// that cannot be known: no memory controller, or the group is gone; so ask before [`Group::remove`].
    pub fn oom_kills(&self) -> u64 {
        let Some(tree) = self.trees.with(Controller::Memory) else { return 0 };
        let file = if tree.v2 { "memory.events" } else { "memory.oom_control" };
        // An exec group of v2 has no memory files of its own; its memory is its parent's.
        let path = format!("{}/{file}", self.path.relative());
        let text = tree.try_read(&path).unwrap_or_default();
        text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.parse().ok()).unwrap_or(0)
    }

    /// How often this group's own memory limit stood in the way, not that of a group above or below: on v2 the `oom` of
    /// `memory.events.local` (kernel 5.2+), on v1 `memory.failcnt` (which also counts what reclaim then found room
    /// for).
    /// 0 where that cannot be known.
    pub fn own_limit_met(&self) -> u64 {
        let Some(tree) = self.trees.with(Controller::Memory) else { return 0 };
        let read = |file: &str| tree.try_read(&format!("{}/{file}", self.path.relative())).unwrap_or_default();
        if tree.v2 {
            let text = read("memory.events.local");
            return text.lines().find_map(|line| line.strip_prefix("oom ")?.parse().ok()).unwrap_or(0);
        }
        ["memory.failcnt", "memory.memsw.failcnt"].iter().filter_map(|file| read(file).trim().parse::<u64>().ok()).sum()
    }

    /// Notices of the group's running out of memory: an eventfd of v1 (`memory.oom_control`), on v2 inotify of
    /// `memory.events`, which tells of more; so [`Group::oom_kills`] is to be asked then. `None`: no memory controller.
    ///
    /// # Errors
    /// The group is gone; no inotify instance or watch is left.
    pub fn oom_notices(&self) -> Result<Option<OomNotices>, Error> {
        let Some(tree) = self.trees.with(Controller::Memory) else { return Ok(None) };
        let name = if tree.v2 { "memory.events" } else { "memory.oom_control" };
        let path = format!("{}/{name}", self.path.relative());
        let failed = |errno| Error::io("watch", tree.describe(&path), errno);
        let file = tree.open(&path, OFlags::RDONLY).map_err(failed)?;
        if tree.v2 {
            let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
            let notices = inotify::init(flags).map_err(failed)?;
            let link = format!("/proc/self/fd/{}", file.as_raw_fd());
            inotify::add_watch(&notices, link, inotify::WatchFlags::MODIFY).map_err(failed)?;
            return Ok(Some(OomNotices { notices, early: false }));
        }
        let notices = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(failed)?;
        let control = format!("{}/cgroup.event_control", self.path.relative());
        tree.write(&control, &format!("{} {}", notices.as_raw_fd(), file.as_raw_fd()))?;
        Ok(Some(OomNotices { notices, early: true }))
    }
}

/// Readable when there was one, and on v1 also when the group is removed.
#[derive(Debug)]
pub struct OomNotices {
    notices: OwnedFd,
    early: bool,
}

impl OomNotices {
    /// Takes what is there; whether there was something.
    pub fn clear(&self) -> bool {
        let mut is_noticed = false;
        // Empty, or too many to be told one by one: either way the group is asked next.
        while matches!(rustix::io::read(&self.notices, &mut [0u8; 4096]), Ok(1..)) {
            is_noticed = true;
        }
        is_noticed
    }

    /// Whether a notice comes before [`Group::oom_kills`] counts what it is of: v1 gives it when the group runs out of
    /// memory, and chooses a process to kill after that.
    pub fn are_early(&self) -> bool {
        self.early
    }
}

impl AsFd for OomNotices {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.notices.as_fd()
    }
}
