//! State of the monitor, and its event loop.

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    time::Duration,
};

use cgroup::Hierarchies;
use rustix::fd::OwnedFd;
use syscall::signal_fd::SignalFd;

use crate::{
    child::Child,
    clock,
    connection::Link,
    epoll::{Epoll, EpollEvent},
    exec::ExecSession,
    hooks::HookRunner,
    inherited_limits::InheritedLimits,
    journals::Journals,
    programs::Programs,
    removal::RemovalJob,
    request::{NamespaceMaker, UnusedMounts},
    terminal::Terminals,
    thaw::Thaws,
    timer::{Timer, Timers},
    token::Token,
    upgrade::Pending,
    writers::{SHUTDOWN_TIMEOUT, Writers},
};

/// Maximum number of signals read in one iteration. Four signal numbers can be pending; later signals cause another
/// event.
const SIGNALS_MAX: usize = 8;
/// Delay after reading signals failed, which only happens without memory.
const SIGNALS_RETRY: Duration = Duration::from_millis(20);

/// State of the monitor.
pub(crate) struct Monitor {
    pub(crate) epoll: Epoll,
    pub(crate) listener: OwnedFd,
    pub(crate) signals: SignalFd,
    pub(crate) trees: Hierarchies,
    /// The mount namespace that this process was started in, for hooks.
    pub(crate) node_mounts: Option<OwnedFd>,
    pub(crate) inherited_limits: InheritedLimits,
    pub(crate) journals: Journals,
    pub(crate) writers: Writers,
    pub(crate) programs: Programs,
    pub(crate) terminals: Terminals,
    pub(crate) timers: Timers,
    pub(crate) link: Option<Link>,
    /// Number of connections accepted so far.
    pub(crate) links: u64,
    /// Containers and pod inits, by serial number.
    pub(crate) containers: BTreeMap<u64, Child>,
    /// Exec sessions, by serial number.
    pub(crate) execs: BTreeMap<u64, ExecSession>,
    /// Children that create namespaces, by serial number.
    pub(crate) makers: BTreeMap<u64, NamespaceMaker>,
    /// Running hooks, by serial number.
    pub(crate) runners: BTreeMap<u64, HookRunner>,
    /// Cgroups that are being removed, by serial number.
    pub(crate) removals: BTreeMap<u64, RemovalJob>,
    /// Removals that can continue in the next iteration.
    pub(crate) ready_removals: VecDeque<u64>,
    pub(crate) thaws: Thaws,
    pub(crate) keyed_descriptors: BTreeMap<String, Vec<OwnedFd>>,
    pub(crate) unused_mounts: UnusedMounts,
    pub(crate) serials: u64,
    /// A requested upgrade that has not happened yet.
    pub(crate) upgrade: Option<Pending>,
    /// Whether more children may have exited than were reaped. No further event reports them.
    pub(crate) reaping: bool,
    /// Whether `Shutdown` or a signal ended the monitor.
    pub(crate) should_exit: bool,
}

impl Monitor {
    /// Serves until `Shutdown`.
    pub(crate) fn run(&mut self) -> io::Result<()> {
        self.epoll.watch(&self.listener, Token::Listener)?;
        self.epoll.watch(&self.signals, Token::Signals)?;
        while !self.should_exit {
            let is_idle = self.ready_removals.is_empty()
                && !self.thaws.is_ready()
                && !self.reaping
                && self.unused_mounts.is_empty();
            let timeout = if is_idle { self.timers.next() } else { Some(Duration::ZERO) };
            for event in self.epoll.wait(timeout)? {
                self.dispatch(event);
            }
            if self.reaping {
                self.reap();
            }
            while let Some(timer) = self.timers.due() {
                self.timer_due(timer);
            }
            self.remove_some();
            self.thaw_some();
            self.unused_mounts.close_some();
            self.close_terminals();
            self.try_upgrade();
        }
        self.flush();
        self.finish_orphans()?;
        self.kill_writers();
        self.drop_orphans();
        self.close_terminals();
        Ok(())
    }

