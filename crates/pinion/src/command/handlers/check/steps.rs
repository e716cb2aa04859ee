//! The steps of a check, which are printed as they complete.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::{Failure, output, table::printable};

/// The steps so far.
pub(super) struct Steps {
    json: bool,
    done: Vec<Step>,
}

struct Step {
    name: &'static str,
    /// Why it failed.
    failure: Option<String>,
    duration: Duration,
}

impl Steps {
    /// Prints steps unless the output is JSON.
    pub(super) fn new(json: bool) -> Self {
        Self { json, done: Vec::new() }
    }

    /// Records the outcome of a step that began at this time, and returns its value.
    pub(super) fn record<T>(
        &mut self,
        name: &'static str,
        began: Instant,
        outcome: Result<T, String>,
    ) -> Result<Option<T>, Failure> {
        let duration = began.elapsed();
        let (value, failure) = match outcome {
            Ok(value) => (Some(value), None),
            Err(failure) => (None, Some(failure)),
        };
        let step = Step { name, failure, duration };
        if !self.json {
            output::line(&step.line())?;
        }
        self.done.push(step);
        Ok(value)
    }

    /// Whether a step failed.
    pub(super) fn failed(&self) -> bool {
        self.done.iter().any(|step| step.failure.is_some())
    }

    /// Returns all steps for programs.
    pub(super) fn json(&self) -> Value {
        let step = |step: &Step| {
            let milliseconds = step.duration.as_secs_f64() * 1000.0;
            json!({"step": step.name, "ok": step.failure.is_none(), "error": step.failure, "milliseconds": milliseconds})
        };
        self.done.iter().map(step).collect()
    }
}

impl Step {
    fn line(&self) -> String {
        match &self.failure {
            None => format!("ok      {:22} {:>6} ms", self.name, self.duration.as_millis()),
            Some(failure) => format!("FAILED  {:22} {}", self.name, printable(failure)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_step_is_shown_with_its_error() {
        let mut steps = Steps::new(true);
        let began = Instant::now();
        assert_eq!(steps.record("create", began, Ok(1)).expect("no output"), Some(1));
        assert!(!steps.failed());
        assert_eq!(steps.record::<u8>("start", began, Err("no\x1b".into())).expect("no output"), None);
        assert!(steps.failed());
        assert_eq!(steps.done[1].line(), format!("FAILED  {:22} no\u{fffd}", "start"));
        assert_eq!(steps.json()[1]["error"], "no\u{1b}");
    }
}
