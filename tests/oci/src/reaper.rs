//! Reaps every process below this test process, as init would.
//!
//! The test process is a subreaper: processes that a runtime leaves running are reparented to it, so that the exit code
//! of a container is known. It must then also reap processes that no caller waits for, such as a detached `exec`: a PID
//! namespace ends only when its last process has been reaped. So one thread reaps all children, and callers wait for
//! its result.

use std::{
    collections::HashMap,
    process::{Child, Command},
    sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    io::Errno,
    process::{
        Pid, PidfdFlags, WaitId, WaitIdOptions, WaitOptions, pidfd_open, set_child_subreaper, wait as wait_any, waitid,
    },
};

/// Time limit of every wait. It only ends broken runs; correct runs are much faster.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

/// Exit codes by pid. Locked while a child is started, so that it cannot be reaped before its pid is known.
static EXIT_CODES: Mutex<Option<HashMap<i32, i32>>> = Mutex::new(None);
static CHANGED: Condvar = Condvar::new();

fn lock_exit_codes() -> MutexGuard<'static, Option<HashMap<i32, i32>>> {
    EXIT_CODES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes this process a subreaper and starts the thread that reaps, once.
fn initialize() {
    static INITIALIZED: OnceLock<()> = OnceLock::new();
    INITIALIZED.get_or_init(|| {
        set_child_subreaper(Pid::from_raw(1)).expect("become a subreaper");
        thread::spawn(reap);
    });
}

fn reap() {
    loop {
        // Does not reap yet: a child must be reaped under the lock only.
        let waited = waitid(WaitId::All, WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
        let mut exit_codes = lock_exit_codes();
        if waited.is_err_and(|error| error == Errno::CHILD) {
            drop(CHANGED.wait_timeout(exit_codes, Duration::from_millis(100)));
            continue;
        }
        if let Ok(Some((pid, status))) = wait_any(WaitOptions::NOHANG) {
            let code = status.exit_status().or_else(|| status.terminating_signal().map(|signal| 128 + signal));
            exit_codes.get_or_insert_default().insert(pid.as_raw_nonzero().get(), code.unwrap_or(-1));
            CHANGED.notify_all();
        }
    }
}

/// Starts a child.
pub(crate) fn spawn(command: &mut Command) -> std::io::Result<Child> {
    initialize();
    let mut exit_codes = lock_exit_codes();
    let child = command.spawn()?;
    exit_codes.get_or_insert_default().remove(&(child.id() as i32));
    CHANGED.notify_all();
    Ok(child)
}

/// Waits until a process has exited. Returns its exit code, or 128 + the signal; `None` if it was never a child of this
/// process, and an error if it is still running after [`DEADLINE`].
pub(crate) fn wait(pid: i32) -> Result<Option<i32>, ()> {
    let end = Instant::now() + DEADLINE;
    let mut exit_codes = lock_exit_codes();
    loop {
        let has_exited = Pid::from_raw(pid)
            .is_none_or(|pid| pidfd_open(pid, PidfdFlags::empty()).is_err_and(|error| error == Errno::SRCH));
        if has_exited {
            return Ok(exit_codes.as_mut().and_then(|codes| codes.remove(&pid)));
        }
        if Instant::now() > end {
            return Err(());
        }
        // The exit of a process that is not a child causes no notification, so it is polled.
        let result = CHANGED.wait_timeout(exit_codes, Duration::from_millis(10));
        (exit_codes, _) = result.unwrap_or_else(PoisonError::into_inner);
    }
}
