//! Taking back what was made: named steps, every one of them is run, every failure is told.

use std::{fmt::Display, future::Future};

use crate::Error;

/// Failures of the steps so far. Each step is idempotent, so that all can be run again.
#[derive(Debug, Default)]
pub(crate) struct Undo {
    failures: Vec<String>,
}

impl Undo {
    /// Runs one step, whatever became of those before.
    pub(crate) async fn step<E: Display>(&mut self, name: &str, step: impl Future<Output = Result<(), E>>) {
        if let Err(error) = step.await {
            self.failures.push(format!("{name}: {error}"));
        }
    }

    /// Whether all went well.
    pub(crate) fn finish(self) -> Result<(), Error> {
        if self.failures.is_empty() { Ok(()) } else { Err(Error::internal(self.failures.join("; "))) }
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
}
