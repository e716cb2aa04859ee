use std::fmt::Display;

/// Whether a component works, and the reason if it does not.
#[derive(Clone, Debug)]
pub struct Condition {
    /// Whether it works.
    pub ready: bool,
    /// Reason in CamelCase; empty if ready.
    pub reason: String,
    /// Error message; empty if ready.
    pub message: String,
}

impl Condition {
    pub(crate) fn from_result<E: Display>(outcome: Result<(), E>, reason: &str) -> Self {
        match outcome {
            Ok(()) => Self { ready: true, reason: String::new(), message: String::new() },
            Err(error) => Self { ready: false, reason: reason.to_owned(), message: error.to_string() },
        }
    }
}

/// Whether the node supports a feature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Feature {
    /// Whether it is supported.
    pub supported: bool,
    /// Why it is not, if that is known.
    pub reason: Option<String>,
}
