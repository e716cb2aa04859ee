use std::{error::Error, io::Write};

use cri_proto::CommandError;
use tonic::Status;

/// Exit code for a failure of the engine rather than of the container, as in Docker's command line.
pub(crate) const ENGINE_FAILED: u8 = 125;
/// Exit code for a program that exists but cannot be executed.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// Exit code for a program that does not exist.
pub(crate) const NOT_FOUND: u8 = 127;

/// The failure of a CLI command: a message for users and an exit code for scripts.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    message: String,
    /// Why the program of a container or exec cannot be executed, if the daemon reported that.
    command: Option<CommandError>,
}

impl Failure {
    /// Returns an ordinary failure, with exit code 1.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { code: 1, message: message.into(), command: None }
    }

    /// Returns the failure of a daemon that could not start or had to stop.
    pub(crate) fn daemon(message: impl Into<String>) -> Self {
        Self::new(message)
    }

    /// Returns a failure for arguments that are invalid in combination, with exit code 2. clap reports arguments that
    /// are invalid individually.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(message).with_code(2)
    }

    /// Returns a failure without a message, because the reader of the output is gone or was already informed.
    pub(crate) fn quiet(code: u8) -> Self {
        Self::new("").with_code(code)
    }

    /// Whether the failure has no message because the reader of the output is gone.
    pub(crate) fn is_quiet(&self) -> bool {
        self.message.is_empty()
    }

    /// Replaces the exit code.
    pub(crate) fn with_code(self, code: u8) -> Self {
        Self { code, ..self }
    }

    /// Sets the exit code that shells and Docker use for a program that could not be executed. Every other failure gets
    /// the engine's code, including one that mentions a missing file such as a log or a volume.
    pub(crate) fn with_exec_code(self) -> Self {
        let code = match self.command {
            None => ENGINE_FAILED,
            Some(CommandError::NotFound) => NOT_FOUND,
            Some(CommandError::NotExecutable) => NOT_EXECUTABLE,
        };
        self.with_code(code)
    }

    /// Sets the exit code for a CLI command that otherwise returns the exit code of the container's program, so that a
    /// failure of the engine is not mistaken for a result of the program.
    pub(crate) fn with_engine_code(self) -> Self {
        match self.code {
            // Code 0: the reader of the output is gone, which is not a failure.
            0 | NOT_EXECUTABLE | NOT_FOUND => self,
            _ => self.with_code(ENGINE_FAILED),
        }
    }

    /// Writes the message to standard error.
    pub(crate) fn print(&self) {
        if !self.message.is_empty() {
            // If standard error cannot be written, there is nowhere else to report the failure.
            let _ = std::io::stderr().write_all(self.line().as_bytes());
        }
    }

    /// Returns the message as it is printed, with a newline, or an empty string if there is no message.
    pub(crate) fn line(&self) -> String {
        if self.message.is_empty() { String::new() } else { format!("pinion: {}\n", self.message) }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        // A status sent by the daemon has no source; one with a source was created here from a broken connection.
        match status.source() {
            Some(_) => {
                Self::new("the daemon exited, or the connection to it broke; see: pinion info").with_code(ENGINE_FAILED)
            }
            None => Self { command: CommandError::of(&status), ..Self::new(status.message()) },
        }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            // `pinion ps | head -1` is not a failure.
            std::io::ErrorKind::BrokenPipe => Self::quiet(0),
            _ => Self::new(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;

    #[test]
    fn only_a_program_that_cannot_be_executed_gets_the_exit_codes_of_shells() {
        let code = |status: Status| Failure::from(status).with_exec_code().code;
        let command = |error: CommandError| error.status(Code::InvalidArgument, "start container a: a text");
        assert_eq!(code(command(CommandError::NotFound)), NOT_FOUND);
        assert_eq!(code(command(CommandError::NotExecutable)), NOT_EXECUTABLE);
        assert_eq!(code(Status::internal("create container a: open log /logs/a: Permission denied")), ENGINE_FAILED);
        let text = "create container a: volume \"exec \": no such file or directory";
        assert_eq!(code(Status::invalid_argument(text)), ENGINE_FAILED, "no text decides");
    }

    #[test]
    fn failures_of_the_engine_are_not_mistaken_for_the_program_s() {
        let codes = [Failure::new("x"), Failure::usage("x"), Failure::new("x").with_code(NOT_FOUND), Failure::quiet(0)];
        assert_eq!(codes.map(|failure| failure.with_engine_code().code), [ENGINE_FAILED, ENGINE_FAILED, NOT_FOUND, 0]);
    }

    #[test]
    fn a_broken_connection_is_a_failure_of_the_engine() {
        let broken = Status::from_error(Box::new(std::io::Error::from(std::io::ErrorKind::ConnectionRefused)));
        assert_eq!(Failure::from(broken).code, ENGINE_FAILED);
        assert_eq!(
            Failure::from(Status::unavailable("registry: transport error")).to_string(),
            "registry: transport error"
        );
    }
}
