//! Dispositions and the mask of signals, as a new program wants to find them.

use std::{mem, ptr};

/// Signals that shells, nohup(1) and Rust's own start ignore, and that stay ignored over clone and execve; and the two that
/// glibc keeps for itself and its posix_spawn leaves ignored.
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

/// `struct sigaction` of the kernel, which is not libc's: handler, flags, restorer, mask.
const DEFAULT_ACTION: [u64; 4] = [libc::SIG_DFL as u64, 0, 0, 0];

/// Nothing blocked, and nothing ignored of what a parent may have ignored. For a cloned child before execve.
pub fn reset_for_exec() {
    // SAFETY: sigset_t is plain data for which all zero is valid. rt_sigaction reads 32 bytes (x86_64) or 24 (aarch64, which
    // has no restorer) of the array, and is asked for no old value. It is called as it is, because libc's sigaction refuses
    // the signals that glibc keeps for itself. The calls cannot fail for these arguments.
    unsafe {
        let mut none: libc::sigset_t = mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut());
        for signal in OFTEN_IGNORED {
            libc::syscall(
                libc::SYS_rt_sigaction,
                signal,
                DEFAULT_ACTION.as_ptr(),
                ptr::null::<u64>(),
                mem::size_of::<u64>(),
            );
        }
    }
}

/// Writing where nobody reads any more is an error (`EPIPE`) and not the end of the process.
pub fn ignore_broken_pipes() {
    // SAFETY: SIG_IGN is a valid disposition of SIGPIPE; nothing of this program has a handler for it.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
}
