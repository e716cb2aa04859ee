//! Dispositions and the mask of signals, as a new program wants to find them.

use std::{mem, ptr};

/// Signals that shells, nohup(1) and Rust's own start ignore, and that stay ignored over clone and execve; and the two
/// that glibc keeps for itself and its posix_spawn leaves ignored.
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

/// Signals that end a process that waits to be started.
const ENDING: [i32; 4] = [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM];

/// `struct sigaction` of the kernel, which is not libc's: handler, flags, restorer, mask.
type Action = [u64; 4];

const DEFAULT_ACTION: Action = [libc::SIG_DFL as u64, 0, 0, 0];
/// x86_64 refuses a handler without a restorer; `SA_RESTORER` of both architectures.
const HAS_RESTORER: u64 = 0x0400_0000;

/// Nothing blocked, and nothing ignored of what a parent may have ignored. For a cloned child before execve.
pub fn reset_for_exec() {
    unblock_all();
    OFTEN_IGNORED.iter().for_each(|signal| set_action(*signal, &DEFAULT_ACTION));
}

/// As [`reset_for_exec`], for a child that is the init of a PID namespace and waits before its execve: the kernel keeps
/// from an init the signals that it has no handler for, so those that end other processes get one, which exits with 128
/// and the signal. execve undoes it.
pub fn reset_for_waiting_init() {
    unblock_all();
    let handler = exit_by_signal as extern "C" fn(i32) as usize as u64;
    // It never returns, so any address serves as the restorer.
    let action = [handler, HAS_RESTORER, handler, 0];
    let others = OFTEN_IGNORED.iter().filter(|signal| !ENDING.contains(signal));
    others.for_each(|signal| set_action(*signal, &DEFAULT_ACTION));
    ENDING.iter().for_each(|signal| set_action(*signal, &action));
}

/// Children that end stay zombies until they are waited for, whatever the parent's parent did: where `SIGCHLD` is
/// ignored, which execve keeps, waitid(2) has no exit code for anybody.
pub fn keep_ended_children() {
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
    // SAFETY: rt_sigaction reads 32 bytes or, where the struct has no restorer, 24 of the array, whose handler is
    // SIG_DFL or a function that calls nothing but _exit, and no old value is requested. It is called as it is, because
    // libc's sigaction refuses the signals that glibc keeps for itself. The call cannot fail for these arguments.
    unsafe {
        libc::syscall(libc::SYS_rt_sigaction, signal, action.as_ptr(), ptr::null::<u64>(), mem::size_of::<u64>());
    }
}

/// Writing where nobody reads any more is an error (`EPIPE`) and not the end of the process.
pub fn ignore_broken_pipes() {
    // SAFETY: SIG_IGN is a valid disposition of SIGPIPE; nothing of this program has a handler for it.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
}
