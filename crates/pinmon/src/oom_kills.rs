//! OOM kills of containers whose cgroup was removed before its count was read.
//!
//! systemd removes the cgroup of a scope when its last process has exited, possibly before the monitor handles that exit.
//! A removed cgroup cannot be read, not even with a descriptor that was opened before (`ENODEV`). But `memory.events` is
//! hierarchical (Linux 5.2): the parent, which is the slice of the pod, keeps what its removed children have contributed. Its count,
//! minus that of all other children, is that of the removed one. The kernel counts a kill before it sends SIGKILL
//! (`__oom_kill_process`), so the count is complete when the exit is handled.
//!
//! If several containers of a pod have exited at the same moment, their exits decide: an OOM kill is one by SIGKILL, of all
//! processes of a container if the kubelet has set `memory.oom.group`. Only if none of them was killed is it reported for
//! the last one, of which it may have killed another process.
//!
//! Reads nothing while containers are running, and at most a few files of the pod when one exits. Other cgroups than
//! scopes are removed by the monitor only, after it has read their count.

use std::collections::BTreeMap;

use cgroup::{GroupPath, Hierarchies};

/// Attempts to read the counts of a pod while other containers of it are being killed.
const TRIES: u32 = 8;

/// The slices that contain scopes of containers, by their paths.
#[derive(Default)]
pub(crate) struct OomKills(BTreeMap<GroupPath, Slice>);

#[derive(Default)]
struct Slice {
    /// Kills that are attributed to none of the scopes below: those of removed containers, and those before the first.
    explained: u64,
    /// Kills that were reported for a container and may be those of another that has exited at the same moment.
    reported: u64,
    /// By the serial numbers of their containers.
    scopes: BTreeMap<u64, Scope>,
}

struct Scope {
    path: GroupPath,
    /// Its kills when they were last read.
    counted: u64,
    /// Whether the exit of its container was handled.
    ended: bool,
}

/// Returns the path of a scope and of its slice. `None`: the cgroup is not a scope.
fn scope(cgroup: &str) -> Option<(GroupPath, GroupPath)> {
    let path = GroupPath::parse(cgroup).ok().filter(|path| path.name().ends_with(".scope"))?;
    let slice = path.parent()?;
    Some((path, slice))
}

impl OomKills {
    /// Adds a scope before its first process is cloned.
    pub(crate) fn add(&mut self, trees: &Hierarchies, serial: u64, cgroup: &str) {
        let Some((path, slice)) = scope(cgroup) else { return };
        self.slice(trees, slice).scopes.insert(serial, Scope { path, counted: 0, ended: false });
    }

    /// Adds the scope of an adopted container, or of one that is restored from a state without counts.
    pub(crate) fn adopt(&mut self, trees: &Hierarchies, serial: u64, cgroup: &str, ended: bool) {
        let Some((path, slice)) = scope(cgroup) else { return };
        let slice = self.slice(trees, slice);
        let counted = trees.oom_kills(&path).unwrap_or(0);
        slice.explained = slice.explained.saturating_sub(counted);
        slice.scopes.insert(serial, Scope { path, counted, ended });
    }

    fn slice(&mut self, trees: &Hierarchies, path: GroupPath) -> &mut Slice {
        let explained = |path: &GroupPath| trees.oom_kills(path).unwrap_or(0);
        self.0.entry(path).or_insert_with_key(|path| Slice { explained: explained(path), ..Slice::default() })
    }

    /// Returns the OOM kills of a container that has exited. `None`: its cgroup is not a scope. `was_killed`: SIGKILL ended
    /// it, or its init returned the exit code of a child that SIGKILL ended.
    pub(crate) fn of_exited(
        &mut self,
        trees: &Hierarchies,
        serial: u64,
        cgroup: &str,
        was_killed: bool,
    ) -> Option<u64> {
        let (path, slice_path) = scope(cgroup)?;
        let slice = self.0.get_mut(&slice_path)?;
        let scope = slice.scopes.get_mut(&serial)?;
        scope.ended = true;
        let Some(counted) = trees.oom_kills(&path) else {
            return Some(slice.unexplained(trees, &slice_path, was_killed));
        };
        scope.counted = counted;
        Some(counted)
    }

