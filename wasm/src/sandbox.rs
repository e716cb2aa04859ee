//! The sandbox of a compilation: an unprivileged user, limits of resources, and a seccomp filter that leaves memory, the
//! open descriptors and the exit. A system call that is not in the list ends the process.
//!
//! The process is started as root, because only root may open the program and the descriptors, and drops all of that here.
//! It has one thread: credentials and the filter are those of a thread.

use rustix::{
    process::{
        DumpableBehavior, Pid, Resource, Rlimit, Signal, getpid, getppid, set_dumpable_behavior,
        set_parent_process_death_signal, setrlimit,
    },
    thread::{
        CapabilitySet, CapabilitySets, set_capabilities, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
    },
};
use wasmtime::{Error, Result, bail, error::Context};

use crate::arguments::CompileLimits;

/// User and group of the process. In a range that systemd's list of user ids leaves unused (below that of `DynamicUser`),
/// so that no other process has it. Nothing belongs to it.
const USER: u32 = 61183;
/// Descriptors of the process: standard input, output and error.
const FILES: i32 = 3;
/// The kernel kills the process with the highest value first when memory is short.
const OOM_SCORE_ADJ: &str = "1000";

/// System calls of the allocator, the compiler and the exit.
const ALLOWED: [&str; 25] = [
    "brk",
    "clock_gettime",
    "close",
    "exit",
    "exit_group",
    "fstat",
    "futex",
    "getpid",
    "getrandom",
    "gettid",
    "lseek",
    "madvise",
    "mmap",
    "mprotect",
    "mremap",
    "munmap",
    "read",
    "readv",
    "rt_sigaction",
    "rt_sigprocmask",
    "rt_sigreturn",
    "sched_yield",
    "sigaltstack",
    "write",
    "writev",
];

/// Enters the sandbox. It cannot be left.
pub(crate) fn enter(limits: &CompileLimits) -> Result<()> {
    std::fs::write("/proc/self/oom_score_adj", OOM_SCORE_ADJ).context("write /proc/self/oom_score_adj")?;
    syscall::inherited::close_inherited_from(FILES).context("close the other descriptors")?;
    limit_resources(limits)?;
    drop_privileges()?;
    // After the change of the user, which clears it.
    if let Some(parent) = limits.parent {
        end_with(parent)?;
    }
    load_filter()
}

fn limit_resources(limits: &CompileLimits) -> Result<()> {
    let files = u64::from(FILES.unsigned_abs());
    let resources = [
        (Resource::As, limits.memory, limits.memory),
        // SIGXCPU at the first: the SIGKILL of the second looks like that of the OOM killer.
        (Resource::Cpu, limits.cpu, limits.cpu.saturating_add(1)),
        (Resource::Fsize, limits.output, limits.output),
        (Resource::Nofile, files, files),
        (Resource::Core, 0, 0),
    ];
    for (resource, current, maximum) in resources {
        let limit = Rlimit { current: Some(current), maximum: Some(maximum) };
        setrlimit(resource, limit).with_context(|| format!("set the limit of {resource:?} to {current}"))?;
    }
    Ok(())
}

fn drop_privileges() -> Result<()> {
    if rustix::process::geteuid().is_root() {
        let (user, group) = (rustix::process::Uid::from_raw(USER), rustix::process::Gid::from_raw(USER));
        set_thread_groups(&[]).context("drop the supplementary groups")?;
        set_thread_res_gid(group, group, group).with_context(|| format!("change to group {USER}"))?;
        set_thread_res_uid(user, user, user).with_context(|| format!("change to user {USER}"))?;
    }
    let none = CapabilitySet::empty();
    let none = CapabilitySets { effective: none, permitted: none, inheritable: none };
    set_capabilities(None, none).context("drop the capabilities")?;
    // No process of the same user can attach to this one and change the code that it writes.
    set_dumpable_behavior(DumpableBehavior::NotDumpable).context("forbid ptrace")?;
    rustix::thread::set_no_new_privs(true).context("set no_new_privs")
}

/// Has the kernel kill this process when the thread that started it ends.
fn end_with(parent: i32) -> Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL)).context("set the parent death signal")?;
    // It may have ended before.
    if getppid().map(Pid::as_raw_pid) != Some(parent) {
        bail!("process {parent}, which started this one, has ended");
    }
    Ok(())
}

fn load_filter() -> Result<()> {
    let allow = |names: &[&str], args| oci::SyscallRule {
        names: names.iter().map(|&name| name.to_owned()).collect(),
        action: "SCMP_ACT_ALLOW".into(),
        args,
        ..oci::SyscallRule::default()
    };
    // abort(3) of the allocator, to this process only.
    let own_process = oci::SeccompArg {
        value: u64::from(getpid().as_raw_nonzero().get().unsigned_abs()),
        op: "SCMP_CMP_EQ".into(),
        ..oci::SeccompArg::default()
    };
    let profile = oci::Seccomp {
        default_action: "SCMP_ACT_KILL_PROCESS".into(),
        syscalls: vec![allow(&ALLOWED, Vec::new()), allow(&["tgkill"], vec![own_process])],
        ..oci::Seccomp::default()
    };
    let program = seccomp::compile(&profile).map_err(|error| Error::msg(error.to_string()))?;
    syscall::seccomp::load_filter(&program.filter, program.flags).context("load the seccomp filter")?;
    Ok(())
}
