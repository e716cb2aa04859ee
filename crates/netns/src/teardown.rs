//! Detects that the kernel is destroying many namespaces.
//!
//! The kernel destroys namespaces in the background, in batches; a thread that creates a namespace at that time is
//! blocked once for 75 to 87 ms. So the pool is not refilled while many namespaces are being destroyed.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// This many namespaces within [`WINDOW`] count as a mass teardown.
const MASS: usize = 8;
const WINDOW: Duration = Duration::from_millis(100);

static LAST: Mutex<VecDeque<Instant>> = Mutex::new(VecDeque::new());

/// Records that a pin was removed, and most likely its namespace with it.
pub(crate) fn note(now: Instant) {
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    if last.len() == MASS {
        last.pop_front();
    }
    last.push_back(now);
}

/// Returns the time until the current mass teardown is presumed to be over; zero if there is none.
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
    fn only_many_removals_are_a_mass_teardown() {
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
