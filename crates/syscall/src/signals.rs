//! Resets signal dispositions and the signal mask for a new program.

use std::{mem, ptr};

/// Signals that shells, nohup(1) and Rust's startup code ignore, and that stay ignored across clone and execve; and the
/// two that are reserved for glibc, whose posix_spawn leaves them ignored.
const OFTEN_IGNORED: [i32; 10] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGPIPE,
    libc::SIGCHLD,
    libc::SIGTSTP,
    libc::SIGTTIN,
    libc::SIGTTOU,
    32,
    33,
];

/// Signals that terminate a process that waits for its start.
const TERMINATING: [i32; 4] = [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM];

/// The kernel's `struct sigaction`, which differs from libc's: handler, flags, restorer, mask.
type Action = [u64; 4];

const DEFAULT_ACTION: Action = [libc::SIG_DFL as u64, 0, 0, 0];
/// `SA_RESTORER` of both architectures; x86_64 refuses a handler without a restorer.
const HAS_RESTORER: u64 = 0x0400_0000;

/// Unblocks all signals, and resets those that a parent may have ignored. For a cloned child before execve.
pub fn reset_for_exec() {
    unblock_all();
    OFTEN_IGNORED.iter().for_each(|signal| set_action(*signal, &DEFAULT_ACTION));
}

/// Resets signals as [`reset_for_exec`] does, for a child that is the init of a PID namespace and waits before its
/// execve. The kernel does not deliver signals without a handler to an init, so signals that terminate other processes
/// get a handler, which exits with 128 plus the signal number. execve resets it.
pub fn reset_for_waiting_init() {
    unblock_all();
    let handler = exit_by_signal as extern "C" fn(i32) as usize as u64;
    // The handler never returns, so any address can be the restorer.
    let action = [handler, HAS_RESTORER, handler, 0];
    let others = OFTEN_IGNORED.iter().filter(|signal| !TERMINATING.contains(signal));
    others.for_each(|signal| set_action(*signal, &DEFAULT_ACTION));
    TERMINATING.iter().for_each(|signal| set_action(*signal, &action));
}

/// Resets `SIGCHLD` to the default, so that children that exit stay zombies until they are waited for. If the parent
/// has ignored it, which execve preserves, waitid(2) would not return an exit code.
pub fn reset_sigchld() {
    set_action(libc::SIGCHLD, &DEFAULT_ACTION);
}

extern "C" fn exit_by_signal(signal: i32) {
    crate::clone::exit_now(128 + signal);
}

fn unblock_all() {
    // SAFETY: sigset_t is plain data for which all zero is valid, and the call reads it only.
    unsafe {
        let mut none: libc::sigset_t = mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut());
    }
}

fn set_action(signal: i32, action: &Action) {
    // SAFETY: rt_sigaction reads 32 bytes of the array or, if the struct has no restorer, 24. The handler is SIG_DFL or
    // a function that calls only _exit, and no old value is requested. The system call is made directly, because libc's
    // sigaction refuses the signals that are reserved for glibc. The call cannot fail for these arguments.
    unsafe {
        libc::syscall(libc::SYS_rt_sigaction, signal, action.as_ptr(), ptr::null::<u64>(), mem::size_of::<u64>());
    }
}

/// Ignores `SIGPIPE`: writing to a pipe without a reader returns `EPIPE` instead of terminating the process.
pub fn ignore_sigpipe() {
    // SAFETY: SIG_IGN is a valid disposition of SIGPIPE; this program has no handler for it.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
}
