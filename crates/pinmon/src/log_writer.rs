//! Log writers: processes that move containers' output, one for each file system that logs are on, and further ones for
//! containers that hold up writers (`writers/held.rs`).
//!
//! A write to a file system that hangs cannot be interrupted, not even by SIGKILL. So the monitor never touches a log
//! or a stream's data: it clones itself for each file system, hands descriptors over, and hears what became of them.
//!
//! ```text
//!  monitor (writers.rs) ──Order, descriptors──▶ log writer of 8:1 ──▶ logs on 8:1, clients attached to those
//!  containers │          ◀──Report────────────      │ its own journal │                                     ├─
//!  heartbeat: a word of shared memory, read by Ping │                                     └─ alarm: a timer that rings
//!  at the monitor when a step takes long └───────────────────────────────▶ log writer of 0:53 (hangs; its containers
//!  block on their own pipes)
//! ```
//!
//! The FIFO is the queue: a container that writes to a hung disk blocks once its pipe is full, nobody else does. A
//! writer ends with its monitor (`PR_SET_PDEATHSIG`), as soon as the kernel lets it. Until then it holds the lock of
//! its journal: the process that recovers it waits for the lock first, so the last write of the one that died has
//! landed, or never will.

pub(crate) mod alarm;
mod feed;
pub(crate) mod line;
pub(crate) mod order;
mod process;

use std::{
    collections::{BTreeMap, VecDeque},
    io,
};

use rustix::{
    fd::{AsFd, AsRawFd, BorrowedFd},
    fs::{AtFlags, MemfdFlags, Mode, OFlags, memfd_create, openat, unlinkat},
    process::{DumpableBehavior, Pid, Signal, getppid, set_dumpable_behavior, set_parent_process_death_signal},
};
use syscall::shared_word::SharedWord;

use crate::{
    epoll::Epoll,
    log::{hold::Held, journal::Journal, pump::Pump},
    timer::Timers,
};
use alarm::{Alarm, Setting};
use line::Line;
use process::LogWriter;

/// What a clone of the monitor needs to become a log writer.
pub(crate) struct Start<'a> {
    pub(crate) line: Line,
    /// Directory of the journals, and the name of the one to make.
    pub(crate) state: BorrowedFd<'a>,
    pub(crate) journal: &'a str,
    pub(crate) busy: &'a SharedWord,
    pub(crate) held: &'a Held,
    pub(crate) alarm: &'a Alarm,
    /// For containers that hold up writers.
    pub(crate) is_apart: bool,
    /// Process id of the monitor.
    pub(crate) monitor: Pid,
}

/// The whole life of a log writer, in a fresh clone of the monitor; its exit code.
pub(crate) fn run(start: Start<'_>) -> i32 {
    let (line, alarm) = (start.line.as_fd().as_raw_fd(), start.alarm.as_fd().as_raw_fd());
    let mut kept = [0, 1, 2, line, alarm, start.state.as_raw_fd()];
    match syscall::descriptors::close_all_but(&mut kept).and_then(|()| serve(start)) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("pinmon: log writer: {error}");
            1
        }
    }
}

fn serve(start: Start<'_>) -> io::Result<()> {
    let Start { line, state, journal, busy, held, alarm, is_apart, monitor } = start;
    let _ = rustix::thread::set_name(c"pinmon-log");
    // The CPU time of a log writer depends on the output of containers, so it must not be in the monitor's autogroup.
    // In one cgroup with the daemon it has the daemon's nice value.
    let _ = rustix::process::setsid();
    syscall::scheduling::serve_requests();
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    set_parent_process_death_signal(Some(Signal::KILL))?;
    if getppid() != Some(monitor) {
        // It died before the kernel was asked to end this process with it.
        return Ok(());
    }
    let mut writer = LogWriter {
        epoll: Epoll::new()?,
        line,
        pump: Pump::new(open_journal(state, journal)?)?,
        state: state.try_clone_to_owned()?,
        busy,
        held,
        is_apart,
        alarm: Setting::of(alarm),
        timers: Timers::default(),
        feeds: BTreeMap::new(),
        drained: BTreeMap::new(),
        ready: VecDeque::new(),
    };
    writer.run()
}

/// A new journal. Where the state directory is full, one that does not outlive this process: output is moved all the
/// same, and only a kill at this time may lose or repeat a batch.
fn open_journal(state: BorrowedFd<'_>, name: &str) -> io::Result<Journal> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    match openat(state, name, flags, Mode::RUSR | Mode::WUSR).map_err(io::Error::from).and_then(Journal::map) {
        Err(error) if error.kind() == io::ErrorKind::StorageFull => {
            let _ = unlinkat(state, name, AtFlags::empty());
            eprintln!("pinmon: journal {name}: {error}: kept in memory only");
            Journal::map(memfd_create(c"pinmon-journal", MemfdFlags::CLOEXEC)?)
        }
        journal => journal,
    }
}
