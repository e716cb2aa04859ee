//! Reports of failures, and the log, in the formats that containerd and Podman read (`--log`, `--log-format`).

use std::{fs::OpenOptions, io::Write, os::unix::fs::OpenOptionsExt};

use crate::{
    arguments::{Global, LogFormat},
    clock,
    exit_code::ExitCode,
    failure::{Failure, FailureKind},
};

/// Writes the error to standard error and to the log.
pub(crate) fn report(failure: &Failure, global: &Global) -> ExitCode {
    if failure.kind == FailureKind::Help {
        print!("{}", failure.message);
        return ExitCode::SUCCESS;
    }
    log(global, "error", &failure.message);
    if global.log.is_some() {
        eprintln!("{}", failure.message);
    }
    ExitCode::of(failure)
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
    errors.iter().for_each(|error| warn(global, error.message()));
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
