//! Retries of calls that the kernel fails temporarily, for lack of memory or descriptors, in places where giving up
//! would lose an object.

use std::{io, thread, time::Duration};

const TRIES: usize = 5;
const PAUSE: Duration = Duration::from_millis(10);

/// Retries `attempt` for about 40 ms. `NotFound` is returned at once: it is an answer and not a temporary failure.
/// Blocks.
///
/// # Errors
/// The error of the last attempt.
pub(crate) fn retry<T>(mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    for _ in 1..TRIES {
        match attempt() {
            Err(error) if error.kind() != io::ErrorKind::NotFound => thread::sleep(PAUSE),
            outcome => return outcome,
        }
    }
    attempt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_temporary_failure_is_retried() {
        let mut calls = 0;
        let outcome = retry(|| {
            calls += 1;
            if calls < 3 { Err(io::ErrorKind::OutOfMemory.into()) } else { Ok(calls) }
        });
        assert_eq!(outcome.expect("the third attempt succeeds"), 3);
    }

    #[test]
    fn not_found_is_returned_at_once_and_a_permanent_failure_after_all_attempts() {
        let mut calls = 0;
        let absent: io::Result<()> = retry(|| {
            calls += 1;
            Err(io::ErrorKind::NotFound.into())
        });
        assert_eq!((absent.expect_err("not found").kind(), calls), (io::ErrorKind::NotFound, 1));
        let failed: io::Result<()> = retry(|| Err(io::ErrorKind::OutOfMemory.into()));
        assert_eq!(failed.expect_err("it always fails").kind(), io::ErrorKind::OutOfMemory);
    }
}
