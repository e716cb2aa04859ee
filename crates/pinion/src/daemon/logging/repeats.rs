//! Too much of the same: one bad object must not flood the log, nor hide what else happens.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
    time::{Duration, Instant},
};

/// How often one line, word by word, is written in [`WINDOW`].
const SAME: u32 = 10;
/// How often one place in the code may write in [`WINDOW`], whatever it says.
const PLACE: u32 = 600;
const WINDOW: Duration = Duration::from_secs(60);
/// As many different lines are remembered; of more all are forgotten.
const REMEMBERED: usize = 1024;

/// What was written lately.
#[derive(Debug, Default)]
pub(super) struct Repeats {
    /// As many as the program has places that write.
    places: HashMap<u64, Seen>,
    lines: HashMap<u64, Seen>,
}

#[derive(Debug)]
struct Seen {
    since: Instant,
    written: u32,
    left_out: u64,
}

impl Repeats {
    /// Whether a line may be written, and how many like it were left out since one was. `place` is where in the code it
    /// comes from, `said` what it says without what differs every time.
    pub(super) fn admit(&mut self, now: Instant, place: impl Hash, said: impl Hash) -> Option<u64> {
        let place = hash(&place);
        let of_place = Seen::of(&mut self.places, place, now);
        if of_place.written >= PLACE {
            of_place.left_out += 1;
            return None;
        }
        if self.lines.len() >= REMEMBERED {
            self.lines.retain(|_, seen| now.duration_since(seen.since) < WINDOW);
        }
        if self.lines.len() >= REMEMBERED {
            self.lines.clear();
        }
        let line = Seen::of(&mut self.lines, hash(&(place, said)), now);
        if line.written >= SAME {
            line.left_out += 1;
            return None;
        }
        let left_out = line.admit() + of_place.admit();
        Some(left_out)
    }
}

impl Seen {
    fn of(all: &mut HashMap<u64, Self>, key: u64, now: Instant) -> &mut Self {
        let seen = all.entry(key).or_insert(Self { since: now, written: 0, left_out: 0 });
        if now.duration_since(seen.since) >= WINDOW {
            seen.since = now;
            seen.written = 0;
        }
        seen
    }

    /// One more; gives how many were left out before it.
    fn admit(&mut self) -> u64 {
        self.written += 1;
        std::mem::take(&mut self.left_out)
    }
}

fn hash(what: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_line_is_written_so_often_and_then_counted() {
        let (mut repeats, now) = (Repeats::default(), Instant::now());
        let admitted = (0..1000).filter(|_| repeats.admit(now, 1, "bad object").is_some()).count();
        assert_eq!(admitted, SAME as usize);
        assert_eq!(repeats.admit(now, 1, "another object"), Some(0), "others are not hidden by it");
        assert_eq!(repeats.admit(now + WINDOW, 1, "bad object"), Some(990));
        assert_eq!(repeats.admit(now + WINDOW, 1, "bad object"), Some(0));
    }

    #[test]
    fn a_place_that_never_says_the_same_is_bounded_too() {
        let (mut repeats, now) = (Repeats::default(), Instant::now());
        let admitted = (0..100_000).filter(|n| repeats.admit(now, 1, n).is_some()).count();
        assert_eq!(admitted, PLACE as usize);
        assert!(repeats.lines.len() <= REMEMBERED, "what is remembered is bounded");
        assert_eq!(repeats.admit(now + WINDOW, 1, "later"), Some(100_000 - u64::from(PLACE)));
        assert_eq!(repeats.admit(now, 2, "elsewhere"), Some(0));
    }
}
