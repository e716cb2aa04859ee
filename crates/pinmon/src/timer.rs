//! Deadlines.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::clock;

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Timer {
    /// The rest of a line may have come (container, stream word).
    Rest(u64, u32),
    /// A container that ended keeps its output open.
    Drain(u64),
    /// An attached client took nothing.
    Taps(u64),
    /// A process that ended was not reaped yet (container, times asked).
    Exit(u64, u32),
    /// What a command left running may have ended (command, times asked).
    Left(u64, u32),
    /// Killed processes of a group to be removed may be gone (removal; of programs before 1.4: container).
    Remove(u64),
    /// What was killed may be frozen (container or command).
    Thaw(u64),
    /// A container should be set up (container).
    SetUp(u64),
    /// A started container should have come to execve (container).
    Execute(u64),
    /// A container that was killed on its way should have been reaped (container).
    Answer(u64),
    /// A command should have come to execve, or one that was killed on its way have been reaped (command).
    Command(u64),
    /// Namespaces of a pod should be made (maker).
    Maker(u64),
    /// No event reports what becomes of this (container, command, maker, hooks, log writer; 0: the connection).
    Watch(u64),
    /// An upgrade had its time.
    Upgrade,
    /// Log writers are missing, or not needed.
    Writers,
    /// Masters of terminals, and pipes, are to be closed for which no process could be made.
    Terminals,
    /// A log writer may be held up in a container's pipe (writer).
    Alarm(u64),
    /// The monitor has closed its copies of a container's output: in log writers (container).
    Close(u64),
    /// A `ReopenLog` had its time (container).
    Reopen(u64),
    /// Signals could not be read. The program that takes over reads them anyway.
    Signals,
}

/// All deadlines, soonest first.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    entries: BTreeSet<(Duration, Timer)>,
    /// Moments of those that are there once.
    once: BTreeMap<Timer, Duration>,
}

impl Timers {
    /// Due after so long.
    pub(crate) fn after(&mut self, delay: Duration, timer: Timer) {
        self.entries.insert((clock::monotonic() + delay, timer));
    }

    /// Due after so long at the latest, once however often it is asked for. Not for timers that are also set otherwise.
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

    /// Due at this moment of [`clock::monotonic`].
    pub(crate) fn at(&mut self, moment: Duration, timer: Timer) {
        self.entries.insert((moment, timer));
    }

    /// No longer due.
    pub(crate) fn cancel(&mut self, moment: Duration, timer: Timer) {
        self.entries.remove(&(moment, timer));
    }

    /// All that another program of this process must know, soonest first.
    pub(crate) fn all(&self) -> impl Iterator<Item = (Duration, Timer)> {
        // Nothing is on its way to execve then, nobody waits for a removal, and what commands left is looked for again.
        let lasts = |timer| matches!(timer, Timer::Rest(..) | Timer::Drain(_) | Timer::Taps(_) | Timer::Exit(..));
        self.entries.iter().copied().filter(move |(_, timer)| lasts(*timer))
    }

    /// How long until the next is due.
    pub(crate) fn next(&self) -> Option<Duration> {
        self.entries.first().map(|(at, _)| at.saturating_sub(clock::monotonic()))
    }

    /// Takes one that is due.
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
    fn what_is_set_within_a_time_is_there_once_and_soonest() {
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
