//! The sandbox of a compilation: limits of resources, and a seccomp filter that leaves memory, the open descriptors and
//! the exit. A system call that is not in the list ends the process.

use rustix::process::{Resource, Rlimit, setrlimit};
use wasmtime::{Error, Result, error::Context};

use crate::arguments::CompileLimits;

/// Descriptors of the process: standard input, output and error.
const FILES: u64 = 3;

/// System calls of the allocator, the compiler and the exit.
const ALLOWED: [&str; 28] = [
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
    "newfstatat",
    "read",
    "readv",
    "rt_sigaction",
    "rt_sigprocmask",
    "rt_sigreturn",
    "sched_yield",
    "sigaltstack",
    "statx",
    "tgkill",
    "write",
    "writev",
];

/// Enters the sandbox. It cannot be left.
pub(crate) fn enter(limits: &CompileLimits) -> Result<()> {
    let both = |value: u64| Rlimit { current: Some(value), maximum: Some(value) };
    let resources = [
        (Resource::As, limits.memory),
        (Resource::Cpu, limits.cpu),
        (Resource::Fsize, limits.output),
        (Resource::Nofile, FILES),
        (Resource::Core, 0),
    ];
    for (resource, value) in resources {
        setrlimit(resource, both(value)).with_context(|| format!("set the limit of {resource:?} to {value}"))?;
    }
    rustix::thread::set_no_new_privs(true).context("set no_new_privs")?;
    let profile = oci::Seccomp {
        default_action: "SCMP_ACT_KILL_PROCESS".into(),
        syscalls: vec![oci::SyscallRule {
            names: ALLOWED.map(str::to_owned).to_vec(),
            action: "SCMP_ACT_ALLOW".into(),
            ..oci::SyscallRule::default()
        }],
        ..oci::Seccomp::default()
    };
    let program = seccomp::compile(&profile).map_err(|error| Error::msg(error.to_string()))?;
    syscall::seccomp::load_filter(&program.filter, program.flags).context("load the seccomp filter")?;
    Ok(())
}
