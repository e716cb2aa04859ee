use std::{error::Error, io::Write};

use tonic::Status;

/// Exit code of Docker's command line where the failure is the engine's and not the container's.
pub(crate) const CANNOT: u8 = 125;
/// The command is there but cannot be run.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// The command is not there.
pub(crate) const NOT_FOUND: u8 = 127;
/// Begins the part of a message that names a program which could not be executed.
const EXECUTE: &str = "exec \"";

/// Why a command ends without success: one sentence for people, one code for scripts.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    message: String,
}

impl Failure {
    /// An ordinary failure.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { code: 1, message: message.into() }
    }

    /// The daemon could not start or go on.
    pub(crate) fn daemon(message: impl Into<String>) -> Self {
        Self::new(message)
    }

    /// The arguments make no sense together (clap tells of those that make no sense alone).
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self { code: 2, message: message.into() }
    }

    /// Nobody reads any more: no message, and no success either would be heard.
    pub(crate) fn quiet(code: u8) -> Self {
        Self { code, message: String::new() }
    }

    /// Whether the reader of the output left.
    pub(crate) fn is_quiet(&self) -> bool {
        self.message.is_empty()
    }

    /// The same failure with another code.
    pub(crate) fn with_code(self, code: u8) -> Self {
        Self { code, ..self }
    }

    /// The code that shells and Docker give to a program that could not be executed. Every other failure is the
    /// engine's, also one that mentions a missing file (a log, a volume).
    pub(crate) fn of_command(self) -> Self {
        let code = match self.message.split_once(EXECUTE) {
            None => CANNOT,
            Some((_, why)) if why.contains("file not found") || why.contains("no such file") => NOT_FOUND,
            Some(_) => NOT_EXECUTABLE,
        };
        self.with_code(code)
    }

    /// The code of a command that returns its program's exit code: one of the engine's never looks like the program's.
    pub(crate) fn beside_program(self) -> Self {
        match self.code {
            // Nobody reads anymore, which is not a failure.
            0 | NOT_EXECUTABLE | NOT_FOUND => self,
            _ => self.with_code(CANNOT),
        }
    }

    /// Writes the message to standard error.
    pub(crate) fn print(&self) {
        if !self.message.is_empty() {
            // Nothing is left to tell it to.
            let _ = std::io::stderr().write_all(self.line().as_bytes());
        }
    }

    /// The message as it is printed, with its newline; empty for one that has none.
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
        // A status that the daemon sent has no source here: this one was made of a connection that broke.
        match status.source() {
            Some(_) => Self::new("the daemon ended, or its connection broke; see: pinion info").with_code(CANNOT),
            None => Self::new(status.message()),
        }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            // `pinion ps | head -1` is no failure of anybody.
            std::io::ErrorKind::BrokenPipe => Self::quiet(0),
            _ => Self::new(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_program_that_cannot_be_executed_has_the_codes_of_shells() {
        let code = |message: &str| Failure::new(message).of_command().code;
        assert_eq!(code("start container a: exec \"nope\": executable file not found in $PATH (/bin)"), NOT_FOUND);
        assert_eq!(code("exec in container a: exec \"/x\": no such file or directory"), NOT_FOUND);
        assert_eq!(code("exec \"/etc\": permission denied: it is a directory"), NOT_EXECUTABLE);
        assert_eq!(code("exec \"/x\": exec format error: no program for this machine"), NOT_EXECUTABLE);
        assert_eq!(code("create container a: open log /logs/a: Permission denied"), CANNOT);
        assert_eq!(code("create container a: volume /data: no such file or directory"), CANNOT);
    }

    #[test]
    fn failures_of_the_engine_do_not_look_like_the_program_s() {
        let codes = [Failure::new("x"), Failure::usage("x"), Failure::new("x").with_code(NOT_FOUND), Failure::quiet(0)];
        assert_eq!(codes.map(|failure| failure.beside_program().code), [CANNOT, CANNOT, NOT_FOUND, 0]);
    }

    #[test]
    fn a_broken_connection_is_the_engine_s_failure() {
        let broken = Status::from_error(Box::new(std::io::Error::from(std::io::ErrorKind::ConnectionRefused)));
        assert_eq!(Failure::from(broken).code, CANNOT);
        assert_eq!(
            Failure::from(Status::unavailable("registry: transport error")).to_string(),
            "registry: transport error"
        );
    }
}