    /// Returns a serial number that was never used before.
    pub(crate) fn next_serial(&mut self) -> u64 {
        self.serials += 1;
        self.serials
    }

    /// Returns the serial number of the container with this id.
    pub(crate) fn find(&self, id: &str) -> Option<u64> {
        self.containers.iter().find(|(_, child)| child.id == id).map(|(serial, _)| *serial)
    }

    /// Serves only log writers, until the output of deleted containers is in their logs or [`SHUTDOWN_TIMEOUT`] is
    /// over.
    fn finish_orphans(&mut self) -> io::Result<()> {
        let until = clock::monotonic() + SHUTDOWN_TIMEOUT;
        while !self.writers.orphans.is_empty() {
            let remaining = until.saturating_sub(clock::monotonic());
            if remaining.is_zero() {
                break;
            }
            for event in self.epoll.wait(Some(remaining))? {
                if matches!(event.token, Token::Signals | Token::Writer(_) | Token::Alarm(_)) {
                    self.dispatch(event);
                }
            }
            if self.reaping {
                self.reap();
            }
        }
        Ok(())
    }

    fn dispatch(&mut self, event: EpollEvent) {
        match event.token {
            Token::Listener => self.accept(),
            Token::Signals => self.read_signals(),
            Token::Link => self.link_ready(),
            Token::Sync(serial) => self.advance(serial),
            Token::Pidfd(serial) => self.check_exit(serial, 0),
            Token::Writer(number) => self.writer_ready(number),
            Token::Alarm(number) => self.alarm_expired(number),
            // Used only by log writers.
            Token::Stream(..) | Token::Tap(..) => {}
        }
    }

    fn timer_due(&mut self, timer: Timer) {
        match timer {
            Timer::Drain(serial) => self.drain(serial, true),
            Timer::Writers => self.maintain_writers(),
            Timer::Reopen(serial) => self.reopened(serial),
            // Used only by log writers.
            Timer::Rest(..) | Timer::Taps(_) | Timer::Close(_) => {}
            Timer::Alarm(number) => self.alarm_expired(number),
            Timer::Exit(serial, tries) => self.check_exit(serial, tries),
            Timer::Left(serial, tries) => self.sweep_leftovers(serial, tries),
            Timer::Remove(serial) => self.removal_due(serial),
            Timer::Thaw(serial) => self.thaw_due(serial),
            Timer::SetUp(serial) => self.set_up_due(serial),
            Timer::Execute(serial) => self.execute_due(serial),
            Timer::Answer(serial) => self.answer_due(serial),
            Timer::Command(serial) => self.exec_due(serial),
            Timer::Maker(serial) => self.maker_due(serial),
            Timer::Watch(serial) => self.poll_unwatched(serial),
            // Handled after every iteration.
            Timer::Upgrade | Timer::Terminals => {}
            Timer::Signals => self.read_signals(),
        }
    }

    /// Reads signals. Children are reaped after the events of this iteration.
    fn read_signals(&mut self) {
        for _ in 0..SIGNALS_MAX {
            match self.signals.read() {
                Ok(Some(libc::SIGCHLD)) => self.reaping = true,
                Ok(Some(signal)) => self.handle_termination(signal),
                Ok(None) => return,
                Err(error) => {
                    eprintln!("pinmon: read signals: {error}");
                    // No SIGCHLD is reported while an unread one is pending.
                    return self.timers.within(SIGNALS_RETRY, Timer::Signals);
                }
            }
        }
    }

    /// Handles a termination signal. It ends the monitor only if it holds nothing: output and exit codes of containers
    /// depend on it.
    fn handle_termination(&mut self, signal: i32) {
        if self.holds_nothing() {
            self.should_exit = true;
        } else {
            eprintln!(
                "pinmon: ignore signal {signal}: the monitor holds containers; delete them, then request Shutdown"
            );
        }
    }

    /// Whether the monitor can exit without losing anything.
    pub(crate) fn holds_nothing(&self) -> bool {
        self.containers.is_empty()
            && self.execs.is_empty()
            && self.keyed_descriptors.is_empty()
            && self.removals.is_empty()
    }
}
