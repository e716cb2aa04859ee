//! What the kernel refuses for a moment, for want of memory or descriptors, and what must not be given up because of
//! that.

use std::{io, thread, time::Duration};

const TRIES: usize = 5;
const PAUSE: Duration = Duration::from_millis(10);

/// Tries again for some 40 ms. That something is not there is an answer, and no failure. Blocks.
///
/// # Errors
/// That of the last attempt.
pub(crate) fn repeat<T>(mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
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
    fn a_failure_of_a_moment_is_none() {
        let mut calls = 0;
        let outcome = repeat(|| {
            calls += 1;
            if calls < 3 { Err(io::ErrorKind::OutOfMemory.into()) } else { Ok(calls) }
        });
        assert_eq!(outcome.expect("the third"), 3);
    }

    #[test]
    fn an_absence_is_known_at_once_and_a_lasting_failure_told() {
        let mut calls = 0;
        let absent: io::Result<()> = repeat(|| {
            calls += 1;
            Err(io::ErrorKind::NotFound.into())
        });
        assert_eq!((absent.expect_err("absent").kind(), calls), (io::ErrorKind::NotFound, 1));
        let failed: io::Result<()> = repeat(|| Err(io::ErrorKind::OutOfMemory.into()));
        assert_eq!(failed.expect_err("lasting").kind(), io::ErrorKind::OutOfMemory);
    }
}
