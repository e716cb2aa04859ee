//! Errors, and their codes in the CNI specification.

use std::{io, net::IpAddr, path::Path};

use rustix::io::Errno;
use serde_json::{Value, json};

/// An error of a plugin.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A system call or netlink request failed.
    #[error("{operation} {object}: {cause}")]
    Kernel {
        /// Operation that failed.
        operation: &'static str,
        /// Object of the operation.
        object: String,
        /// The kernel's error, including its extended acknowledgement text if it sent one.
        #[source]
        cause: io::Error,
    },
    /// The kernel lacks a feature.
    #[error("{operation} {object}: this kernel has no {module}; load the module {module}, or build the kernel with it")]
    Unsupported {
        /// Operation that failed.
        operation: &'static str,
        /// Object of the operation.
        object: String,
        /// Kernel module that has the feature.
        module: &'static str,
    },
    /// The configuration is invalid.
    #[error("{object}: {reason}")]
    Config {
        /// Key of the configuration.
        object: String,
        /// Reason why it is invalid.
        reason: String,
    },
    /// An environment variable is missing or invalid.
    #[error("{variable}: {reason}")]
    Environment {
        /// Name of the variable.
        variable: &'static str,
        /// Reason why it is invalid.
        reason: String,
    },
    /// The input is not a configuration.
    #[error("configuration: {0}")]
    Decode(String),
    /// The version of the configuration is not supported, or has not the command.
    #[error("cniVersion {version:?}: {reason}")]
    Version {
        /// Version of the configuration.
        version: String,
        /// Reason.
        reason: String,
    },
    /// `CHECK` found a difference.
    #[error("check {object}: {reason}")]
    Differs {
        /// What was checked.
        object: String,
        /// Difference.
        reason: String,
    },
    /// No address is free.
    #[error("network {network}: no free address in {ranges} ({leased} leased)")]
    Exhausted {
        /// Network name.
        network: String,
        /// Ranges that were searched.
        ranges: String,
        /// Number of leased addresses.
        leased: usize,
    },
    /// Another interface has a requested address.
    #[error("ips: {0} is leased already")]
    Leased(IpAddr),
    /// A plugin program that this plugin calls failed.
    #[error("plugin {plugin}: {reason}")]
    Delegate {
        /// Type of the plugin.
        plugin: String,
        /// Code of the error that it returned, if any.
        code: Option<u64>,
        /// Message that it returned, or how running it failed.
        reason: String,
    },
    /// An overlay cannot be configured.
    #[error(transparent)]
    Overlay(#[from] overlay::Error),
    /// The pod's network namespace cannot be used.
    #[error(transparent)]
    Namespace(#[from] netns::Error),
}

impl Error {
    /// Returns the code of the error in a CNI error result.
    #[must_use]
    pub fn code(&self) -> u64 {
        match self {
            Self::Version { .. } => 1,
            Self::Environment { .. } => 4,
            Self::Decode(_) => 6,
            Self::Config { .. } => 7,
            Self::Exhausted { .. } | Self::Leased(_) | Self::Overlay(overlay::Error::NotReady { .. }) => 11,
            Self::Overlay(overlay::Error::Config { .. }) => 7,
            Self::Overlay(overlay::Error::Unsupported { .. }) => 103,
            Self::Delegate { code: Some(code), .. } => *code,
            Self::Differs { .. } => 102,
            Self::Unsupported { .. } => 103,
            Self::Kernel { .. } | Self::Delegate { .. } | Self::Namespace(_) | Self::Overlay(_) => 999,
        }
    }

    /// Returns the error as a CNI error result.
    #[must_use]
    pub fn to_json(&self, version: &str) -> Value {
        json!({"cniVersion": version, "code": self.code(), "msg": self.to_string()})
    }

    pub(crate) fn kernel(operation: &'static str, object: impl Into<String>, cause: impl Into<io::Error>) -> Self {
        Self::Kernel { operation, object: object.into(), cause: cause.into() }
    }

    pub(crate) fn path(operation: &'static str, path: &Path, cause: impl Into<io::Error>) -> Self {
        Self::kernel(operation, path.display().to_string(), cause)
    }

    /// Returns the error of a netlink request that needs a kernel module.
    pub(crate) fn of_module(
        operation: &'static str,
        object: impl Into<String>,
        module: &'static str,
        refusal: rtnl::netlink::Refusal,
    ) -> Self {
        let object = object.into();
        match refusal.errno {
            Errno::OPNOTSUPP | Errno::PROTONOSUPPORT | Errno::AFNOSUPPORT => {
                Self::Unsupported { operation, object, module }
            }
            _ => Self::kernel(operation, object, refusal),
        }
    }

    pub(crate) fn config(object: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Config { object: object.into(), reason: reason.into() }
    }

    pub(crate) fn differs(object: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Differs { object: object.into(), reason: reason.into() }
    }
}
