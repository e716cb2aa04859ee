/// Class of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// A required plugin is absent, or failed: the request can be retried.
    Unavailable,
    /// A plugin refused the request, or plugins contradict each other.
    Refused,
}

/// Why a request fails because of a plugin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// Class of the error.
    pub kind: ErrorKind,
    /// The message, which names the plugin.
    pub message: String,
}

impl Error {
    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Unavailable, message: message.into() }
    }

    pub(crate) fn refused(message: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Refused, message: message.into() }
    }
}
