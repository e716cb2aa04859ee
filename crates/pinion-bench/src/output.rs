//! Output of a benchmark: its tables, and its report as JSON.

use std::{
    io::{self, ErrorKind, Write},
    path::Path,
};

use serde::Serialize;

use crate::engine::Failure;

/// Prints the tables, and writes the report to a file if one is named.
pub(crate) fn write(tables: &str, report: &impl Serialize, json: Option<&Path>) -> Result<(), Failure> {
    let printed = writeln!(io::stdout().lock(), "{}", tables.trim_end());
    let saved = save(report, json);
    match printed {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            saved.and(Err(Failure(format!("print the tables: {error}"))))
        }
        _ => saved,
    }
}

/// Reports an event on standard error. A terminal that is gone must not end a run.
pub(crate) fn note(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Writes the report to a file if one is named.
pub(crate) fn save(report: &impl Serialize, json: Option<&Path>) -> Result<(), Failure> {
    let Some(path) = json else { return Ok(()) };
    let text = serde_json::to_string_pretty(report).map_err(|e| Failure(format!("encode the report: {e}")))?;
    std::fs::write(path, text).map_err(|e| Failure(format!("write {}: {e}", path.display())))
}
