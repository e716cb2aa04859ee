//! The campaigns "kill at every system call" and "errors and delays at every system call"; see docs/campaigns.md.
//!
//! CAMPAIGN_FORM (`short` or `long`), CAMPAIGN_SEED, CAMPAIGN_POINTS, CAMPAIGN_POINT and CAMPAIGN_JOBS select what
//! runs.

mod campaign;
mod fixture;
mod leftovers;
mod point;
mod probe;
mod random;
mod scenario;
mod strace;

use campaign::Campaign;
use point::{Fault, Scenario, Target};

/// The process whose system calls are faulted, and the scenario.
const SCENARIOS: [(Target, Scenario); 6] = [
    (Target::Daemon, Scenario::Pod),
    (Target::Monitor, Scenario::Pod),
    (Target::Children, Scenario::Pod),
    (Target::Daemon, Scenario::Image),
    (Target::Daemon, Scenario::Restart),
    (Target::Daemon, Scenario::ColdStart),
];

/// Calls that never fail because of a disk, a memory shortage or a descriptor limit, so that no error is injected.
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

/// Calls that a disk can delay.
const DISK_CALLS: [&str; 28] = [
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

/// Points that found a fault in the past, as a regression test.
const REGRESSIONS: [&str; 7] = [
    "monitor:pod@7:read:1:EMFILE",
    "children:pod@3:read:3:ENOMEM",
    "monitor:pod@3:prlimit64:1:EIO",
    "daemon:pod@0:unlinkat:2:EMFILE",
    "daemon:pod@1:rename:1:3000ms",
    "daemon:pod@4:getdents64:6:3000ms",
    "daemon:pod@8:openat:2:3000ms",
];

#[test]
fn points_that_found_a_fault() {
    Campaign::of_points("regressions", &REGRESSIONS).run(&[], |_, _| Vec::new());
}

#[test]
fn kill_at_every_system_call() {
    let campaign = Campaign::from_environment("kill", 16, 2400);
    campaign.run(&SCENARIOS, |_, _| vec![Fault::Kill]);
}

#[test]
fn errors_and_delays_at_every_system_call() {
    let campaign = Campaign::from_environment("errors", 16, 2400);
    campaign.run(&SCENARIOS, |target, call| {
        let mut faults = Vec::new();
        if !NEVER_FAIL.contains(&call) {
            faults.extend(["EIO", "ENOSPC", "EMFILE", "ENOMEM"].map(|errno| Fault::Error(errno.to_owned())));
        }
        // The loop of the monitor makes no call that a disk can delay; its children do.
        if DISK_CALLS.contains(&call) && target != Target::Monitor {
            faults.push(Fault::Delay(3000));
        }
        faults
    });
}
