//! Modules whose compilation failed. A container that is started again and again must not have its module compiled each
//! time: one that fails after two minutes would take a core forever.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use image::Digest;

use crate::Error;

/// Failures that are kept. The oldest is replaced.
const FAILURES_MAX: usize = 256;
/// How long a failure is kept: it may have been caused by the load of the node.
const KEPT: Duration = Duration::from_secs(600);

/// Failed compilations by one version of the program.
#[derive(Default)]
pub(super) struct Failures(Mutex<HashMap<Digest, (Instant, Error)>>);

impl Failures {
    /// Returns the error of an earlier compilation of the module.
    pub(super) fn find(&self, module: &Digest, now: Instant) -> Option<Error> {
        let failures = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, error) = failures.get(module)?;
        let rest = KEPT.checked_sub(now.saturating_duration_since(*since)).filter(|rest| !rest.is_zero())?;
        let mut error = error.clone();
        error.message = format!("{}; it is compiled again in {} s at the earliest", error.message, rest.as_secs() + 1);
        Some(error)
    }

    /// Keeps the error of a compilation.
    pub(super) fn keep(&self, module: Digest, error: Error, now: Instant) {
        let mut failures = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        failures.retain(|_, (since, _)| now.saturating_duration_since(*since) < KEPT);
        if failures.len() >= FAILURES_MAX
            && let Some(oldest) = failures.iter().min_by_key(|(_, (since, _))| *since).map(|(module, _)| module.clone())
        {
            failures.remove(&oldest);
        }
        failures.insert(module, (now, error));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_bounded_and_expire() {
        let (failures, start) = (Failures::default(), Instant::now());
        let module = |number: usize| Digest::of(&number.to_le_bytes());
        let at = |number: usize| start + Duration::from_millis(number as u64);
        for number in 0..=FAILURES_MAX {
            failures.keep(module(number), Error::invalid(format!("error {number}")), at(number));
        }
        let now = at(FAILURES_MAX);
        assert!(failures.find(&module(0), now).is_none(), "the oldest was replaced");
        let error = failures.find(&module(1), now).expect("kept");
        assert!(error.message.starts_with("error 1; it is compiled again in 600 s"), "{error}");
        assert!(failures.find(&module(1), at(1) + KEPT).is_none());
        failures.keep(module(0), Error::invalid("again"), now + KEPT);
        assert_eq!(failures.0.lock().expect("not poisoned").len(), 1, "expired ones are removed");
    }
}
