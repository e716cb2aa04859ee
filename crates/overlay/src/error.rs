//! Errors of overlays.

use std::io;

/// Why an overlay cannot be configured.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A value of the configuration is not valid.
    #[error("overlay {object}: {reason}")]
    Config {
        /// What is not valid.
        object: String,
        /// Why, and what to do.
        reason: String,
    },
    /// The daemon has not recorded the subnet of this node yet.
    #[error("overlay {network}: this node has no subnet yet; the daemon gets one from etcd, see its log if this lasts")]
    NotReady {
        /// Name of the network.
        network: String,
    },
    /// The kernel lacks a feature.
    #[error("{operation} {object}: this kernel has no {module}; load the module {module}, or build the kernel with it")]
    Unsupported {
        /// What was to be done.
        operation: &'static str,
        /// What it was to be done to.
        object: String,
        /// Kernel module.
        module: &'static str,
    },
    /// The kernel refused a request.
    #[error("{operation} {object}: {cause}")]
    Kernel {
        /// What was to be done.
        operation: &'static str,
        /// What it was to be done to.
        object: String,
        /// Error of the kernel.
        cause: io::Error,
    },
}

impl Error {
    pub(crate) fn config(object: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Config { object: object.into(), reason: reason.into() }
    }

    pub(crate) fn kernel(operation: &'static str, object: impl Into<String>, cause: impl Into<io::Error>) -> Self {
        Self::Kernel { operation, object: object.into(), cause: cause.into() }
    }
}
