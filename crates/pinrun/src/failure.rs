use std::process::ExitCode;

use crate::arguments::Global;

/// What is told to the caller, once.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Failure {
    pub(crate) message: String,
    /// The program's exit code: 1, but for commands whose process could not be started.
    pub(crate) code: u8,
}

impl Failure {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), code: 1 }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(message)
    }

    /// Writes it to standard error and to the log.
    pub(crate) fn report(&self, _global: &Global) -> ExitCode {
        eprintln!("{}", self.message);
        ExitCode::from(self.code)
    }
}

impl From<lexopt::Error> for Failure {
    fn from(error: lexopt::Error) -> Self {
        Self::usage(error.to_string())
    }
}

impl From<container::Error> for Failure {
    fn from(error: container::Error) -> Self {
        Self::new(error.message)
    }
}

impl From<cgroup::Error> for Failure {
    fn from(error: cgroup::Error) -> Self {
        Self::new(error.to_string())
    }
}
