//! Suppresses repeated log lines: one faulty object must neither flood the log nor hide other events.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
    time::{Duration, Instant},
};

/// How often an identical line is written within [`WINDOW`].
const LINE_MAX: u32 = 10;
/// How many lines one callsite may write within [`WINDOW`].
const CALLSITE_MAX: u32 = 600;
const WINDOW: Duration = Duration::from_secs(60);
/// Number of different lines that are remembered. When there are more, all are forgotten.
const REMEMBERED: usize = 1024;

/// The lines that were written within the window.
#[derive(Debug, Default)]
pub(super) struct Repeats {
    /// Bounded by the number of callsites in the program.
    callsites: HashMap<u64, Counts>,
    lines: HashMap<u64, Counts>,
}

#[derive(Debug)]
struct Counts {
    since: Instant,
    written: u32,
    left_out: u64,
}

impl Repeats {
    /// Returns `None` if a line must not be written, else the number of similar lines that were suppressed since the
    /// last one. `content` is the content of the line without the fields that differ every time.
    pub(super) fn admit(&mut self, now: Instant, callsite: impl Hash, content: impl Hash) -> Option<u64> {
        let callsite = hash(&callsite);
        let callsite_counts = Counts::entry(&mut self.callsites, callsite, now);
        if callsite_counts.written >= CALLSITE_MAX {
            callsite_counts.left_out += 1;
            return None;
        }
        if self.lines.len() >= REMEMBERED {
            self.lines.retain(|_, counts| now.duration_since(counts.since) < WINDOW);
        }
        if self.lines.len() >= REMEMBERED {
            self.lines.clear();
        }
        let line_counts = Counts::entry(&mut self.lines, hash(&(callsite, content)), now);
        if line_counts.written >= LINE_MAX {
            line_counts.left_out += 1;
            return None;
        }
        let left_out = line_counts.admit() + callsite_counts.admit();
        Some(left_out)
    }
}

impl Counts {
    fn entry(all: &mut HashMap<u64, Self>, key: u64, now: Instant) -> &mut Self {
        let counts = all.entry(key).or_insert(Self { since: now, written: 0, left_out: 0 });
        if now.duration_since(counts.since) >= WINDOW {
            counts.since = now;
            counts.written = 0;
        }
        counts
    }

    /// Counts a line as written, and returns the number of lines suppressed before it.
    fn admit(&mut self) -> u64 {
        self.written += 1;
        std::mem::take(&mut self.left_out)
    }
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identical_line_is_written_a_few_times_and_then_counted() {
        let (mut repeats, now) = (Repeats::default(), Instant::now());
        let admitted = (0..1000).filter(|_| repeats.admit(now, 1, "bad object").is_some()).count();
        assert_eq!(admitted, LINE_MAX as usize);
        assert_eq!(repeats.admit(now, 1, "another object"), Some(0), "other lines are not suppressed");
        assert_eq!(repeats.admit(now + WINDOW, 1, "bad object"), Some(990));
        assert_eq!(repeats.admit(now + WINDOW, 1, "bad object"), Some(0));
    }

    #[test]
    fn a_callsite_with_ever_different_lines_is_bounded_too() {
        let (mut repeats, now) = (Repeats::default(), Instant::now());
        let admitted = (0..100_000).filter(|n| repeats.admit(now, 1, n).is_some()).count();
        assert_eq!(admitted, CALLSITE_MAX as usize);
        assert!(repeats.lines.len() <= REMEMBERED, "the number of remembered lines is bounded");
        assert_eq!(repeats.admit(now + WINDOW, 1, "later"), Some(100_000 - u64::from(CALLSITE_MAX)));
        assert_eq!(repeats.admit(now, 2, "elsewhere"), Some(0));
    }
}
