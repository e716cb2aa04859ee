//! Errors of requests to etcd.

use std::path::PathBuf;

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file of the configuration cannot be used.
    #[error("etcd: read {}: {reason}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The TLS settings cannot be used.
    #[error("etcd: set up TLS: {0}")]
    Tls(String),
    /// No member responded as etcd does.
    #[error("etcd: {operation}: {reason}")]
    Unavailable {
        /// Operation.
        operation: &'static str,
        /// Failure of each endpoint.
        reason: String,
    },
    /// The cluster refused the request.
    #[error("etcd: {operation}: {message}")]
    Refused {
        /// Operation.
        operation: &'static str,
        /// Code (`google.rpc.Code`).
        code: i64,
        /// Message.
        message: String,
    },
}

impl Error {
    /// Reports whether the lease does not exist any longer.
    #[must_use]
    pub fn is_lease_lost(&self) -> bool {
        const NOT_FOUND: i64 = 5;
        matches!(self, Self::Refused { code: NOT_FOUND, .. })
    }
}
