//! Rollback: named steps, all of which run even if some fail. Every failure is reported.

use std::{any::Any, fmt::Display, future::Future};

use crate::{Error, ErrorKind};

/// Failures of the steps so far. Each step is idempotent, so that all can be repeated.
#[derive(Debug, Default)]
pub(crate) struct Undo {
    failures: Vec<(ErrorKind, String)>,
}

impl Undo {
    /// Runs one step, even if earlier steps failed.
    pub(crate) async fn step<E: Display + 'static>(&mut self, name: &str, step: impl Future<Output = Result<(), E>>) {
        if let Err(error) = step.await {
            let kind = (&error as &dyn Any).downcast_ref::<Error>().map_or(ErrorKind::Internal, |error| error.kind);
            self.failures.push((kind, format!("{name}: {error}")));
        }
    }

    /// Returns the failures. The kind of the error is the one that all failures share, so that a temporary failure is
    /// reported as such, else `Internal`.
    pub(crate) fn finish(self) -> Result<(), Error> {
        let Some((first, _)) = self.failures.first() else { return Ok(()) };
        let same = self.failures.iter().all(|(kind, _)| kind == first);
        let kind = if same { *first } else { ErrorKind::Internal };
        let messages: Vec<String> = self.failures.into_iter().map(|(_, failure)| failure).collect();
        Err(Error::new(kind, messages.join("; ")))
    }
}

/// Adds the failures of the rollback to the error that caused it.
pub(crate) fn with_undo(error: Error, undone: Result<(), Error>) -> Error {
    match undone {
        Ok(()) => error,
        Err(more) => Error { message: format!("{}; rolling back: {}", error.message, more.message), ..error },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_step_runs_and_every_failure_is_reported() {
        let mut undo = Undo::default();
        let mut ran = 0;
        undo.step("one", async { Err("no") }).await;
        undo.step("two", async {
            ran += 1;
            Ok::<(), Error>(())
        })
        .await;
        undo.step("three", async { Err("neither") }).await;
        let error = with_undo(Error::invalid("first"), undo.finish());
        assert_eq!(ran, 1);
        assert_eq!(error.message, "first; rolling back: one: no; three: neither");
    }

    #[tokio::test]
    async fn a_temporary_failure_is_reported_as_such() {
        let mut undo = Undo::default();
        undo.step("one", async { Err(Error::unavailable("later")) }).await;
        undo.step("two", async { Err(Error::unavailable("later")) }).await;
        assert_eq!(undo.finish().expect_err("later").kind, ErrorKind::Unavailable);
        let mut undo = Undo::default();
        undo.step("one", async { Err(Error::unavailable("later")) }).await;
        undo.step("two", async { Err("broken") }).await;
        assert_eq!(undo.finish().expect_err("broken").kind, ErrorKind::Internal);
    }
}
