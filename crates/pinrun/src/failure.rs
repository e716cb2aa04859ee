use syscall::error_text::error_text;

/// What kind of failure ends the program; [`ExitCode`](crate::exit_code::ExitCode) is derived from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureKind {
    /// The help of a command, which is not a failure.
    Help,
    /// The command line is invalid.
    Usage,
    /// The container does not exist.
    NoContainer,
    /// An error of the container's setup or of its program.
    Container(container::ErrorKind),
    /// Any other failure.
    Other,
}

/// An error that ends the program; reported once, to standard error and to the log.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Failure {
    pub(crate) message: String,
    pub(crate) kind: FailureKind,
    /// Whether the command is `exec`.
    pub(crate) in_exec: bool,
}

impl Failure {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), kind: FailureKind::Other, in_exec: false }
    }

    /// An invalid command line.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self { kind: FailureKind::Usage, ..Self::new(message) }
    }

    /// The help of a command.
    pub(crate) fn help(options: String) -> Self {
        Self { kind: FailureKind::Help, ..Self::new(options) }
    }

    /// A container that does not exist. Engines match this text.
    pub(crate) fn absent(id: &str) -> Self {
        Self { kind: FailureKind::NoContainer, ..Self::new(format!("container does not exist: {id}")) }
    }

    /// A failed operation and its cause, without the error number that the standard library appends.
    pub(crate) fn io(operation: impl std::fmt::Display, cause: impl Into<std::io::Error>) -> Self {
        Self::new(format!("{operation}: {}", error_text(&cause.into())))
    }

    /// Prepends the operation that failed.
    pub(crate) fn within(self, operation: impl std::fmt::Display) -> Self {
        Self { message: format!("{operation}: {}", self.message), ..self }
    }

    /// Marks a failure of the command `exec`.
    pub(crate) fn in_exec(self) -> Self {
        Self { in_exec: true, ..self }
    }
}

impl From<container::Error> for Failure {
    fn from(error: container::Error) -> Self {
        Self { kind: FailureKind::Container(error.kind()), ..Self::new(error.message()) }
    }
}

impl From<cgroup::Error> for Failure {
    fn from(error: cgroup::Error) -> Self {
        Self::new(error.to_string())
    }
}
