//! Lists the processes of a group.

use std::collections::HashSet;

use rustix::{io::Errno, process::Pid};

use crate::{Error, Group, tree::Tree};

impl Group {
    /// Returns the pids of all processes in the group and its descendants, in ascending order. Processes that are not
    /// visible in this process's PID namespace are omitted.
    pub fn pids(&self) -> Result<Vec<Pid>, Error> {
        let tree = self.primary()?;
        let mut pids = HashSet::new();
        let path = self.path_in(tree).relative();
        collect(tree, path, &mut pids).map_err(|errno| Error::io("list processes of", tree.describe(path), errno))?;
        let mut pids: Vec<Pid> = pids.into_iter().collect();
        pids.sort_unstable_by_key(|pid| pid.as_raw_pid());
        Ok(pids)
    }

    /// Reports whether neither the group nor its descendants contain a process. A group that does not exist is empty.
    pub fn is_empty(&self) -> Result<bool, Error> {
        if let Some(populated) = self.populated() {
            return Ok(!populated);
        }
        match self.pids() {
            Ok(pids) => Ok(pids.is_empty()),
            Err(error) if error.errno() == Some(Errno::NOENT) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Reads `populated` of v2's `cgroup.events`; returns `None` if the file does not exist.
    pub(crate) fn populated(&self) -> Option<bool> {
        let tree = self.trees.v2()?;
        let events = tree.try_read(&self.file(tree, "cgroup.events")).ok()?;
        Some(events.lines().any(|line| line == "populated 1"))
    }
}

/// Collects the pids in a group and its descendants. Processes that exit and groups that are removed in the meantime
/// are not errors.
pub(crate) fn collect(tree: &Tree, path: &str, pids: &mut HashSet<Pid>) -> Result<(), Errno> {
    let mut pending = vec![path.to_owned()];
    while let Some(group) = pending.pop() {
        let list = match tree.try_read(&format!("{group}/cgroup.procs")) {
            // The processes of a threaded group are listed in its domain, which is an ancestor.
            Err(Errno::OPNOTSUPP) => String::new(),
            Err(Errno::NOENT | Errno::NODEV) if group != path => continue,
            other => other?,
        };
        let visible = list.lines().filter_map(|line| line.parse().ok()).filter(|pid| *pid > 0);
        pids.extend(visible.filter_map(Pid::from_raw));
        match tree.children(&group) {
            Ok(names) => pending.extend(names.into_iter().map(|name| format!("{group}/{name}"))),
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}
