use std::{fs::OpenOptions, io::Write, os::unix::fs::OpenOptionsExt};

use crate::{
    arguments::{Global, LogFormat},
    clock,
    exit_code::ExitCode,
};

/// What is told to the caller, once.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Failure {
    pub(crate) message: String,
    /// The program's exit code.
    pub(crate) code: u8,
    /// Not a failure: a command's options were asked for.
    pub(crate) help: bool,
}

impl Failure {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), code: 1, help: false }
    }

    /// The command line is wrong.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(message)
    }

    /// What a command's `--help` shows.
    pub(crate) fn help(options: String) -> Self {
        Self { message: options, code: 0, help: true }
    }

    /// There is no container of this id; engines look for these words.
    pub(crate) fn absent(id: &str) -> Self {
        Self::new(format!("container does not exist: {id}"))
    }

    /// An operation on an object, and its cause without the number that the standard library adds.
    pub(crate) fn io(operation: impl std::fmt::Display, cause: impl Into<std::io::Error>) -> Self {
        let text = cause.into().to_string();
        let cause = text.rfind(" (os error ").map_or(text.as_str(), |end| &text[..end]);
        Self::new(format!("{operation}: {cause}"))
    }

    /// The same error with what was being done in front.
    pub(crate) fn within(self, operation: impl std::fmt::Display) -> Self {
        Self { message: format!("{operation}: {}", self.message), ..self }
    }

    /// The same error with this exit code.
    pub(crate) fn with_code(self, code: u8) -> Self {
        Self { code, ..self }
    }

    /// Writes it to standard error and to the log.
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

/// Something worth knowing that is no error.
pub(crate) fn warn(global: &Global, message: &str) {
    log(global, "warning", message);
}

/// With `--debug`: what is done.
pub(crate) fn debug(global: &Global, message: impl FnOnce() -> String) {
    if global.debug {
        log(global, "debug", &message());
    }
}

/// The same of hooks that failed where that changes nothing.
pub(crate) fn warn_each(global: &Global, errors: Vec<container::Error>) {
    errors.iter().for_each(|error| warn(global, &error.message));
}

/// One line to the log file, else to standard error, in the form that containerd and Podman read.
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
