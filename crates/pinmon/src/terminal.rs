//! Master sides of terminals, and who closes them and pipes (`pipe.rs`). This process never is the last one to close
//! either.
//!
//! The last close hangs the terminal up (`__tty_hangup`) and waits, uninterruptibly and without a limit, for every
//! process that is inside read(2) or write(2) on the slave. A process whose buffer cannot be paged in, because a FUSE
//! server or a holder of userfaultfd(2) does not answer, stays there for as long as it likes. So masters are closed by
//! other processes:
//!
//! ```text
//!  Terminal dropped ──▶ Closing (queue) ──end of the turn──▶ clone: closer, with a copy of the master
//!                          │ no closer can be made: stays open,  │ waits until the monitor closed its own
//!                          │ retried by Timer::Terminals         │ GRACE later: exits, and hangs where the kernel
//!                          waits └─────────────────────────────────────┘
//! ```
//!
//! A closer that hangs ends as soon as the process it waits for is gone. Its kill, its reaping and its number
//! ([`CLOSERS_MAX`]) hold up nobody.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet, VecDeque},
    io,
    rc::Rc,
    thread,
    time::Duration,
};

use container::{Nascent, Progress};
use monitor_api::{Attachments, Role};
use rustix::{
    fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    io::Errno,
    pipe::{PipeFlags, pipe_with},
    process::{DumpableBehavior, set_dumpable_behavior},
};
use syscall::clone::Clone3;

use crate::{child::Child, clock, monitor::Monitor, pipe::Pipe, timer::Timer};

/// Most closers at a time, of all pods, of one, and of what is not known to be a pod's. When all of them hang, further
/// descriptors stay open.
const CLOSERS_MAX: usize = 256;
const CLOSERS_OF_POD_MAX: usize = 4;
const CLOSERS_OF_NOBODY_MAX: usize = 64;
/// How long a closer keeps its copy after the monitor cloned something: a clone that has not closed what it inherited
/// yet must not be the last either.
const GRACE: Duration = Duration::from_millis(100);
/// How long after a closer could not be cloned the next try is.
const RETRY: Duration = Duration::from_secs(1);

/// Masters and ends of pipes that are to be closed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Closing {
    queue: Rc<RefCell<VecDeque<Waiting>>>,
    pod: Rc<str>,
}

#[derive(Debug)]
struct Waiting {
    file: Rc<OwnedFd>,
    pod: Rc<str>,
}

/// A master, which goes to [`Closing`] when it is dropped.
#[derive(Debug)]
pub(crate) struct Terminal {
    master: Rc<OwnedFd>,
    closing: Closing,
}

impl Closing {
    /// For what is this pod's: one that has many closers hang holds up no other.
    pub(crate) fn of(&self, pod: &str) -> Self {
        Self { queue: Rc::clone(&self.queue), pod: pod.into() }
    }

    /// Takes ownership of a master.
    pub(crate) fn own(&self, master: OwnedFd) -> Terminal {
        Terminal { master: Rc::new(master), closing: self.clone() }
    }

    /// Those that are still open.
    fn len(&self) -> usize {
        self.queue.borrow().len()
    }

    /// Takes one over to close it.
    pub(crate) fn put(&self, file: Rc<OwnedFd>) {
        self.queue.borrow_mut().push_back(Waiting { file, pod: Rc::clone(&self.pod) });
    }

    fn take(&self, may: impl Fn(&Rc<str>) -> bool) -> Option<Waiting> {
        let mut queue = self.queue.borrow_mut();
        let at = queue.iter().position(|waiting| may(&waiting.pod))?;
        queue.remove(at)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.closing.put(Rc::clone(&self.master));
    }
}

impl AsFd for Terminal {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.master.as_fd()
    }
}

/// The monitor's part: see the head of this file.
#[derive(Debug, Default)]
pub(crate) struct Terminals {
    pub(crate) closing: Closing,
    /// Process ids of closers that were not reaped yet, and whose they are.
    closers: BTreeMap<i32, Rc<str>>,
    /// Moment of [`clock::monotonic`] of the last clone that may hold what it inherited for a while.
    cloned_at: Cell<Duration>,
    /// When cloning is tried again after it failed.
    retry_at: Option<Duration>,
}

impl Terminals {
    /// Closes descriptors that waited for the daemon, or came from it and were not taken: a record that holds the same
    /// terminal or pipe may be gone by now.
    pub(crate) fn release(&self, attachments: Attachments) {
        for (role, file) in attachments {
            match role {
                Role::Terminal => drop(self.closing.own(file)),
                Role::StdoutRead | Role::StderrRead | Role::StdinHold => drop(Pipe::new(file, &self.closing)),
                _ => drop(file),
            }
        }
    }

