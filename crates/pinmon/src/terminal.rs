//! Master sides of terminals, and the processes that close them and pipes (`pipe.rs`). This process never performs the
//! last close of either.
//!
//! The last close of a master hangs up the terminal (`__tty_hangup`) and waits, uninterruptibly and without a limit,
//! for every process that is inside read(2) or write(2) on the slave. A process whose buffer cannot be paged in stays
//! there as long as a FUSE server or a holder of userfaultfd(2) does not answer. So other processes close masters:
//!
//! ```text
//!  Terminal dropped ──▶ CloseQueue ──end of the iteration──▶ clone: closer, with a copy of the master
//!                          │ no closer can be cloned: stays      │ waits until the monitor closed its copy
//!                          │ open, retried by Timer::Terminals   │ GRACE later: exits, which may hang in the kernel
//!                          └─────────────────────────────────────┘
//! ```
//!
//! A closer that hangs exits as soon as the process that it waits for is gone. Killing it, reaping it and the limit
//! [`CLOSERS_MAX`] block nobody.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet, VecDeque},
    io,
    rc::Rc,
    thread,
    time::Duration,
};

use container::{ContainerSetup, Progress};
use monitor_api::{Attachments, Role};
use rustix::{
    fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    io::Errno,
    pipe::{PipeFlags, pipe_with},
    process::{DumpableBehavior, set_dumpable_behavior},
};
use syscall::clone::Clone3;

use crate::{child::Child, clock, monitor::Monitor, pipe::Pipe, timer::Timer};

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

/// Queue of masters and pipes to be closed, shared by all pods.
#[derive(Clone, Debug, Default)]
pub(crate) struct CloseQueue {
    queue: Rc<RefCell<VecDeque<QueuedClose>>>,
    pod: Rc<str>,
}

#[derive(Debug)]
struct QueuedClose {
    file: Rc<OwnedFd>,
    pod: Rc<str>,
}

/// Master side of a terminal, which is put into [`CloseQueue`] when it is dropped.
#[derive(Debug)]
pub(crate) struct Terminal {
    master: Rc<OwnedFd>,
    close_queue: CloseQueue,
}

impl CloseQueue {
    /// Returns the queue for descriptors of this pod. A pod with many closers that hang does not delay others.
    pub(crate) fn for_pod(&self, pod: &str) -> Self {
        Self { queue: Rc::clone(&self.queue), pod: pod.into() }
    }

    /// Wraps a master, which is closed by this queue.
    pub(crate) fn terminal(&self, master: OwnedFd) -> Terminal {
        Terminal { master: Rc::new(master), close_queue: self.clone() }
    }

    /// Number of descriptors that are still open.
    fn len(&self) -> usize {
        self.queue.borrow().len()
    }

    /// Queues a descriptor to be closed.
    pub(crate) fn put(&self, file: Rc<OwnedFd>) {
        self.queue.borrow_mut().push_back(QueuedClose { file, pod: Rc::clone(&self.pod) });
    }

    fn take(&self, may: impl Fn(&Rc<str>) -> bool) -> Option<QueuedClose> {
        let mut queue = self.queue.borrow_mut();
        let at = queue.iter().position(|waiting| may(&waiting.pod))?;
        queue.remove(at)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.close_queue.put(Rc::clone(&self.master));
    }
}

impl AsFd for Terminal {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.master.as_fd()
    }
}

/// State of the closers.
#[derive(Debug, Default)]
pub(crate) struct Terminals {
    pub(crate) close_queue: CloseQueue,
    /// Pids of the closers that were not reaped yet, with their pods.
    closers: BTreeMap<i32, Rc<str>>,
    /// Moment of [`clock::monotonic`] of the last clone, which may still hold inherited descriptors.
    cloned_at: Cell<Duration>,
    /// Moment at which cloning is retried after it failed.
    retry_at: Option<Duration>,
}

impl Terminals {
    /// Closes descriptors of frames that were not taken, or were sent late: the record with the same terminal or pipe
    /// may be removed by now.
    pub(crate) fn release(&self, attachments: Attachments) {
        for (role, file) in attachments {
            match role {
                Role::Terminal => drop(self.close_queue.terminal(file)),
                Role::StdoutRead | Role::StderrRead | Role::StdinHold => drop(Pipe::new(file, &self.close_queue)),
                _ => drop(file),
            }
        }
    }

    /// Records that a process was cloned.
    pub(crate) fn cloned(&self) {
        self.cloned_at.set(clock::monotonic());
    }

