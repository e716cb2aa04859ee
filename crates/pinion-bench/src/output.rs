//! Output of a benchmark: its tables, and its report as JSON.

use std::{
    io::{self, ErrorKind, Write},
    path::Path,
};

use serde::Serialize;

use crate::engine::Failure;

/// Prints the tables, and writes the report to a file if one is named.
pub(crate) fn write(tables: &str, report: &impl Serialize, json: Option<&Path>) -> Result<(), Failure> {
    let printed = print(tables);
    save(report, json).and(printed)
}

/// Prints a text. A reader that has seen enough of it is not an error.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    match writeln!(io::stdout().lock(), "{}", text.trim_end()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Failure(format!("print the output: {error}"))),
        _ => Ok(()),
    }
}

/// Writes the report to a file if one is named.
pub(crate) fn save(report: &impl Serialize, json: Option<&Path>) -> Result<(), Failure> {
    let Some(path) = json else { return Ok(()) };
    let text = serde_json::to_string_pretty(report).map_err(|e| Failure(format!("encode the report: {e}")))?;
    std::fs::write(path, text).map_err(|e| Failure(format!("write {}: {e}", path.display())))
}
