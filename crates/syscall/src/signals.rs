//! Dispositions and the mask of signals, as a new program wants to find them.

use std::{mem, ptr};

/// Signals that shells, nohup(1) and Rust's own start ignore, and that stay ignored over clone and execve.
const OFTEN_IGNORED: [i32; 8] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGPIPE,
    libc::SIGCHLD,
    libc::SIGTSTP,
    libc::SIGTTIN,
    libc::SIGTTOU,
];

/// Nothing blocked, and nothing ignored of what a parent may have ignored. For a cloned child before execve.
pub fn reset_for_exec() {
    // SAFETY: sigset_t and sigaction are plain data for which all zero is valid (SIG_DFL, no flags); the old values are not
    // asked for. The calls cannot fail for these arguments.
    unsafe {
        let mut none: libc::sigset_t = mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut());
        let mut action: libc::sigaction = mem::zeroed();
        action.sa_sigaction = libc::SIG_DFL;
        for signal in OFTEN_IGNORED {
            libc::sigaction(signal, &raw const action, ptr::null_mut());
        }
    }
}
