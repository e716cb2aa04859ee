//! All that the monitor holds, and the loop that everything happens in.

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
    command::Command,
    connection::Link,
    epoll::{Epoll, Happened},
    hooks::Runner,
    inherit::Inherit,
    journals::Journals,
    programs::Programs,
    removal::Job,
    request::{Maker, UnusedMounts},
    terminal::Terminals,
    thaw::Thaws,
    timer::{Timer, Timers},
    token::Token,
    upgrade::Pending,
    writers::{FAREWELL, Writers},
};

/// Signals that are read in one turn of the loop, of the four kinds that may wait. Those that come later are an event
/// again.
const SIGNALS_MAX: usize = 8;
/// After an error, which is rare: no memory.
const SIGNALS_RETRY: Duration = Duration::from_millis(20);

/// See the head of this file.
pub(crate) struct Monitor {
    pub(crate) epoll: Epoll,
    pub(crate) listener: OwnedFd,
    pub(crate) signals: SignalFd,
    pub(crate) trees: Hierarchies,
    /// The mount namespace that this process was started in, where hooks are.
    pub(crate) node_mounts: Option<OwnedFd>,
    pub(crate) inherit: Inherit,
    pub(crate) journals: Journals,
    pub(crate) writers: Writers,
    pub(crate) programs: Programs,
    pub(crate) terminals: Terminals,
    pub(crate) timers: Timers,
    pub(crate) link: Option<Link>,
    /// How many connections there were.
    pub(crate) links: u64,
    /// By serial number.
    pub(crate) containers: BTreeMap<u64, Child>,
    /// By serial number.
    pub(crate) commands: BTreeMap<u64, Command>,
    /// By serial number.
    pub(crate) makers: BTreeMap<u64, Maker>,
    /// Hooks that run, by serial number.
    pub(crate) runners: BTreeMap<u64, Runner>,
    /// Groups on their way out, by serial number.
    pub(crate) removals: BTreeMap<u64, Job>,
    /// Those of them that wait for nothing but their turn.
    pub(crate) removing: VecDeque<u64>,
    pub(crate) thaws: Thaws,
    pub(crate) kept: BTreeMap<String, Vec<OwnedFd>>,
    pub(crate) unused_mounts: UnusedMounts,
    pub(crate) serials: u64,
    /// Another program is to take over.
    pub(crate) upgrade: Option<Pending>,
    /// Children may have ended that were not reaped yet: no event reports them again.
    pub(crate) reaping: bool,
    /// `Shutdown` was granted.
    pub(crate) over: bool,
}

impl Monitor {
    /// Serves until `Shutdown`.
    pub(crate) fn run(&mut self) -> io::Result<()> {
        self.epoll.watch(&self.listener, Token::Listener)?;
        self.epoll.watch(&self.signals, Token::Signals)?;
        while !self.over {
            let is_idle =
                self.removing.is_empty() && !self.thaws.is_ready() && !self.reaping && self.unused_mounts.is_empty();
            let most = if is_idle { self.timers.next() } else { Some(Duration::ZERO) };
            for happened in self.epoll.wait(most)? {
                self.happened(happened);
            }
            if self.reaping {
                self.reap();
            }
            while let Some(timer) = self.timers.due() {
                self.due(timer);
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
        self.forget_orphans();
        self.close_terminals();
        Ok(())
    }

    /// A number that was never given before.
    pub(crate) fn next_serial(&mut self) -> u64 {
        self.serials += 1;
        self.serials
    }

    /// The container of this id.
    pub(crate) fn find(&self, id: &str) -> Option<u64> {
        self.containers.iter().find(|(_, child)| child.id == id).map(|(serial, _)| *serial)
    }

    /// Serves log writers only, until the output of deleted containers is in their logs or [`FAREWELL`] is over.
    fn finish_orphans(&mut self) -> io::Result<()> {
        let until = clock::monotonic() + FAREWELL;
        while !self.writers.orphans.is_empty() {
            let left = until.saturating_sub(clock::monotonic());
            if left.is_zero() {
                break;
            }
            for happened in self.epoll.wait(Some(left))? {
                if matches!(happened.token, Token::Signals | Token::Writer(_) | Token::Alarm(_)) {
                    self.happened(happened);
                }
            }
            if self.reaping {
                self.reap();
            }
        }
        Ok(())
    }

    fn happened(&mut self, happened: Happened) {
        match happened.token {
            Token::Listener => self.accept(),
            Token::Signals => self.signalled(),
            Token::Link => self.link_ready(),
            Token::Sync(serial) => self.advance(serial),
            Token::Pidfd(serial) => self.ended_elsewhere(serial, 0),
            Token::Writer(number) => self.writer_ready(number),
            Token::Alarm(number) => self.alarm_rang(number),
            // In log writers only.
            Token::Stream(..) | Token::Tap(..) => {}
        }
    }

    fn due(&mut self, timer: Timer) {
        match timer {
            Timer::Drain(serial) => self.drain(serial, true),
            Timer::Writers => self.look_after_writers(),
            Timer::Reopen(serial) => self.reopened(serial),
            // In log writers only.
            Timer::Rest(..) | Timer::Taps(_) | Timer::Close(_) => {}
            Timer::Alarm(number) => self.alarm_rang(number),
            Timer::Exit(serial, tries) => self.ended_elsewhere(serial, tries),
            Timer::Left(serial, tries) => self.look_after_left(serial, tries),
            Timer::Remove(serial) => self.removal_due(serial),
            Timer::Thaw(serial) => self.thaw_due(serial),
            Timer::SetUp(serial) => self.set_up_due(serial),
            Timer::Execute(serial) => self.execute_due(serial),
            Timer::Answer(serial) => self.answer_due(serial),
            Timer::Command(serial) => self.command_due(serial),
            Timer::Maker(serial) => self.maker_due(serial),
            Timer::Watch(serial) => self.look_at_unwatched(serial),
            // Looked at after every round of events.
            Timer::Upgrade | Timer::Terminals => {}
            Timer::Signals => self.signalled(),
        }
    }

    /// Reads signals; what they report is reaped after the events of this turn.
    fn signalled(&mut self) {
        for _ in 0..SIGNALS_MAX {
            match self.signals.read() {
                Ok(Some(libc::SIGCHLD)) => self.reaping = true,
                Ok(Some(signal)) => self.asked_to_end(signal),
                Ok(None) => return,
                Err(error) => {
                    eprintln!("pinmon: read signals: {error}");
                    // The next end is not reported while the signal of this one waits to be read.
                    return self.timers.within(SIGNALS_RETRY, Timer::Signals);
                }
            }
        }
    }

    /// A signal ends an idle monitor; one that holds containers stays: their output and exit codes depend on it.
    fn asked_to_end(&mut self, signal: i32) {
        if self.holds_nothing() {
            self.over = true;
        } else {
            eprintln!("pinmon: signal {signal} ignored: containers are held; ask by Shutdown once they are deleted");
        }
    }

    /// Whether nothing would be lost.
    pub(crate) fn holds_nothing(&self) -> bool {
        self.containers.is_empty() && self.commands.is_empty() && self.kept.is_empty() && self.removals.is_empty()
    }
}
