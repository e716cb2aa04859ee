//! The result of a translation: one finding for each key.

use std::path::PathBuf;

use toml::Value;

/// What became of a key.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// The key, as it is written in the file.
    pub key: String,
    /// File and line; `None` for a default of the engine that is not written in a file.
    pub place: Option<(PathBuf, usize)>,
    /// What became of it.
    pub outcome: Outcome,
}

/// What became of a key.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// It is in the translated configuration.
    Translated {
        /// The path of Pinion's key.
        target: Vec<String>,
        /// Its value; `None` if the key of another finding has it.
        value: Option<Value>,
    },
    /// Pinion behaves as with this value, without a key.
    Same,
    /// It has no effect with Pinion, and needs none.
    Unneeded(String),
    /// Pinion does not do this.
    Unserved(String),
    /// The reference of the engine does not have the key.
    Unknown,
}

/// A translated configuration.
#[derive(Clone, Debug, Default)]
pub struct Import {
    /// The files that were read, in order.
    pub files: Vec<PathBuf>,
    /// One finding for each key of the files.
    pub findings: Vec<Finding>,
}

impl Import {
    /// Whether every key is served, needless, or has the value that Pinion behaves as.
    pub fn is_complete(&self) -> bool {
        !self.findings.iter().any(|finding| matches!(finding.outcome, Outcome::Unserved(_) | Outcome::Unknown))
    }
}
