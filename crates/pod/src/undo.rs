//! Taking back what was made: named steps, every one of them is run, every failure is told.

use std::{any::Any, fmt::Display, future::Future};

use crate::{Error, ErrorKind};

/// Failures of the steps so far. Each step is idempotent, so that all can be run again.
#[derive(Debug, Default)]
pub(crate) struct Undo {
    failures: Vec<(ErrorKind, String)>,
}

impl Undo {
    /// Runs one step, whatever became of those before.
    pub(crate) async fn step<E: Display + 'static>(&mut self, name: &str, step: impl Future<Output = Result<(), E>>) {
        if let Err(error) = step.await {
            let kind = (&error as &dyn Any).downcast_ref::<Error>().map_or(ErrorKind::Internal, |error| error.kind);
            self.failures.push((kind, format!("{name}: {error}")));
        }
    }

    /// Whether all went well. A failure is of the kind that all steps agree on: one that is to be tried again stays
    /// one.
    pub(crate) fn finish(self) -> Result<(), Error> {
        let Some((first, _)) = self.failures.first() else { return Ok(()) };
        let same = self.failures.iter().all(|(kind, _)| kind == first);
        let kind = if same { *first } else { ErrorKind::Internal };
        let told: Vec<String> = self.failures.into_iter().map(|(_, failure)| failure).collect();
        Err(Error::new(kind, told.join("; ")))
    }
}

/// The first failure is the one to tell; what went wrong while it was taken back is added.
pub(crate) fn with_undo(error: Error, undone: Result<(), Error>) -> Error {
    match undone {
        Ok(()) => error,
        Err(more) => {
            Error { kind: error.kind, message: format!("{}; and taking it back: {}", error.message, more.message) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_step_is_run_and_every_failure_told() {
        let mut undo = Undo::default();
        let mut ran = 0;
        undo.step("one", async { Err("no") }).await;
        undo.step("two", async {
            ran += 1;
            Ok::<(), Error>(())
        })
        .await;
        undo.step("three", async { Err("neither") }).await;
        let told = with_undo(Error::invalid("first"), undo.finish());
        assert_eq!(ran, 1);
        assert_eq!(told.message, "first; and taking it back: one: no; three: neither");
    }

    #[tokio::test]
    async fn what_is_to_be_tried_again_is_told_so() {
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
