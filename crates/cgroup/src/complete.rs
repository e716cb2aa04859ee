//! Completes what another program began: it has put a process into a group in some of the trees.

use std::collections::HashSet;

use rustix::{io::Errno, process::Pid};

use crate::{Error, Group, pids::collect, tree::Tree};

impl Group {
    /// Moves a process that is in the group, or in a descendant of it, in at least one tree into it in the other trees.
    /// Returns false if it is in the group in no tree, and then moves nothing. OCI runtimes such as crun 1.8 and youki
    /// 0.7 do not use the v2 tree of hybrid cgroups.
    ///
    /// Does not wait if the process is in the group in all trees; otherwise 4 to 10 ms for an RCU grace period.
    ///
    /// # Errors
    /// A list of processes cannot be read, or the process cannot be moved.
    pub fn complete(&self, pid: Pid) -> Result<bool, Error> {
        let mut missing = Vec::new();
        let mut found = false;
        for tree in self.trees.trees() {
            match self.has_in(tree, pid)? {
                true => found = true,
                false => missing.push(tree),
            }
        }
        if !found {
            return Ok(false);
        }
        for tree in missing {
            match tree.write(&self.file(tree, "cgroup.procs"), &pid.as_raw_pid().to_string()) {
                // It has exited.
                Err(error) if error.errno() == Some(Errno::SRCH) => {}
                moved => moved?,
            }
        }
        Ok(true)
    }

    fn has_in(&self, tree: &Tree, pid: Pid) -> Result<bool, Error> {
        let mut pids = HashSet::new();
        let path = self.path_in(tree).relative();
        collect(tree, path, &mut pids).map_err(|errno| Error::io("list processes of", tree.describe(path), errno))?;
        Ok(pids.contains(&pid))
    }
}
