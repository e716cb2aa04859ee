//! Power cuts: the store is on a file system on a loop device, and the power is cut while it is in use. The disk is
//! mounted as it was left, and the store on it opened:
//!
//! - the opening never fails;
//! - every completed request holds: what was pulled is listed, and what was removed is not;
//! - every file of every listed image has its original contents;
//! - nothing must be repaired, and a second opening changes nothing.
//!
//! A disk without a write cache has every block that was written: the backing file is copied at chosen points
//! ([`copies`]). A disk with a write cache loses and reorders the writes since its last flush: they are logged, and
//! disks are built from the log ([`reordered`]).
//!
//! `make test` tries a few cuts. `tests/campaign/power-cuts` tries many on ext4, xfs and btrfs: `IMAGE_POWER_CUTS` is
//! their number on each, `IMAGE_POWER_CUTS_FS` the file systems, `IMAGE_POWER_CUTS_SEED` the seed,
//! `PINION_CAMPAIGN_SECONDS` limits the time of each of the two. `IMAGE_POWER_CUTS_POINT` repeats a reordered cut, as
//! printed by a failed run.

#[path = "../node/mod.rs"]
mod node;

mod check;
mod copies;
mod disk;
mod fuse;
mod reordered;
mod workload;
mod write_log;

use std::{
    process::Command,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use testbed::{Namespaces, run};

const CUTS: &str = "IMAGE_POWER_CUTS";
const CHILD: &str = "IMAGE_POWER_CUTS_CHILD";

/// The parameters of a run, from the environment.
struct Plan {
    /// Number of cuts on each file system.
    count: usize,
    kinds: String,
    seed: u64,
    deadline: Option<Instant>,
}

impl Plan {
    /// Returns the plan of a child of [`in_namespaces`]; `None` in any other process.
    fn of_child(default_count: u64, kinds: &str) -> Option<Self> {
        std::env::var_os(CHILD)?;
        // For the disks. The kernel frees it with the mount namespace, also if this process is killed.
        run("mount", &["-t", "tmpfs", "power-cuts", "/dev/shm"]);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        Some(Self {
            count: usize::try_from(number(CUTS).unwrap_or(default_count)).unwrap(),
            kinds: std::env::var("IMAGE_POWER_CUTS_FS").unwrap_or_else(|_| kinds.into()),
            seed: number("IMAGE_POWER_CUTS_SEED").unwrap_or(now),
            deadline: number("PINION_CAMPAIGN_SECONDS").map(|seconds| Instant::now() + Duration::from_secs(seconds)),
        })
    }

    fn is_over(&self) -> bool {
        self.deadline.is_some_and(|deadline| Instant::now() > deadline)
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|value| value.parse().ok())
}

/// Runs a test of this program in its own mount and PID namespace, with a time limit.
fn in_namespaces(test: &str) {
    let limit = Duration::from_secs(120 + 10 * number(CUTS).unwrap_or(0));
    // The FUSE server and the registry, which keep the mounts busy, are killed with the child.
    let child = Namespaces::PROCESSES.this_test(test);
    let mut command = Command::new("timeout");
    command.args(["--signal", "KILL", &limit.as_secs().to_string()]).arg(child.get_program()).args(child.get_args());
    command.env(CHILD, "yes");
    let status = command.status().expect("timeout and unshare are needed: apt install coreutils util-linux");
    assert!(status.success(), "{test}: {status}");
}

#[test]
fn completed_requests_survive_a_power_cut() {
    in_namespaces("copies::child");
}

#[test]
fn completed_requests_survive_a_power_cut_that_reorders_writes() {
    in_namespaces("reordered::child");
}
