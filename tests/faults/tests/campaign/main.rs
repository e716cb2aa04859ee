//! Campaigns "kill at every system call" and "errors and delays at every system call"; see docs/campaigns.md.
//!
//! CAMPAIGN_FORM (`short` or `long`), CAMPAIGN_SEED, CAMPAIGN_POINTS, CAMPAIGN_POINT and CAMPAIGN_JOBS choose what is
//! run.

mod campaign;
mod chance;
mod leftovers;
mod life;
mod point;
mod probe;
mod stage;
mod strace;

use campaign::Campaign;
use point::{Fault, Life, Target};

/// Whose system calls, and in which life.
const KILLS: [(Target, Life); 6] = [
    (Target::Daemon, Life::Pod),
    (Target::Monitor, Life::Pod),
    (Target::Children, Life::Pod),
    (Target::Daemon, Life::Image),
    (Target::Daemon, Life::Restart),
    (Target::Daemon, Life::ColdStart),
];

/// Calls that no disk, no memory shortage and no descriptor limit makes fail: an error of theirs proves nothing.
const NEVER_FAIL: [&str; 17] = [
    "futex",
    "epoll_wait",
    "epoll_pwait",
    "exit",
    "exit_group",
    "sched_yield",
    "rt_sigprocmask",
    "rt_sigreturn",
    "rt_sigaction",
    "sigaltstack",
    "munmap",
    "gettid",
    "getpid",
    "clock_nanosleep",
    "restart_syscall",
    "close",
    "madvise",
];

/// Calls that a disk can make wait.
const DISK: [&str; 28] = [
    "openat",
    "openat2",
    "open",
    "renameat",
    "rename",
    "renameat2",
    "unlink",
    "unlinkat",
    "mkdir",
    "mkdirat",
    "rmdir",
    "fsync",
    "fdatasync",
    "syncfs",
    "ftruncate",
    "fallocate",
    "pwrite64",
    "pread64",
    "getdents64",
    "statx",
    "stat",
    "lstat",
    "newfstatat",
    "readlink",
    "readlinkat",
    "fchmodat",
    "utimensat",
    "statfs",
];

/// Points that found a fault, which is fixed.
const FAILED_ONCE: [&str; 7] = [
    "monitor:pod@7:read:1:EMFILE",
    "children:pod@3:read:3:ENOMEM",
    "monitor:pod@3:prlimit64:1:EIO",
    "daemon:pod@0:unlinkat:2:EMFILE",
    "daemon:pod@1:rename:1:3000ms",
    "daemon:pod@4:getdents64:6:3000ms",
    "daemon:pod@8:openat:2:3000ms",
];

#[test]
fn points_that_failed_once() {
    Campaign::of_points("failed once", &FAILED_ONCE).run(&[], |_, _| Vec::new());
}

#[test]
fn kill_at_every_system_call() {
    let campaign = Campaign::from_environment("kill", 16, 2400);
    campaign.run(&KILLS, |_, _| vec![Fault::Kill]);
}

#[test]
fn errors_and_delays_at_every_system_call() {
    let campaign = Campaign::from_environment("errors", 16, 2400);
    campaign.run(&KILLS, |target, call| {
        let mut faults = Vec::new();
        if !NEVER_FAIL.contains(&call) {
            faults.extend(["EIO", "ENOSPC", "EMFILE", "ENOMEM"].map(|errno| Fault::Error(errno.to_owned())));
        }
        // The monitor's own loop has no call that a disk can make wait; its children have.
        if DISK.contains(&call) && target != Target::Monitor {
            faults.push(Fault::Delay(3000));
        }
        faults
    });
}
