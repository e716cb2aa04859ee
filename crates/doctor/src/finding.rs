//! The results of checks.

use serde::Serialize;

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// As it should be.
    Ok,
    /// Worth knowing; nothing has to be changed.
    Notice,
    /// Some pods or a part of the node will not work as expected.
    Warning,
    /// Pods cannot run, or the kubelet cannot start.
    Problem,
}

/// What a check found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The check's id.
    pub id: &'static str,
    /// How much it matters.
    pub severity: Severity,
    /// What was found, with the values.
    pub message: String,
    /// Why it matters.
    pub reason: &'static str,
    /// The command that fixes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

/// Number of findings of each severity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[allow(missing_docs)]
pub struct Summary {
    pub ok: usize,
    pub notice: usize,
    pub warning: usize,
    pub problem: usize,
}

/// All findings, in the order of the checks.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Number of findings of each severity.
    pub summary: Summary,
    /// The findings.
    pub findings: Vec<Finding>,
}

impl Report {
    /// Counts findings.
    #[must_use]
    pub fn new(findings: Vec<Finding>) -> Self {
        let count = |severity| findings.iter().filter(|finding| finding.severity == severity).count();
        let summary = Summary {
            ok: count(Severity::Ok),
            notice: count(Severity::Notice),
            warning: count(Severity::Warning),
            problem: count(Severity::Problem),
        };
        Self { summary, findings }
    }

    /// Returns the exit code of `pinion doctor`: 2 with a problem, 1 with a warning, else 0.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self.findings.iter().map(|finding| finding.severity).max() {
            Some(Severity::Problem) => 2,
            Some(Severity::Warning) => 1,
            _ => 0,
        }
    }
}

/// A finding without what the check itself adds.
#[derive(Clone, Debug)]
pub(crate) struct Verdict {
    pub(crate) severity: Severity,
    pub(crate) message: String,
    pub(crate) fix: Option<String>,
}

impl Verdict {
    fn new(severity: Severity, message: impl Into<String>) -> Self {
        Self { severity, message: message.into(), fix: None }
    }

    pub(crate) fn ok(message: impl Into<String>) -> Self {
        Self::new(Severity::Ok, message)
    }

    pub(crate) fn notice(message: impl Into<String>) -> Self {
        Self::new(Severity::Notice, message)
    }

    pub(crate) fn warning(message: impl Into<String>) -> Self {
        Self::new(Severity::Warning, message)
    }

    pub(crate) fn problem(message: impl Into<String>) -> Self {
        Self::new(Severity::Problem, message)
    }

    /// Adds the command that fixes it.
    pub(crate) fn fix(self, command: impl Into<String>) -> Self {
        Self { fix: Some(command.into()), ..self }
    }
}
