use std::{
    io,
    path::{Path, PathBuf},
};

/// Why a store or an image of it cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read.
    #[error("{operation} {}: {source}", path.display())]
    Io {
        /// What was done, such as `read`.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A file has contents that are not expected.
    #[error("{}: {reason}", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A part of an image is not in the store.
    #[error("{0}")]
    Missing(String),
}

impl Error {
    pub(crate) fn io(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { operation, path, source }
    }

    pub(crate) fn invalid(path: &Path, reason: impl Into<String>) -> Self {
        Self::Invalid { path: path.to_owned(), reason: reason.into() }
    }
}
