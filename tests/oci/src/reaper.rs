//! Every process that ends below this test process is reaped here, as init would.
//!
//! The test process is a subreaper: what a runtime leaves running falls to it, so that a container's exit code is
//! known. It must then also reap what nobody waits for, such as a detached `exec`: a PID namespace ends only when its
//! last process was reaped. So one thread reaps all, and whoever waits asks it.

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

/// How long anything may take. A bound for a broken run, not a measure.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

/// Exit codes by pid; held while a child is started, so that nobody reaps it before it is known.
static ENDED: Mutex<Option<HashMap<i32, i32>>> = Mutex::new(None);
static CHANGED: Condvar = Condvar::new();

fn ended() -> MutexGuard<'static, Option<HashMap<i32, i32>>> {
    ENDED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Becomes the parent of orphans.
fn begin() {
    static BEGUN: OnceLock<()> = OnceLock::new();
    BEGUN.get_or_init(|| {
        set_child_subreaper(Pid::from_raw(1)).expect("any process can be a subreaper");
        thread::spawn(reap);
    });
}

fn reap() {
    loop {
        // Looks only: the reaping itself is under the lock.
        let seen = waitid(WaitId::All, WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
        let mut ended = ended();
        if seen.is_err_and(|error| error == Errno::CHILD) {
            drop(CHANGED.wait_timeout(ended, Duration::from_millis(100)));
            continue;
        }
        if let Ok(Some((pid, status))) = wait_any(WaitOptions::NOHANG) {
            let code = status.exit_status().or_else(|| status.terminating_signal().map(|signal| 128 + signal));
            ended.get_or_insert_default().insert(pid.as_raw_nonzero().get(), code.unwrap_or(-1));
            CHANGED.notify_all();
        }
    }
}

/// Starts a child.
pub(crate) fn spawn(command: &mut Command) -> std::io::Result<Child> {
    begin();
    let mut ended = ended();
    let child = command.spawn()?;
    ended.get_or_insert_default().remove(&(child.id() as i32));
    CHANGED.notify_all();
    Ok(child)
}

/// Waits until a process is gone. Its exit code, or 128 and the signal; nothing if it was never ours, an error if it
/// lives.
pub(crate) fn wait(pid: i32) -> Result<Option<i32>, ()> {
    let end = Instant::now() + DEADLINE;
    let mut ended = ended();
    loop {
        let gone = Pid::from_raw(pid)
            .is_none_or(|pid| pidfd_open(pid, PidfdFlags::empty()).is_err_and(|error| error == Errno::SRCH));
        if gone {
            return Ok(ended.as_mut().and_then(|all| all.remove(&pid)));
        }
        if Instant::now() > end {
            return Err(());
        }
        // What is not ours ends without a word: it is looked at from time to time.
        let (again, _) = CHANGED.wait_timeout(ended, Duration::from_millis(10)).unwrap_or_else(PoisonError::into_inner);
        ended = again;
    }
}
