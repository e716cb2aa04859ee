//! Timers.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use super::token::Token;
use crate::clock;

/// A timer. Its arguments are in parentheses. The names of variants are saved by an upgrade.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Timer {
    /// The rest of a partial line may have arrived (container, stream word).
    Rest(u64, u32),
    /// An exited container keeps its output open (container).
    Drain(u64),
    /// An attached client does not read (container).
    Taps(u64),
    /// An exited process was not reaped yet (container, attempts).
    Exit(u64, u32),
    /// Leftover processes of an exec may have exited (exec, attempts).
    Left(u64, u32),
    /// Killed processes of a cgroup to be removed may have exited (removal; saved by programs before 1.4: container).
    Remove(u64),
    /// Killed processes may be frozen (container or exec).
    Thaw(u64),
    /// Deadline of the setup of a container (container).
    SetUp(u64),
    /// Deadline from the start of a container to execve (container).
    Execute(u64),
    /// Deadline of reaping a killed child of a failed setup (container).
    Answer(u64),
    /// Deadline of an exec to execve, or of reaping it after it was killed (exec).
    Command(u64),
    /// Deadline of creating the namespaces of a pod (maker).
    Maker(u64),
    /// Time limit of a command of an OCI runtime (command).
    Runtime(u64),
    /// No event reports changes of this object, because epoll refused to watch it.
    Watch(Token),
    /// Deadline of an upgrade.
    Upgrade,
    /// Log writers must be started or are idle.
    Writers,
    /// Terminals and pipes must be closed, and no process could be cloned for it.
    Terminals,
    /// A log writer may be blocked in a pipe of a container (writer).
    Alarm(u64),
    /// In log writers: the monitor has closed its copies of the output of a container (container).
    Close(u64),
    /// Time limit of a `ReopenLog` (container).
    Reopen(u64),
    /// Reading signals failed. Not saved, because a new program reads them anyway.
    Signals,
}

/// All timers, soonest first.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    entries: BTreeSet<(Duration, Timer)>,
    /// Moments of the timers that are set at most once.
    once: BTreeMap<Timer, Duration>,
}

impl Timers {
    /// Sets a timer that expires after this time.
    pub(crate) fn after(&mut self, delay: Duration, timer: Timer) {
        self.entries.insert((clock::monotonic() + delay, timer));
    }

    /// Sets a timer that expires after this time at the latest, and at most once however often it is set. Only for
    /// timers that are not set by the other methods.
    pub(crate) fn within(&mut self, delay: Duration, timer: Timer) {
        let at = clock::monotonic() + delay;
        match self.once.get(&timer).copied() {
            Some(before) if before <= at => return,
            Some(before) => self.cancel(before, timer),
            None => {}
        }
        self.once.insert(timer, at);
        self.at(at, timer);
    }

    /// Sets a timer that expires at this moment of [`clock::monotonic`].
    pub(crate) fn at(&mut self, moment: Duration, timer: Timer) {
        self.entries.insert((moment, timer));
    }

    /// Cancels a timer.
    pub(crate) fn cancel(&mut self, moment: Duration, timer: Timer) {
        self.entries.remove(&(moment, timer));
    }

    /// Timers that an upgrade saves, soonest first.
    pub(crate) fn all(&self) -> impl Iterator<Item = (Duration, Timer)> {
        // During an upgrade no setup is pending and no request waits for a removal, and leftovers are swept again
        // afterwards.
        let is_saved = |timer| matches!(timer, Timer::Rest(..) | Timer::Drain(_) | Timer::Taps(_) | Timer::Exit(..));
        self.entries.iter().copied().filter(move |(_, timer)| is_saved(*timer))
    }

    /// Returns the time until the next timer expires.
    pub(crate) fn next(&self) -> Option<Duration> {
        self.entries.first().map(|(at, _)| at.saturating_sub(clock::monotonic()))
    }

    /// Removes an expired timer and returns it.
    pub(crate) fn due(&mut self) -> Option<Timer> {
        let (at, _) = self.entries.first()?;
        if *at > clock::monotonic() {
            return None;
        }
        self.entries.pop_first().map(|(_, timer)| {
            self.once.remove(&timer);
            timer
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_set_within_a_time_exists_once_and_expires_at_the_earliest() {
        let mut timers = Timers::default();
        timers.within(Duration::from_secs(30), Timer::Writers);
        timers.within(Duration::from_secs(60), Timer::Writers);
        timers.within(Duration::ZERO, Timer::Writers);
        timers.within(Duration::from_secs(1), Timer::Writers);
        assert_eq!((timers.due(), timers.due(), timers.next()), (Some(Timer::Writers), None, None));
        timers.within(Duration::ZERO, Timer::Writers);
        assert_eq!(timers.due(), Some(Timer::Writers));
    }
}
