//! What a node has, to find what is left after pods were removed.

use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    time::{Duration, Instant},
};

/// How long leftovers may take to disappear, and how often they are looked for.
const SETTLE: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(250);
/// Deepest cgroup that is counted.
const DEPTH_MAX: usize = 32;

/// Objects of the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) processes: BTreeSet<i32>,
    pub(super) mounts: usize,
    pub(super) links: usize,
    pub(super) cgroups: usize,
}

impl Node {
    /// Counts what is there.
    pub(super) fn now() -> Self {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let links = fs::read_dir("/sys/class/net").map_or(0, |links| links.flatten().count());
        Self { processes: processes(), mounts: mounts.lines().count(), links, cgroups: cgroups(&mounts) }
    }

    /// Waits until nothing is there that was not before. Returns the numbers of processes, mounts, links and cgroups that remain.
    pub(super) async fn leftovers(&self) -> [usize; 4] {
        let deadline = Instant::now() + SETTLE;
        loop {
            let now = Self::now();
            let left = [
                now.processes.difference(&self.processes).count(),
                now.mounts.saturating_sub(self.mounts),
                now.links.saturating_sub(self.links),
                now.cgroups.saturating_sub(self.cgroups),
            ];
            if left == [0; 4] || Instant::now() > deadline {
                return left;
            }
            tokio::time::sleep(POLL).await;
        }
    }
}

/// Returns the pids of all processes that have a command line: kernel threads and zombies have none.
fn processes() -> BTreeSet<i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty())).collect()
}

/// Returns the number of cgroups in all hierarchies.
fn cgroups(mounts: &str) -> usize {
    let fields = mounts.lines().filter_map(|line| line.split_once(" - "));
    let of_cgroups = fields.filter(|(_, filesystem)| filesystem.starts_with("cgroup"));
    of_cgroups.filter_map(|(mount, _)| mount.split(' ').nth(4)).map(|mount| groups(Path::new(mount), 0)).sum()
}

fn groups(directory: &Path, depth: usize) -> usize {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    directories.map(|entry| 1 + if depth < DEPTH_MAX { groups(&entry.path(), depth + 1) } else { 0 }).sum()
}
