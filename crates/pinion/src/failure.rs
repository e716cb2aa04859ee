use std::io::Write;

use tonic::{Code, Status};

/// What `docker run` and its kin exit with when the fault is not the container's.
pub(crate) const CANNOT: u8 = 125;
/// The command is there but cannot be run.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// The command is not there.
pub(crate) const NOT_FOUND: u8 = 127;

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

    /// The same failure with another code.
    pub(crate) fn with_code(self, code: u8) -> Self {
        Self { code, ..self }
    }

    /// The code that shells and Docker give to a command that could not be run.
    pub(crate) fn of_command(self) -> Self {
        let text = self.message.to_lowercase();
        let code = if text.contains("file not found") || text.contains("exec ") && text.contains("no such file") {
            NOT_FOUND
        } else if text.contains("permission denied") || text.contains("not executable") || text.contains("exec format")
        {
            NOT_EXECUTABLE
        } else {
            CANNOT
        };
        self.with_code(code)
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
        match status.code() {
            // tonic's own words for a connection that broke say nothing to people.
            Code::Unavailable | Code::Unknown | Code::Internal
                if status.message().contains("transport") || status.message().starts_with("h2 protocol error") =>
            {
                Self::new("the daemon ended while it answered").with_code(CANNOT)
            }
            _ => Self::new(status.message()),
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
