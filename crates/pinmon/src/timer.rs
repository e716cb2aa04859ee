//! Deadlines.

use std::{collections::BTreeSet, time::Duration};

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
    /// Masters of terminals are to be closed for which no process could be made.
    Terminals,
    /// A `ReopenLog` had its time (container).
    Reopen(u64),
}

/// All deadlines, soonest first.
#[derive(Debug, Default)]
pub(crate) struct Timers(BTreeSet<(Duration, Timer)>);

impl Timers {
    /// Due after so long.
    pub(crate) fn after(&mut self, delay: Duration, timer: Timer) {
        self.0.insert((clock::monotonic() + delay, timer));
    }

    /// Due at this moment of [`clock::monotonic`].
    pub(crate) fn at(&mut self, moment: Duration, timer: Timer) {
        self.0.insert((moment, timer));
    }

    /// No longer due.
    pub(crate) fn cancel(&mut self, moment: Duration, timer: Timer) {
        self.0.remove(&(moment, timer));
    }

    /// All that another program of this process must know, soonest first.
    pub(crate) fn all(&self) -> impl Iterator<Item = (Duration, Timer)> {
        // Nothing is on its way to execve then, nobody waits for a removal, and what commands left is looked for again.
        let lasts = |timer| matches!(timer, Timer::Rest(..) | Timer::Drain(_) | Timer::Taps(_) | Timer::Exit(..));
        self.0.iter().copied().filter(move |(_, timer)| lasts(*timer))
    }

    /// How long until the next is due.
    pub(crate) fn next(&self) -> Option<Duration> {
        self.0.first().map(|(at, _)| at.saturating_sub(clock::monotonic()))
    }

    /// Takes one that is due.
    pub(crate) fn due(&mut self) -> Option<Timer> {
        let (at, _) = self.0.first()?;
        if *at > clock::monotonic() {
            return None;
        }
        self.0.pop_first().map(|(_, timer)| timer)
    }
}
