//! The groups of systemd's scopes: created with a scope, or opened by its name.

use rustix::process::Pid;

use crate::{Error, Group, GroupPath, Hierarchies, Limits, systemd::Unit};

impl Unit {
    /// Opens the group of an existing scope (`name`: [`Group::unit_name`]). It may not exist anymore: systemd removes a
    /// scope after the exit of its last process, but keeps a failed one loaded until [`Group::remove`].
    pub fn open(name: &str, trees: &Hierarchies, path: &GroupPath) -> Result<Group, Error> {
        let unit = Some(Box::new(Self::named(name)?));
        Ok(Group { unit, ..Group::open_unchecked(trees, path) })
    }

    /// Creates the scope with this process in it and sets its limits. The process is moved, so it should be waiting. A
    /// failure undoes all of it.
    pub fn start(&self, trees: &Hierarchies, pid: Pid, limits: &Limits) -> Result<Group, Error> {
        limits.check(trees)?;
        let mut bus = self.connect("start")?;
        self.start_transient(&mut bus, trees, pid, limits)?;
        let group = trees.path_of(pid).and_then(|path| Group::adopt(trees, &path, limits, pid));
        match group {
            Ok(group) => Ok(Group { unit: Some(Box::new(self.clone())), ..group }),
            Err(error) => {
                // The first error is returned.
                self.kill_and_stop(&mut bus);
                Err(error)
            }
        }
    }
}
