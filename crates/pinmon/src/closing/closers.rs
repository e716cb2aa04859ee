//! Processes that close masters and pipes.

use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
    io,
    rc::Rc,
    thread,
    time::Duration,
};

use rustix::{
    fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    io::Errno,
    pipe::{PipeFlags, pipe_with},
    process::{DumpableBehavior, set_dumpable_behavior},
};
use syscall::clone::Clone3;

use super::queue::CloseQueue;
use crate::{
    clock,
    event::{Timer, Timers},
};

/// Maximum number of closers: of all pods, of one pod, and of objects without a pod. While all of them hang, further
/// descriptors stay open.
const CLOSERS_MAX: usize = 256;
const CLOSERS_OF_POD_MAX: usize = 4;
const CLOSERS_WITHOUT_POD_MAX: usize = 64;
/// Time that a closer keeps its copy after the monitor cloned any process. A clone that has not closed its inherited
/// descriptors yet must not perform the last close either.
const GRACE: Duration = Duration::from_millis(100);
/// Time until cloning a closer is retried after it failed.
const RETRY: Duration = Duration::from_secs(1);

/// The queue of descriptors to be closed, and the processes that close them.
#[derive(Debug, Default)]
pub(crate) struct Closers {
    pub(crate) queue: CloseQueue,
    /// Pids of the closers that were not reaped yet, with their pods.
    pods: BTreeMap<i32, Rc<str>>,
    /// Moment of [`clock::monotonic`] of the last clone, which may still hold inherited descriptors.
    cloned_at: Cell<Duration>,
    /// Moment at which cloning is retried after it failed.
    retry_at: Option<Duration>,
}

impl Closers {
    /// Records that a process was cloned.
    pub(crate) fn cloned(&self) {
        self.cloned_at.set(clock::monotonic());
    }

    /// Handles a reaped child. Returns whether it was a closer.
    pub(crate) fn reaped(&mut self, pid: i32) -> bool {
        self.pods.remove(&pid).is_some()
    }

    /// Closes queued masters and pipes, as far as the limits of closers allow.
    pub(crate) fn close_queued(&mut self, timers: &mut Timers) {
        if self.queue.is_empty() || self.retry_at.is_some_and(|at| at > clock::monotonic()) {
            return;
        }
        self.retry_at = None;
        while self.pods.len() < CLOSERS_MAX {
            let at_limit = self.at_limit();
            let Some(waiting) = self.queue.take(|pod| !at_limit.contains(pod)) else { return };
            match clone_closer(&waiting.file, self.grace()) {
                Ok((pid, gate)) => {
                    self.pods.insert(pid, waiting.pod);
                    // In this order, because the closer waits for the end of file.
                    drop(waiting.file);
                    drop(gate);
                }
                Err(error) => {
                    eprintln!("pinmon: clone a process to close a terminal or pipe: {error}; left open for now");
                    self.queue.for_pod(&waiting.pod).put(waiting.file);
                    self.retry_at = Some(clock::monotonic() + RETRY);
                    return timers.after(RETRY, Timer::Terminals);
                }
            }
        }
    }

    /// Returns the time that a closer keeps its copy.
    fn grace(&self) -> Duration {
        GRACE.saturating_sub(clock::monotonic().saturating_sub(self.cloned_at.get()))
    }

    /// Returns the pods that have the maximum number of closers.
    fn at_limit(&self) -> BTreeSet<Rc<str>> {
        let mut counts: BTreeMap<&Rc<str>, usize> = BTreeMap::new();
        for pod in self.pods.values() {
            *counts.entry(pod).or_default() += 1;
        }
        let most = |pod: &str| if pod.is_empty() { CLOSERS_WITHOUT_POD_MAX } else { CLOSERS_OF_POD_MAX };
        counts.into_iter().filter(|(pod, count)| *count >= most(pod)).map(|(pod, _)| Rc::clone(pod)).collect()
    }
}

/// Clones a process that keeps a descriptor open until the returned write end is closed.
fn clone_closer(file: &Rc<OwnedFd>, grace: Duration) -> io::Result<(i32, OwnedFd)> {
    let (gate, write_end) = pipe_with(PipeFlags::CLOEXEC)?;
    let child = Clone3::default().fork(|| close(file.as_fd(), gate.as_fd(), grace))?;
    Ok((child.pid.as_raw_pid(), write_end))
}

/// Main function of a closer. Returns its exit code.
fn close(file: BorrowedFd<'_>, gate: BorrowedFd<'_>, grace: Duration) -> i32 {
    let mut keep_open = [file.as_raw_fd(), gate.as_raw_fd()];
    if syscall::descriptors::close_all_except(&mut keep_open).is_err() {
        return 1;
    }
    let _ = rustix::thread::set_name(c"pinmon-hangup");
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    while let Err(Errno::INTR) = rustix::io::read(gate, &mut [0u8; 1]) {}
    thread::sleep(grace);
    0
}
