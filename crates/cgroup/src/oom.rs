use crate::{Group, controller::Controller};

impl Group {
    /// Processes of this group (on v2: and below) that the kernel's OOM killer ended so far (kernel 4.13+). 0 where that
    /// cannot be known: no memory controller, or the group is gone; so ask before [`Group::remove`].
    pub fn oom_kills(&self) -> u64 {
        let Some(tree) = self.trees.with(Controller::Memory) else { return 0 };
        let file = if tree.v2 { "memory.events" } else { "memory.oom_control" };
        // An exec group of v2 has no memory files of its own; its memory is its parent's.
        let path = format!("{}/{file}", self.path.relative());
        let text = tree.try_read(&path).unwrap_or_default();
        text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.parse().ok()).unwrap_or(0)
    }
}
