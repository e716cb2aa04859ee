use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A turn of a contestant: its measurements in one round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Turn {
    /// Number of the round, from 0.
    pub(crate) round: usize,
    /// Index of the contestant.
    pub(crate) contestant: usize,
    /// Start of the turn, in seconds since the start of the run.
    pub(crate) at_s: f64,
    /// Duration of the reference work before the turn, in milliseconds.
    pub(crate) reference_ms: f64,
    /// Its measurements and failures.
    #[serde(flatten)]
    pub(crate) log: TurnLog,
}

/// The measurements and failures of a turn.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct TurnLog {
    /// Successful measurements.
    pub(crate) measurements: Vec<Measurement>,
    /// Failures, which are counted next to the successful measurements of their metric.
    pub(crate) failures: Vec<MeasurementFailure>,
}

/// The values of a metric in a turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Measurement {
    /// Name of the metric.
    pub(crate) metric: String,
    /// Value of the scenario's parameter, if it has one.
    pub(crate) parameter: Option<f64>,
    /// The values, in the order in which they were measured.
    pub(crate) values: Vec<f64>,
}

/// A failure of an operation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct MeasurementFailure {
    /// Name of the metric.
    pub(crate) metric: String,
    /// Value of the scenario's parameter, if it has one.
    pub(crate) parameter: Option<f64>,
    /// The error.
    pub(crate) cause: String,
}

/// Longest cause that is recorded, in characters. It may contain what a container or an engine wrote.
const CAUSE_MAX: usize = 500;

/// Returns the first characters of a text without those that change how other text is shown: control characters, line breaks, and
/// marks of the direction of writing.
pub(crate) fn printable(text: &str, characters: usize) -> String {
    replace_controls(&text.trim().chars().take(characters).collect::<String>())
}

/// Replaces such characters in each line of a text.
pub(crate) fn printable_lines(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(|line| replace_controls(line).trim_end().to_owned()).collect();
    lines.join("\n")
}

fn replace_controls(text: &str) -> String {
    let is_mark = |c: char| matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.chars().map(|c| if c.is_control() || is_mark(c) { ' ' } else { c }).collect()
}

impl TurnLog {
    /// Adds a value of a metric.
    pub(crate) fn add(&mut self, metric: &str, parameter: Option<f64>, value: f64) {
        let same = |measurement: &&mut Measurement| measurement.metric == metric && measurement.parameter == parameter;
        match self.measurements.iter_mut().find(same) {
            Some(measurement) => measurement.values.push(value),
            None => {
                self.measurements.push(Measurement { metric: metric.to_owned(), parameter, values: vec![value] });
            }
        }
    }

    /// Adds a duration, in milliseconds.
    pub(crate) fn add_ms(&mut self, metric: &str, parameter: Option<f64>, duration: Duration) {
        self.add(metric, parameter, duration.as_secs_f64() * 1000.0);
    }

    /// Adds a failure of the operation that a metric measures.
    pub(crate) fn fail(&mut self, metric: &str, parameter: Option<f64>, cause: &str) {
        let cause = printable(cause, CAUSE_MAX);
        self.failures.push(MeasurementFailure { metric: metric.to_owned(), parameter, cause });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_cannot_change_the_terminal() {
        let mut log = TurnLog::default();
        log.fail("run", None, "\u{1b}[2Jno\nspace\u{202e}");
        assert_eq!(log.failures[0].cause, " [2Jno space ");
        log.fail("run", None, &"x".repeat(1 << 20));
        assert_eq!(log.failures[1].cause.len(), CAUSE_MAX);
    }
}
