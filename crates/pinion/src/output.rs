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

/// Prints one line for each.
pub(crate) fn lines<T: AsRef<str>>(texts: impl IntoIterator<Item = T>) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    for text in texts {
        writeln!(out, "{}", text.as_ref())?;
    }
    out.flush()?;
    Ok(())
}

/// Does the same to several objects and prints each name as it is done; goes on after a failure, ends with the last.
pub(crate) struct Each {
    json: bool,
    done: Vec<String>,
    failed: Option<Failure>,
}

impl Each {
    /// Nothing is done yet.
    pub(crate) fn new(json: bool) -> Self {
        Self { json, done: Vec::new(), failed: None }
    }

    /// Takes one outcome.
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

    /// Prints what JSON wants and gives the last failure.
    pub(crate) fn end(self) -> Result<u8, Failure> {
        if self.json {
            json(&self.done)?;
        }
        self.failed.map_or(Ok(0), Err)
    }
}
