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
    /// Killed processes of a container to be deleted may be gone.
    Remove(u64),
    /// An upgrade had its time.
    Upgrade,
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

    /// All that another program of this process must know, soonest first.
    pub(crate) fn all(&self) -> impl Iterator<Item = (Duration, Timer)> {
        self.0.iter().copied().filter(|(_, timer)| !matches!(timer, Timer::Upgrade | Timer::Left(..)))
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
