//! Is the kernel taking many namespaces down?
//!
//! It does so in the background, in batches, and a thread that creates a namespace meanwhile waits 75 to 87 ms once. So
//! the pool does not refill during a mass teardown.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// So many within [`WINDOW`] are a mass.
const MASS: usize = 8;
const WINDOW: Duration = Duration::from_millis(100);

static LAST: Mutex<VecDeque<Instant>> = Mutex::new(VecDeque::new());

/// Notes that a pin went, and most likely its namespace.
pub(crate) fn note(now: Instant) {
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    if last.len() == MASS {
        last.pop_front();
    }
    last.push_back(now);
}

/// How long it may still take until no mass teardown is under way; zero when none is.
pub(crate) fn remaining(now: Instant) -> Duration {
    let last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    match (last.len(), last.front()) {
        (MASS, Some(oldest)) => WINDOW.saturating_sub(now.saturating_duration_since(*oldest)),
        _ => Duration::ZERO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_are_no_mass_and_a_mass_passes() {
        let start = Instant::now();
        for _ in 1..MASS {
            note(start);
        }
        assert_eq!(remaining(start), Duration::ZERO);
        note(start);
        assert_eq!(remaining(start), WINDOW);
        assert_eq!(remaining(start + WINDOW), Duration::ZERO);
    }
}
