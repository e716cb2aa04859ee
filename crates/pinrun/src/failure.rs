use std::{fs::OpenOptions, io::Write, os::unix::fs::OpenOptionsExt};

use crate::{
    arguments::{Global, LogFormat},
    clock,
    exit_code::ExitCode,
};

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
        let text = cause.into().to_string();
        let cause = text.rfind(" (os error ").map_or(text.as_str(), |end| &text[..end]);
        Self::new(format!("{operation}: {cause}"))
    }

    /// Prepends the operation that failed.
    pub(crate) fn within(self, operation: impl std::fmt::Display) -> Self {
        Self { message: format!("{operation}: {}", self.message), ..self }
    }

    /// Sets the exit code.
    pub(crate) fn with_code(self, code: u8) -> Self {
        Self { code, ..self }
    }

    /// Writes the error to standard error and to the log.
    pub(crate) fn report(&self, global: &Global) -> ExitCode {
        if self.help {
            print!("{}", self.message);
            return ExitCode::SUCCESS;
        }
        log(global, "error", &self.message);
        if global.log.is_some() {
            eprintln!("{}", self.message);
        }
        ExitCode::from(self.code)
    }
}

/// Logs a warning.
pub(crate) fn warn(global: &Global, message: &str) {
    log(global, "warning", message);
}

/// Logs a debug message if `--debug` is set.
pub(crate) fn debug(global: &Global, message: impl FnOnce() -> String) {
    if global.debug {
        log(global, "debug", &message());
    }
}

/// Logs failed hooks as warnings, where their failure does not change the result.
pub(crate) fn warn_each(global: &Global, errors: Vec<container::Error>) {
    errors.iter().for_each(|error| warn(global, &error.message));
}

/// Writes one line to the log file, else to standard error, in the format that containerd and Podman parse.
fn log(global: &Global, level: &str, message: &str) {
    let time = clock::now();
    let line = match global.log_format {
        LogFormat::Json => {
            format!("{{\"level\":{level:?},\"msg\":{},\"time\":{time:?}}}\n", serde_json::Value::from(message))
        }
        LogFormat::Text => format!("time={time:?} level={level} msg={}\n", serde_json::Value::from(message)),
    };
    let written = global.log.as_ref().map(|path| {
        let file = OpenOptions::new().append(true).create(true).mode(0o644).open(path);
        file.and_then(|mut file| file.write_all(line.as_bytes()))
    });
    match written {
        Some(Ok(())) => {}
        Some(Err(error)) => eprint!("pinrun: write the log: {error}\n{line}"),
        None => eprint!("{line}"),
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