    /// Returns the time that a closer keeps its copy.
    fn grace(&self) -> Duration {
        GRACE.saturating_sub(clock::monotonic().saturating_sub(self.cloned_at.get()))
    }

    /// Returns the pods that have the maximum number of closers.
    fn at_limit(&self) -> BTreeSet<Rc<str>> {
        let mut counts: BTreeMap<&Rc<str>, usize> = BTreeMap::new();
        for pod in self.closers.values() {
            *counts.entry(pod).or_default() += 1;
        }
        let most = |pod: &str| if pod.is_empty() { CLOSERS_WITHOUT_POD_MAX } else { CLOSERS_OF_POD_MAX };
        counts.into_iter().filter(|(pod, count)| *count >= most(pod)).map(|(pod, _)| Rc::clone(pod)).collect()
    }

    /// Returns the descriptors without a closer, for an upgrade.
    pub(crate) fn waiting(&self) -> Vec<Rc<OwnedFd>> {
        self.close_queue.queue.borrow().iter().map(|waiting| Rc::clone(&waiting.file)).collect()
    }

    /// Handles a reaped child. Returns whether it was a closer.
    pub(crate) fn reaped(&mut self, pid: i32) -> bool {
        self.closers.remove(&pid).is_some()
    }
}

/// Returns the queue for descriptors of a container, which belongs to its pod.
pub(crate) fn close_queue_of(terminals: &Terminals, containers: &BTreeMap<u64, Child>, container: &str) -> CloseQueue {
    let child = containers.values().find(|child| child.id == container);
    child.map_or_else(|| terminals.close_queue.clone(), |child| terminals.close_queue.for_pod(&child.sandbox))
}

/// Takes the terminal that a process sent before it was given up. Closing the socket would close the master that is in
/// it.
pub(crate) fn take_unread_terminal(close_queue: &CloseQueue, setup: Option<&mut ContainerSetup>) {
    let Some(setup) = setup else { return };
    while let Ok(Progress::Ready { terminal }) = setup.advance() {
        drop(terminal.map(|master| close_queue.terminal(master)));
    }
}

impl Monitor {
    /// Closes queued masters and pipes, as far as the limits of closers allow.
    pub(crate) fn close_terminals(&mut self) {
        if self.terminals.close_queue.len() == 0 {
            return;
        }
        if self.terminals.retry_at.is_some_and(|at| at > clock::monotonic()) {
            return;
        }
        self.terminals.retry_at = None;
        while self.terminals.closers.len() < CLOSERS_MAX {
            let terminals = &mut self.terminals;
            let at_limit = terminals.at_limit();
            let Some(waiting) = terminals.close_queue.take(|pod| !at_limit.contains(pod)) else { return };
            match clone_closer(&waiting.file, terminals.grace()) {
                Ok((pid, gate)) => {
                    terminals.closers.insert(pid, waiting.pod);
                    // In this order, because the closer waits for the end of file.
                    drop(waiting.file);
                    drop(gate);
                }
                Err(error) => {
                    eprintln!("pinmon: clone a process to close a terminal or pipe: {error}; left open for now");
                    self.terminals.close_queue.for_pod(&waiting.pod).put(waiting.file);
                    self.terminals.retry_at = Some(clock::monotonic() + RETRY);
                    return self.timers.after(RETRY, Timer::Terminals);
                }
            }
        }
    }
}

/// Clones a process that keeps a master open until the returned write end is closed.
fn clone_closer(master: &Rc<OwnedFd>, grace: Duration) -> io::Result<(i32, OwnedFd)> {
    let (gate, write_end) = pipe_with(PipeFlags::CLOEXEC)?;
    let child = Clone3::default().fork(|| close(master.as_fd(), gate.as_fd(), grace))?;
    Ok((child.pid.as_raw_pid(), write_end))
}

/// Main function of a closer. Returns its exit code.
fn close(master: BorrowedFd<'_>, gate: BorrowedFd<'_>, grace: Duration) -> i32 {
    let mut keep_open = [master.as_raw_fd(), gate.as_raw_fd()];
    if syscall::descriptors::close_all_except(&mut keep_open).is_err() {
        return 1;
    }
    let _ = rustix::thread::set_name(c"pinmon-hangup");
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    while let Err(Errno::INTR) = rustix::io::read(gate, &mut [0u8; 1]) {}
    thread::sleep(grace);
    0
}
