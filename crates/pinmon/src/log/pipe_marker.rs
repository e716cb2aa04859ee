//! Marks which container's pipe a log writer is accessing, and since when. The monitor reads it; `closing/pipe.rs`
//! explains why such a call may not return.

use std::{cell::Cell, io, time::Duration};

use syscall::shared_word::SharedWord;

use crate::clock;

/// A call of this duration waited for the lock of the pipe, or for a CPU. Others take microseconds.
const LONG: Duration = Duration::from_millis(2);

/// Marker shared by a log writer and the monitor.
#[derive(Debug)]
pub(crate) struct PipeMarker {
    /// Serial number of the container; 0: no pipe is being accessed.
    serial: SharedWord,
    /// Nanoseconds of [`clock::monotonic`].
    since: SharedWord,
    /// Total duration of long calls that were not accounted yet.
    long: Cell<Duration>,
}

impl PipeMarker {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { serial: SharedWord::new()?, since: SharedWord::new()?, long: Cell::default() })
    }

    /// Returns whose pipe is being accessed, and for how long. `None`: no pipe is.
    pub(crate) fn current(&self) -> Option<(u64, Duration)> {
        let (serial, since) = (self.serial.load(), Duration::from_nanos(self.since.load()));
        (serial != 0).then(|| (serial, clock::monotonic().saturating_sub(since)))
    }

    /// Returns the total duration of long calls since the last call.
    pub(crate) fn take_long(&self) -> Duration {
        self.long.take()
    }
}

/// Calls on the pipes of one container.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PipeCalls<'a> {
    pipe_marker: &'a PipeMarker,
    serial: u64,
}

impl<'a> PipeCalls<'a> {
    /// Calls on the pipes of the container with this serial number.
    pub(crate) fn of(pipe_marker: &'a PipeMarker, serial: u64) -> Self {
        Self { pipe_marker, serial }
    }

    /// Makes a call that the container may block as long as it likes.
    pub(crate) fn during<T>(self, call: impl FnOnce() -> T) -> T {
        let begin = clock::monotonic();
        self.pipe_marker.since.store(u64::try_from(begin.as_nanos()).unwrap_or(u64::MAX));
        self.pipe_marker.serial.store(self.serial);
        let result = call();
        self.pipe_marker.serial.store(0);
        let took = clock::monotonic().saturating_sub(begin);
        if took >= LONG {
            self.pipe_marker.long.set(self.pipe_marker.long.get() + took);
        }
        result
    }
}

/// Leaky bucket of the time that a container blocked its log writer.
#[derive(Debug, Default)]
pub(crate) struct LeakyBucket {
    level: Duration,
    at: Duration,
}

impl LeakyBucket {
    /// Capacity, and the fraction of the time that leaks out: a twentieth.
    const CAPACITY: Duration = Duration::from_millis(100);
    const LEAK_DIVISOR: u32 = 20;

    /// Adds the duration of long calls until `now`. Returns whether the bucket overflows.
    pub(crate) fn add(&mut self, long: Duration, now: Duration) -> bool {
        let leaked = now.saturating_sub(self.at) / Self::LEAK_DIVISOR;
        (self.level, self.at) = (self.level.saturating_sub(leaked) + long, now);
        self.level > Self::CAPACITY
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_short_locks_overflow_the_bucket_and_few_do_not() {
        let ms = Duration::from_millis;
        let mut bucket = LeakyBucket::default();
        assert!(!(1..=100).any(|n| bucket.add(ms(20), ms(1000 * n))), "2 % of the time");
        let mut bucket = LeakyBucket::default();
        assert!((1..=100).any(|n| bucket.add(ms(20), ms(100 * n))), "20 % of the time");
    }

    #[test]
    fn a_call_is_visible_while_it_lasts_and_counted_if_it_was_long() {
        let pipe_marker = PipeMarker::new().expect("shared words");
        let seen = PipeCalls::of(&pipe_marker, 7).during(|| pipe_marker.current().map(|(serial, _)| serial));
        assert_eq!((seen, pipe_marker.current().is_none()), (Some(7), true));
        pipe_marker.take_long();
        PipeCalls::of(&pipe_marker, 7).during(|| std::thread::sleep(LONG));
        assert!(pipe_marker.take_long() >= LONG);
    }
}
