use syscall::error_text::error_text;

/// An error that ends the program; reported once, to standard error and to the log.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Failure {
    pub(crate) message: String,
    /// The program's exit code.
    pub(crate) code: u8,
    /// Whether this is the help of a command, which is not a failure.
    pub(crate) help: bool,
}

impl Failure {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), code: 1, help: false }
    }

    /// An invalid command line.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(message)
    }

    /// The help of a command.
    pub(crate) fn help(options: String) -> Self {
        Self { message: options, code: 0, help: true }
    }

    /// A container that does not exist. Engines match this text.
    pub(crate) fn absent(id: &str) -> Self {
        Self::new(format!("container does not exist: {id}"))
    }

    /// A failed operation and its cause, without the error number that the standard library appends.
    pub(crate) fn io(operation: impl std::fmt::Display, cause: impl Into<std::io::Error>) -> Self {
        Self::new(format!("{operation}: {}", error_text(&cause.into())))
    }

    /// Prepends the operation that failed.
    pub(crate) fn within(self, operation: impl std::fmt::Display) -> Self {
        Self { message: format!("{operation}: {}", self.message), ..self }
    }

    /// Sets the exit code.
    pub(crate) fn with_code(self, code: u8) -> Self {
        Self { code, ..self }
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
