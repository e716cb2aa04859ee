//! Output streams.

use serde::{Deserialize, Serialize};

/// Standard output (also that of a terminal) or standard error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum StreamKind {
    Stdout,
    Stderr,
}

impl StreamKind {
    /// Name in the CRI log format.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }

    /// Number in the journal.
    pub(crate) fn word(self) -> u32 {
        match self {
            Self::Stdout => 1,
            Self::Stderr => 2,
        }
    }

    /// Decodes a number of the journal.
    pub(crate) fn from_word(word: u32) -> Option<Self> {
        [Self::Stdout, Self::Stderr].into_iter().find(|kind| kind.word() == word)
    }
}
