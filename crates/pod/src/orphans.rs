//! Processes that fell to this one when a monitor died, and that nobody waits for: commands, and what containers on the
//! node's PID namespace left behind.
//!
//! They are told from children of this program (plugins, a monitor), which are waited for as soon as they end: a child
//! that is a zombie at two looks a minute apart is nobody's.

use std::{collections::HashSet, fs, time::Duration};

use crate::process;

/// Far longer than a child that somebody waits for stays a zombie.
const SOON_INTERVAL: Duration = Duration::from_secs(1);
const SOON_LOOKS: u32 = 5;

/// Zombies that were seen: pid and start time.
#[derive(Debug, Default)]
pub(crate) struct Orphans(HashSet<(u32, u64)>);

impl Orphans {
    /// Looks, and reaps what was a zombie the last time, too.
    pub(crate) fn look(&mut self) {
        let now: HashSet<_> = children().into_iter().filter_map(zombie).collect();
        for (pid, start_time) in now.intersection(&self.0) {
            if let Some(pidfd) = process::find(*pid, *start_time) {
                process::reap(pidfd);
            }
        }
        self.0 = now;
    }
}

/// Reaps, within seconds, commands of a monitor that died: a zombie in a container's PID namespace holds up the end of
/// the container.
pub(crate) async fn reap_soon() {
    let mut orphans = Orphans::default();
    for _ in 0..SOON_LOOKS {
        orphans.look();
        tokio::time::sleep(SOON_INTERVAL).await;
    }
}

/// Of all threads of this process.
fn children() -> Vec<u32> {
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists
        .flat_map(|list| list.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
        .collect()
}

fn zombie(pid: u32) -> Option<(u32, u64)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    let is_zombie = rest.trim_start().starts_with('Z');
    if is_zombie { Some((pid, process::start_time(pid)?)) } else { None }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use rustix::process::{Pid, PidfdFlags, pidfd_open};

    use super::*;

    #[tokio::test]
    #[expect(clippy::zombie_processes, reason = "it is reaped by what is tested")]
    async fn who_is_a_zombie_twice_is_reaped() {
        let child = Command::new("/bin/sh").args(["-c", "exit 3"]).spawn().expect("spawn");
        let pidfd = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).expect("pidfd");
        process::ended(&pidfd).await.expect("end");
        let mut orphans = Orphans::default();
        orphans.look();
        assert!(zombie(child.id()).is_some(), "once is not enough");
        orphans.look();
        assert!(zombie(child.id()).is_none());
    }
}
