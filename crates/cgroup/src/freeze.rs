use rustix::io::Errno;

use crate::{Error, Group, controller::Controller, tree::Tree, wait::Wait};

/// How long a group may take to stop.
const FREEZE_SECONDS: u64 = 5;

/// How a tree stops a group.
pub(crate) enum Freezer<'a> {
    /// `cgroup.freeze` (kernel 5.2+), with or without controllers.
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
                reason: "the group is gone, or the kernel is older than 5.2 and the v1 freezer is not mounted".into(),
            }),
        }
    }

    /// Stops every process of the group and below; blocks until all have stopped. One that cannot stop (uninterruptible
    /// in the kernel) makes it thaw them again and fail after 5 s.
    pub fn freeze(&self) -> Result<(), Error> {
        let freezer = self.begin_freeze()?;
        let mut wait = Wait::new(self, FREEZE_SECONDS);
        loop {
            wait.arm();
            if self.stopped(&freezer)? {
                return Ok(());
            }
            if !wait.next() {
                self.thaw()?;
                let detail = self.first_process();
                let path = self.path().to_string();
                return Err(Error::Late { operation: "freeze", path, seconds: FREEZE_SECONDS, detail });
            }
        }
    }

    /// Has every process of the group and below stop, and waits for none.
    pub(crate) fn begin_freeze(&self) -> Result<Freezer<'_>, Error> {
        let freezer = self.freezer()?;
        match &freezer {
            Freezer::V2(tree) => tree.write(&self.file(tree, "cgroup.freeze"), "1")?,
            Freezer::V1(tree) => tree.write(&self.file(tree, "freezer.state"), "FROZEN")?,
        }
        Ok(freezer)
    }

    /// Lets them run again.
    pub fn thaw(&self) -> Result<(), Error> {
        match self.freezer()? {
            Freezer::V2(tree) => tree.write(&self.file(tree, "cgroup.freeze"), "0"),
            Freezer::V1(tree) => tree.write(&self.file(tree, "freezer.state"), "THAWED"),
        }
    }

    /// Whether every process of the group is stopped by [`Group::freeze`].
    pub fn is_frozen(&self) -> Result<bool, Error> {
        self.stopped(&self.freezer()?)
    }

    fn stopped(&self, freezer: &Freezer<'_>) -> Result<bool, Error> {
        match freezer {
            Freezer::V2(tree) => {
                Ok(tree.read(&self.file(tree, "cgroup.events"))?.lines().any(|line| line == "frozen 1"))
            }
            Freezer::V1(tree) => Ok(tree.read(&self.file(tree, "freezer.state"))?.trim() == "FROZEN"),
        }
    }

    /// For messages about what is in the way.
    pub(crate) fn first_process(&self) -> String {
        match self.pids() {
            Ok(pids) if !pids.is_empty() => format!("process {} is still in it", pids[0]),
            Err(error) if error.errno() != Some(Errno::NOENT) => error.to_string(),
            _ => "no process is left in it that can be seen".into(),
        }
    }
}
