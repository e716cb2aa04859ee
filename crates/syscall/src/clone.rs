//! clone3(2) without execve: the child is a copy of a single-threaded parent.

use std::io;

use rustix::{
    fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
    process::Pid,
    thread::UnshareFlags,
};

/// Options of clone3.
#[derive(Debug, Default)]
pub struct Clone3<'a> {
    /// New namespaces for the child (`CLONE_NEW*`).
    pub namespaces: Option<UnshareFlags>,
    /// The directory of the child's cgroup in the v2 tree (`CLONE_INTO_CGROUP`, Linux 5.7). Does not wait for RCU.
    pub cgroup: Option<BorrowedFd<'a>>,
}

/// A cloned process.
#[derive(Debug)]
pub struct Child {
    /// The pid in the caller's PID namespace.
    pub pid: Pid,
    /// The pidfd, close-on-exec.
    pub pidfd: OwnedFd,
}

/// Exits the process if a panic unwinds out of the child's closure, because the child must not run the parent's frames.
struct ExitOnUnwind;

impl Drop for ExitOnUnwind {
    fn drop(&mut self) {
        exit_now(EXIT_PANIC);
    }
}

// Flags beyond 32 bits, for which the constants of the libc crate overflow (`linux/sched.h`).
const CLONE_CLEAR_SIGHAND: u64 = 1 << 32;
const CLONE_INTO_CGROUP: u64 = 1 << 33;

/// The exit code after a panic, as in other Rust programs.
const EXIT_PANIC: i32 = 101;

impl Clone3<'_> {
    /// Runs `child` in a new process and returns its pid and pidfd to the caller. The exit code of the process is the
    /// result of `child`.
    ///
    /// The child has a copy of the caller's memory and descriptors. Its signal handlers are reset to the default
    /// (`CLONE_CLEAR_SIGHAND`, Linux 5.5); ignored signals stay ignored, and blocked signals blocked.
    ///
    /// # Errors
    /// `EINVAL` if the caller has more than one thread (a lock that another thread holds would never be released in the
    /// child); `EBUSY`, `ENOENT`, `EOPNOTSUPP` for the cgroup; `EAGAIN`, `ENOMEM`, `EPERM`, `ENOSPC` as in clone(2).
    pub fn fork(self, child: impl FnOnce() -> i32) -> io::Result<Child> {
        self.fork_as(0, libc::SIGCHLD as u64, child)
    }

    /// Runs `child` in a new process that is a sibling: the caller's parent is its parent and reaps it
    /// (`CLONE_PARENT`).
    ///
    /// # Errors
    /// Those of [`Clone3::fork`]; `EINVAL` if the caller is the init of a PID namespace.
    pub fn fork_sibling(self, child: impl FnOnce() -> i32) -> io::Result<Child> {
        // With CLONE_PARENT the exit signal is that of the caller; the kernel refuses another value.
        self.fork_as(libc::CLONE_PARENT as u64, 0, child)
    }

    fn fork_as(self, more: u64, exit_signal: u64, child: impl FnOnce() -> i32) -> io::Result<Child> {
        require_single_thread()?;
        let mut pidfd: libc::c_int = -1;
        let into_cgroup = if self.cgroup.is_some() { CLONE_INTO_CGROUP } else { 0 };
        let namespaces = self.namespaces.map_or(0, |flags| u64::from(flags.bits()));
        let arguments = libc::clone_args {
            flags: namespaces | into_cgroup | more | libc::CLONE_PIDFD as u64 | CLONE_CLEAR_SIGHAND,
            pidfd: (&raw mut pidfd) as u64,
            child_tid: 0,
            parent_tid: 0,
            exit_signal,
            stack: 0,
            stack_size: 0,
            tls: 0,
            set_tid: 0,
            set_tid_size: 0,
            cgroup: self.cgroup.map_or(0, |fd| fd.as_raw_fd() as u64),
        };
        // SAFETY: without CLONE_VM the child gets its own copy of all memory, so nothing is shared that either side
        // could race on, and there is one thread (checked), so no lock is held forever in the child. `arguments` and
        // `pidfd` outlive the call, and the size given is that of the struct.
        let pid = unsafe { libc::syscall(libc::SYS_clone3, &raw const arguments, size_of::<libc::clone_args>()) };
        match pid {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                let guard = ExitOnUnwind;
                let code = child();
                std::mem::forget(guard);
                exit_now(code)
            }
            pid => {
                // SAFETY: CLONE_PIDFD stored a new descriptor here, which nothing else owns.
                let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
                let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
                Ok(Child { pid: pid.ok_or_else(|| io::Error::other("clone3 returned an invalid pid"))?, pidfd })
            }
        }
    }
}

/// Exits the process immediately, without destructors and atexit handlers.
pub fn exit_now(code: i32) -> ! {
    // SAFETY: _exit takes any value and does not return.
    unsafe { libc::_exit(code) }
}

/// Returns `EINVAL` unless the calling process has a single thread: unshare(2) with `CLONE_THREAD` only checks that.
fn require_single_thread() -> io::Result<()> {
    // SAFETY: CLONE_THREAD without other flags changes nothing.
    match unsafe { libc::unshare(libc::CLONE_THREAD) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Moves the calling process, which must have a single thread, into new namespaces.
///
/// # Errors
/// `EINVAL` if there is more than one thread, or if the kernel lacks one of the kinds; `EPERM`; `ENOSPC` at a limit of
/// `/proc/sys/user/max_*_namespaces`.
pub fn unshare_process(namespaces: UnshareFlags) -> io::Result<()> {
    require_single_thread()?;
    let only = namespaces.difference(UnshareFlags::FILES);
    // SAFETY: unshare is unsafe for CLONE_FILES, which is removed, and there is only one thread.
    unsafe { rustix::thread::unshare_unsafe(only) }?;
    Ok(())
}
