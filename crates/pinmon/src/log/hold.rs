//! Which container's pipe a log writer is inside of, and since when, for the monitor to see: `pipe.rs` says why it may
//! stay there.

use std::{cell::Cell, io, time::Duration};

use syscall::shared_word::SharedWord;

use crate::clock;

/// A call that takes so long waited for the pipe's lock, or for a processor. Others take microseconds.
const LONG: Duration = Duration::from_millis(2);

/// Shared by a log writer and the monitor.
#[derive(Debug)]
pub(crate) struct Held {
    /// Serial of the container; 0: it is in nobody's pipe.
    serial: SharedWord,
    /// Nanoseconds of [`clock::monotonic`].
    since: SharedWord,
    /// What long calls took that nobody accounted for yet.
    long: Cell<Duration>,
}

impl Held {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { serial: SharedWord::new()?, since: SharedWord::new()?, long: Cell::default() })
    }

    /// Whose pipe the writer is in, and for how long it has been; `None`: nobody's.
    pub(crate) fn by(&self) -> Option<(u64, Duration)> {
        let (serial, since) = (self.serial.load(), Duration::from_nanos(self.since.load()));
        (serial != 0).then(|| (serial, clock::monotonic().saturating_sub(since)))
    }

    /// What long calls took since the last time it was asked.
    pub(crate) fn take_long(&self) -> Duration {
        self.long.take()
    }
}

/// Calls on the pipes of one container.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hold<'a> {
    held: &'a Held,
    serial: u64,
}

impl<'a> Hold<'a> {
    /// Of the container of this serial number.
    pub(crate) fn of(held: &'a Held, serial: u64) -> Self {
        Self { held, serial }
    }

    /// Makes a call that may not return for as long as the container likes.
    pub(crate) fn within<T>(self, call: impl FnOnce() -> T) -> T {
        let begin = clock::monotonic();
        self.held.since.store(u64::try_from(begin.as_nanos()).unwrap_or(u64::MAX));
        self.held.serial.store(self.serial);
        let result = call();
        self.held.serial.store(0);
        let took = clock::monotonic().saturating_sub(begin);
        if took >= LONG {
            self.held.long.set(self.held.long.get() + took);
        }
        result
    }
}

/// How much a container held up its writer lately: a bucket that drains.
#[derive(Debug, Default)]
pub(crate) struct Debt {
    level: Duration,
    at: Duration,
}

impl Debt {
    /// More than this is too much; a twentieth of the time is forgiven.
    const MAX: Duration = Duration::from_millis(100);
    const FORGIVEN: u32 = 20;

    /// Adds what long calls took until `now`; whether that is too much.
    pub(crate) fn add(&mut self, long: Duration, now: Duration) -> bool {
        let forgiven = now.saturating_sub(self.at) / Self::FORGIVEN;
        (self.level, self.at) = (self.level.saturating_sub(forgiven) + long, now);
        self.level > Self::MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_short_holds_are_too_much_and_few_are_not() {
        let ms = Duration::from_millis;
        let mut debt = Debt::default();
        assert!(!(1..=100).any(|n| debt.add(ms(20), ms(1000 * n))), "2 % of the time");
        let mut debt = Debt::default();
        assert!((1..=100).any(|n| debt.add(ms(20), ms(100 * n))), "20 % of the time");
    }

    #[test]
    fn a_call_is_seen_while_it_lasts_and_counted_when_it_was_long() {
        let held = Held::new().expect("shared words");
        let seen = Hold::of(&held, 7).within(|| held.by().map(|(serial, _)| serial));
        assert_eq!((seen, held.by().is_none()), (Some(7), true));
        held.take_long();
        Hold::of(&held, 7).within(|| std::thread::sleep(LONG));
        assert!(held.take_long() >= LONG);
    }
}