    /// Something was cloned just now.
    pub(crate) fn cloned(&self) {
        self.cloned_at.set(clock::monotonic());
    }

    /// How long a closer keeps its copy.
    fn grace(&self) -> Duration {
        GRACE.saturating_sub(clock::monotonic().saturating_sub(self.cloned_at.get()))
    }

    /// Pods that have as many closers as they may have.
    fn at_limit(&self) -> BTreeSet<Rc<str>> {
        let mut counts: BTreeMap<&Rc<str>, usize> = BTreeMap::new();
        for pod in self.closers.values() {
            *counts.entry(pod).or_default() += 1;
        }
        let most = |pod: &str| if pod.is_empty() { CLOSERS_OF_NOBODY_MAX } else { CLOSERS_OF_POD_MAX };
        counts.into_iter().filter(|(pod, count)| *count >= most(pod)).map(|(pod, _)| Rc::clone(pod)).collect()
    }

    /// For a program that takes over: those that no closer was made for.
    pub(crate) fn waiting(&self) -> Vec<Rc<OwnedFd>> {
        self.closing.queue.borrow().iter().map(|waiting| Rc::clone(&waiting.file)).collect()
    }

    /// A child was reaped; whether it was a closer.
    pub(crate) fn reaped(&mut self, pid: i32) -> bool {
        self.closers.remove(&pid).is_some()
    }
}

/// For what is of a container, in the name of its pod.
pub(crate) fn closing_of(terminals: &Terminals, containers: &BTreeMap<u64, Child>, container: &str) -> Closing {
    let child = containers.values().find(|child| child.id == container);
    child.map_or_else(|| terminals.closing.clone(), |child| terminals.closing.of(&child.sandbox))
}

/// A process that is given up may have sent its terminal and nobody read the message: the master must not be closed
/// with the socket.
pub(crate) fn take_unread_terminal(closing: &Closing, nascent: Option<&mut Nascent>) {
    let Some(nascent) = nascent else { return };
    while let Ok(Progress::Ready { terminal }) = nascent.advance() {
        drop(terminal.map(|master| closing.own(master)));
    }
}

impl Monitor {
    /// Has all masters and pipes closed that are not needed any longer, as far as there may be closers.
    pub(crate) fn close_terminals(&mut self) {
        if self.terminals.closing.len() == 0 {
            return;
        }
        if self.terminals.retry_at.is_some_and(|at| at > clock::monotonic()) {
            return;
        }
        self.terminals.retry_at = None;
        while self.terminals.closers.len() < CLOSERS_MAX {
            let terminals = &mut self.terminals;
            let at_limit = terminals.at_limit();
            let Some(waiting) = terminals.closing.take(|pod| !at_limit.contains(pod)) else { return };
            match clone_closer(&waiting.file, terminals.grace()) {
                Ok((pid, gate)) => {
                    terminals.closers.insert(pid, waiting.pod);
                    // In this order: the closer waits for the end of file.
                    drop(waiting.file);
                    drop(gate);
                }
                Err(error) => {
                    eprintln!("pinmon: start a process that closes a terminal or pipe: {error}: left open for now");
                    self.terminals.closing.of(&waiting.pod).put(waiting.file);
                    self.terminals.retry_at = Some(clock::monotonic() + RETRY);
                    return self.timers.after(RETRY, Timer::Terminals);
                }
            }
        }
    }
}

/// Clones a process that holds a master until the returned write end is closed, and closes it then.
fn clone_closer(master: &Rc<OwnedFd>, grace: Duration) -> io::Result<(i32, OwnedFd)> {
    let (gate, held) = pipe_with(PipeFlags::CLOEXEC)?;
    let child = Clone3::default().fork(|| close(master.as_fd(), gate.as_fd(), grace))?;
    Ok((child.pid, held))
}

/// The whole life of a closer; its exit code.
fn close(master: BorrowedFd<'_>, gate: BorrowedFd<'_>, grace: Duration) -> i32 {
    let mut kept = [master.as_raw_fd(), gate.as_raw_fd()];
    if syscall::descriptors::close_all_but(&mut kept).is_err() {
        return 1;
    }
    let _ = rustix::thread::set_name(c"pinmon-hangup");
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    while let Err(Errno::INTR) = rustix::io::read(gate, &mut [0u8; 1]) {}
    thread::sleep(grace);
    0
}
