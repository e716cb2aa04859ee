//! Who is in a group.

use std::collections::HashSet;

use rustix::io::Errno;

use crate::{Error, Group, tree::Tree};

impl Group {
    /// The processes of the group and of all groups below it, by pid in this process's PID namespace, ascending.
    /// Processes that this namespace cannot see are left out.
    pub fn pids(&self) -> Result<Vec<i32>, Error> {
        let tree = self.primary()?;
        let mut pids = HashSet::new();
        let path = self.place(tree).relative();
        collect(tree, path, &mut pids).map_err(|errno| Error::io("list processes of", tree.describe(path), errno))?;
        let mut pids: Vec<i32> = pids.into_iter().collect();
        pids.sort_unstable();
        Ok(pids)
    }

    /// Whether no process is in the group or below it. A group that is gone is empty.
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

    /// `populated` of v2's `cgroup.events`; `None`: there is no such file.
    pub(crate) fn populated(&self) -> Option<bool> {
        let tree = self.trees.v2()?;
        let events = tree.try_read(&self.file(tree, "cgroup.events")).ok()?;
        Some(events.lines().any(|line| line == "populated 1"))
    }
}

/// A process that ends meanwhile, and a group that goes meanwhile, are fine.
pub(crate) fn collect(tree: &Tree, path: &str, pids: &mut HashSet<i32>) -> Result<(), Errno> {
    let mut left = vec![path.to_owned()];
    while let Some(at) = left.pop() {
        let list = match tree.try_read(&format!("{at}/cgroup.procs")) {
            // The processes of a threaded group are listed by its domain, which is above.
            Err(Errno::OPNOTSUPP) => String::new(),
            Err(Errno::NOENT | Errno::NODEV) if at != path => continue,
            other => other?,
        };
        pids.extend(list.lines().filter_map(|line| line.parse::<i32>().ok()).filter(|pid| *pid > 0));
        match tree.children(&at) {
            Ok(names) => left.extend(names.into_iter().map(|name| format!("{at}/{name}"))),
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}
