//! Orphans: processes that became children of this process when a monitor died, and that nothing waits for. These are
//! exec'd processes, and leftovers of containers in the node's PID namespace.
//!
//! Children of this program itself (plugins, a monitor) are reaped as soon as they exit. So a child that is a zombie in
//! two scans, a minute apart, is an orphan.

use std::{collections::HashSet, fs, time::Duration};

use crate::process;

/// Far longer than a child that is waited for stays a zombie.
const SOON_INTERVAL: Duration = Duration::from_secs(1);
const SOON_SCANS: u32 = 5;

/// Zombies seen by the last scan: pid and start time.
#[derive(Debug, Default)]
pub(crate) struct Orphans(HashSet<(u32, u64)>);

impl Orphans {
    /// Scans the children, and reaps those that were zombies in the last scan, too.
    pub(crate) fn scan(&mut self) {
        let now: HashSet<_> = children().into_iter().filter_map(zombie).collect();
        for (pid, start_time) in now.intersection(&self.0) {
            if let Some(pidfd) = process::find(*pid, *start_time) {
                process::reap(pidfd);
            }
        }
        self.0 = now;
    }
}

/// Reaps exec'd processes of a dead monitor within seconds: a zombie in a container's PID namespace delays the exit of
/// the container.
pub(crate) async fn reap_soon() {
    let mut orphans = Orphans::default();
    for _ in 0..SOON_SCANS {
        orphans.scan();
        tokio::time::sleep(SOON_INTERVAL).await;
    }
}

/// Returns the children of all threads of this process.
fn children() -> Vec<u32> {
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists
        .flat_map(|list| list.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
        .collect()
}

fn zombie(pid: u32) -> Option<(u32, u64)> {
    let stat = process::stat(pid).ok()??;
    stat.is_zombie().then_some((pid, stat.start_time))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use rustix::process::{Pid, PidfdFlags, pidfd_open};

    use super::*;

    #[tokio::test]
    #[expect(clippy::zombie_processes, reason = "the code under test reaps it")]
    async fn a_process_that_is_a_zombie_in_two_scans_is_reaped() {
        let child = Command::new("/bin/sh").args(["-c", "exit 3"]).spawn().expect("spawn");
        let pidfd = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).expect("pidfd");
        process::ended(&pidfd).await.expect("exit");
        let mut orphans = Orphans::default();
        orphans.scan();
        assert!(zombie(child.id()).is_some(), "one scan is not enough");
        orphans.scan();
        assert!(zombie(child.id()).is_none());
    }
}
