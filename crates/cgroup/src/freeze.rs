use rustix::io::Errno;

use crate::{Error, Group, controller::Controller, tree::Tree, wait::Wait};

/// How long a group may take to freeze.
const FREEZE_SECONDS: u64 = 5;

/// The interface by which a group is frozen.
pub(crate) enum Freezer<'a> {
    /// `cgroup.freeze` (Linux 5.2), which needs no controller.
    V2(&'a Tree),
    /// `freezer.state`.
    V1(&'a Tree),
}

impl Group {
    fn freezer(&self) -> Result<Freezer<'_>, Error> {
        self.primary()?;
        if let Some(tree) = self.trees.v2().filter(|tree| tree.exists(&self.file(tree, "cgroup.freeze"))) {
            return Ok(Freezer::V2(tree));
        }
        match self.trees.with(Controller::Freezer) {
            Some(tree) if !tree.v2 => Ok(Freezer::V1(tree)),
            _ => Err(Error::Unavailable {
                path: self.path().to_string(),
                field: "freeze".into(),
                controller: "freezer",
                reason: "the cgroup does not exist, or the kernel is older than 5.2 and the v1 freezer is not mounted"
                    .into(),
            }),
        }
    }

    /// Freezes all processes of the group and its descendants, and waits until they are frozen. If one does not freeze
    /// within 5 s (it is in an uninterruptible sleep), the group is thawed again and an error is returned.
    pub fn freeze(&self) -> Result<(), Error> {
        let freezer = self.begin_freeze()?;
        let mut wait = Wait::new(self, FREEZE_SECONDS);
        loop {
            wait.arm();
            if self.reports_frozen(&freezer)? {
                return Ok(());
            }
            if !wait.next() {
                self.thaw()?;
                let detail = self.first_process();
                let path = self.path().to_string();
                return Err(Error::Timeout { operation: "freeze", path, seconds: FREEZE_SECONDS, detail });
            }
        }
    }

    /// Starts freezing all processes of the group and its descendants, without waiting for them.
    pub(crate) fn begin_freeze(&self) -> Result<Freezer<'_>, Error> {
        let freezer = self.freezer()?;
        match &freezer {
            Freezer::V2(tree) => tree.write(&self.file(tree, "cgroup.freeze"), "1")?,
            Freezer::V1(tree) => tree.write(&self.file(tree, "freezer.state"), "FROZEN")?,
        }
        Ok(freezer)
    }

    /// Thaws the group.
    pub fn thaw(&self) -> Result<(), Error> {
        match self.freezer()? {
            Freezer::V2(tree) => tree.write(&self.file(tree, "cgroup.freeze"), "0"),
            Freezer::V1(tree) => tree.write(&self.file(tree, "freezer.state"), "THAWED"),
        }
    }

    /// Reports whether all processes of the group are frozen.
    pub fn is_frozen(&self) -> Result<bool, Error> {
        self.reports_frozen(&self.freezer()?)
    }

    fn reports_frozen(&self, freezer: &Freezer<'_>) -> Result<bool, Error> {
        match freezer {
            Freezer::V2(tree) => {
                Ok(tree.read(&self.file(tree, "cgroup.events"))?.lines().any(|line| line == "frozen 1"))
            }
            Freezer::V1(tree) => Ok(tree.read(&self.file(tree, "freezer.state"))?.trim() == "FROZEN"),
        }
    }

    /// Describes a process that is in the group, for error messages.
    pub(crate) fn first_process(&self) -> String {
        match self.pids() {
            Ok(pids) if !pids.is_empty() => format!("it still contains process {}", pids[0]),
            Err(error) if error.errno() != Some(Errno::NOENT) => error.to_string(),
            _ => "it contains no process that is visible in this PID namespace".into(),
        }
    }
}
