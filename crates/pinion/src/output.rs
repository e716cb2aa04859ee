use std::io::Write;

use serde::Serialize;

use crate::Failure;

/// Prints a value as JSON for scripts.
pub(crate) fn json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).map_err(|error| Failure::new(format!("write JSON: {error}")))?;
    line(&text)
}

/// Prints one line.
pub(crate) fn line(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}")?;
    out.flush()?;
    Ok(())
}

/// Prints each text on a line of its own.
pub(crate) fn lines<T: AsRef<str>>(texts: impl IntoIterator<Item = T>) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    for text in texts {
        writeln!(out, "{}", text.as_ref())?;
    }
    out.flush()?;
    Ok(())
}

/// Collects the outcomes of one operation on several objects.
///
/// Prints the name of each object that succeeded, or collects the names for JSON. A failure does not stop the
/// operation; the last failure is the command's.
pub(crate) struct Outcomes {
    json: bool,
    done: Vec<String>,
    failed: Option<Failure>,
}

impl Outcomes {
    /// Starts without any outcome.
    pub(crate) fn new(json: bool) -> Self {
        Self { json, done: Vec::new(), failed: None }
    }

    /// Adds the outcome for the object `name`. An earlier failure is printed when another one replaces it.
    pub(crate) fn add(&mut self, name: &str, outcome: Result<(), Failure>) -> Result<(), Failure> {
        match outcome {
            Ok(()) if self.json => self.done.push(name.to_owned()),
            Ok(()) => line(name)?,
            Err(failure) => {
                if let Some(earlier) = self.failed.replace(failure) {
                    earlier.print();
                }
            }
        }
        Ok(())
    }

    /// Prints the collected names if the output is JSON, and returns the last failure, if any.
    pub(crate) fn finish(self) -> Result<u8, Failure> {
        if self.json {
            json(&self.done)?;
        }
        self.failed.map_or(Ok(0), Err)
    }
}
