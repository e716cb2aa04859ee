//! Log writers: processes that move the output of containers, one per file system with logs, and dedicated ones for
//! containers that block log writers (`output/blocked.rs`).
//!
//! A write to a file system that hangs cannot be interrupted, not even by SIGKILL. So the monitor never accesses a log
//! or the data of a stream. It clones itself for each file system, sends descriptors to the clones, and receives their
//! reports.
//!
//! ```text
//!  monitor ──Order, descriptors──▶ log writer of 8:1 ──▶ logs on 8:1, and attached clients
//!  (output.rs) ◀──────Report──────    │  ├─ its own journal
//!     │                               │  ├─ heartbeat: a word of shared memory, which Ping reads
//!     │                               │  └─ alarm: a timer that notifies the monitor of a step that takes long
//!     └───────────────────────────▶ log writer of 0:53 (hangs; its containers block on their own pipes)
//! ```
//!
//! The FIFO is the queue: a container that writes to a hung disk blocks once its pipe is full, and no other container
//! does. A log writer exits with its monitor (`PR_SET_PDEATHSIG`), as soon as the kernel lets it. Until then it holds
//! the lock of its journal. The process that recovers the journal waits for the lock first, so the last write of the
//! dead writer has either completed or will never happen.

pub(crate) mod alarm;
pub(crate) mod channel;
mod feed;
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
    event::{Epoll, Timers},
    log::{journal::Journal, pipe_marker::PipeMarker, pump::Pump},
};
use alarm::{Alarm, AlarmControl};
use channel::Channel;
use process::LogWriter;

/// Parameters of a log writer, for a clone of the monitor.
pub(crate) struct Start<'a> {
    pub(crate) channel: Channel,
    /// Directory of the journals, and the name of the journal to create.
    pub(crate) state: BorrowedFd<'a>,
    pub(crate) journal: &'a str,
    pub(crate) busy: &'a SharedWord,
    pub(crate) pipe_marker: &'a PipeMarker,
    pub(crate) alarm: &'a Alarm,
    /// Whether it is dedicated to containers that block log writers.
    pub(crate) is_dedicated: bool,
    /// Pid of the monitor.
    pub(crate) monitor: Pid,
}

/// Main function of a log writer, in a new clone of the monitor. Returns its exit code.
pub(crate) fn run(start: Start<'_>) -> i32 {
    let (channel, alarm) = (start.channel.as_fd().as_raw_fd(), start.alarm.as_fd().as_raw_fd());
    let mut keep_open = [0, 1, 2, channel, alarm, start.state.as_raw_fd()];
    match syscall::descriptors::close_all_except(&mut keep_open).and_then(|()| serve(start)) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("pinmon: log writer: {error}");
            1
        }
    }
}

fn serve(start: Start<'_>) -> io::Result<()> {
    let Start { channel, state, journal, busy, pipe_marker, alarm, is_dedicated, monitor } = start;
    let _ = rustix::thread::set_name(c"pinmon-log");
    // The CPU time of a log writer depends on the output of containers, so it must not be in the autogroup of the
    // monitor. If daemon and monitor share a cgroup, the writer has the nice value of the daemon.
    let _ = rustix::process::setsid();
    syscall::scheduling::prioritize_request_thread();
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    set_parent_process_death_signal(Some(Signal::KILL))?;
    if getppid() != Some(monitor) {
        // The monitor died before the death signal was set.
        return Ok(());
    }
    let mut writer = LogWriter {
        epoll: Epoll::new()?,
        channel,
        pump: Pump::new(open_journal(state, journal)?)?,
        state: state.try_clone_to_owned()?,
        busy,
        pipe_marker,
        is_dedicated,
        alarm: AlarmControl::of(alarm),
        timers: Timers::default(),
        feeds: BTreeMap::new(),
        drained: BTreeMap::new(),
        ready: VecDeque::new(),
    };
    writer.run()
}

/// Creates a journal. If the state directory is full, the journal is in memory and does not outlive this process:
/// output is still moved, and only a kill during a batch may lose or repeat it.
fn open_journal(state: BorrowedFd<'_>, name: &str) -> io::Result<Journal> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    match openat(state, name, flags, Mode::RUSR | Mode::WUSR).map_err(io::Error::from).and_then(Journal::map) {
        Err(error) if error.kind() == io::ErrorKind::StorageFull => {
            let _ = unlinkat(state, name, AtFlags::empty());
            eprintln!("pinmon: create journal {name}: {error}; using memory only");
            Journal::map(memfd_create(c"pinmon-journal", MemfdFlags::CLOEXEC)?)
        }
        journal => journal,
    }
}