    /// Removes a container. Its scope may exist, but no processes in it.
    pub(crate) fn remove(&mut self, trees: &Hierarchies, serial: u64, cgroup: &str) {
        let Some((_, path)) = scope(cgroup) else { return };
        if self.0.get(&path).and_then(|slice| slice.scopes.get(&serial)).is_some_and(|scope| !scope.ended) {
            let _ = self.of_exited(trees, serial, cgroup, false);
        }
        let Some(slice) = self.0.get_mut(&path) else { return };
        slice.explained += slice.scopes.remove(&serial).map_or(0, |scope| scope.counted);
        if slice.scopes.is_empty() {
            self.0.remove(&path);
        }
    }

    /// Returns the count of a scope for the state of an upgrade.
    pub(crate) fn counted(&self, serial: u64, cgroup: &str) -> Option<u64> {
        let (_, slice) = scope(cgroup)?;
        self.0.get(&slice)?.scopes.get(&serial).map(|scope| scope.counted)
    }

    /// Lists the explained kills of all slices for the state of an upgrade.
    pub(crate) fn explained(&self) -> impl Iterator<Item = (String, u64)> {
        self.0.iter().map(|(path, slice)| (path.as_str().to_owned(), slice.explained))
    }

    /// Restores the explained kills of a slice, before its scopes.
    pub(crate) fn restore_slice(&mut self, path: &str, explained: u64) {
        if let Ok(path) = GroupPath::parse(path) {
            self.0.insert(path, Slice { explained, ..Slice::default() });
        }
    }

    /// Restores a scope below a slice that was restored.
    pub(crate) fn restore_scope(&mut self, serial: u64, cgroup: &str, counted: u64, ended: bool) {
        if let Some((path, slice)) = scope(cgroup) {
            self.0.entry(slice).or_default().scopes.insert(serial, Scope { path, counted, ended });
        }
    }
}

impl Slice {
    /// Returns the kills that are not of scopes that exist or existed when they were counted: those of removed ones whose
    /// containers have exited since. If several exited at the same moment, the kills are reported for each that was
    /// killed.
    fn unexplained(&mut self, trees: &Hierarchies, path: &GroupPath, was_killed: bool) -> u64 {
        let mut unexplained = self.above_known(trees.oom_kills(path));
        if unexplained == 0 {
            return 0;
        }
        // The kernel increments scope and slice one after the other, and kills continue while they are read.
        for _ in 0..TRIES {
            let known = self.count(trees);
            unexplained = self.above_known(trees.oom_kills(path));
            if self.count(trees) == known {
                break;
            }
        }
        let is_awaited = |scope: &Scope| !scope.ended && trees.oom_kills(&scope.path).is_none();
        let others_are_awaited = self.scopes.values().any(is_awaited);
        self.attribute(unexplained, was_killed, others_are_awaited)
    }

    /// Returns how many of the kills are reported for a container.
    fn attribute(&mut self, unexplained: u64, was_killed: bool, others_are_awaited: bool) -> u64 {
        let unreported = unexplained.saturating_sub(self.reported);
        match (was_killed, others_are_awaited) {
            (true, true) => self.reported = unexplained,
            (false, true) => return 0,
            (_, false) => {
                self.explained += unexplained;
                self.reported = 0;
            }
        }
        if was_killed { unexplained } else { unreported }
    }

    /// Returns by how much the count of the slice exceeds the known kills.
    fn above_known(&self, total: Option<u64>) -> u64 {
        total.unwrap_or(0).saturating_sub(self.known())
    }

    fn known(&self) -> u64 {
        self.explained + self.scopes.values().map(|scope| scope.counted).sum::<u64>()
    }

    /// Reads the counts of all scopes that exist, and returns the known kills.
    fn count(&mut self, trees: &Hierarchies) -> u64 {
        for scope in self.scopes.values_mut() {
            scope.counted = trees.oom_kills(&scope.path).unwrap_or(scope.counted);
        }
        self.known()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kills_at_the_same_moment_are_reported_for_those_that_were_killed() {
        // Whether each container was killed, in the order in which their exits are handled, and what is reported.
        for (killed, reported) in [
            (&[true][..], &[1][..]),
            (&[false], &[1]),
            (&[true, false], &[1, 0]),
            (&[false, true], &[0, 1]),
            (&[true, true], &[1, 1]),
            (&[true, false, true], &[1, 0, 1]),
            (&[false, false], &[0, 1]),
        ] {
            let mut slice = Slice::default();
            for (index, was_killed) in killed.iter().enumerate() {
                let others_are_awaited = index + 1 < killed.len();
                assert_eq!(slice.attribute(1, *was_killed, others_are_awaited), reported[index], "{killed:?}, {index}");
            }
            assert_eq!((slice.explained, slice.reported), (1, 0), "{killed:?}");
        }
    }
}
