//! What can go wrong with a network.

use std::{io, path::Path};

use crate::Protocol;

/// An operation, its object, the cause and, where there is one, the way out.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel refused.
    #[error("{operation} {object}: {cause}")]
    Kernel {
        /// What was tried.
        operation: &'static str,
        /// On what.
        object: String,
        /// What the kernel said, with its own words where it had some.
        cause: io::Error,
    },
    /// A configuration that cannot be used.
    #[error("{object}: {reason}")]
    Config {
        /// The setting, or the file with its line.
        object: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A host port belongs to another pod.
    #[error("host port {port}/{protocol}{} is taken by sandbox {owner}", address.as_deref().map(|a| format!(" on {a}")).unwrap_or_default())]
    PortTaken {
        /// The port asked for.
        port: u16,
        /// Its protocol.
        protocol: Protocol,
        /// The address asked for, if one was.
        address: Option<String>,
        /// Who has it.
        owner: String,
    },
    /// A process of the node has a host port, and the pod is to have it for itself
    /// ([`PodRef::free_ports`](crate::PodRef)).
    #[error(
        "host port {port}/{protocol}{} is in use by a process of the node; choose another port, or end that process",
        address.as_deref().map(|a| format!(" on {a}")).unwrap_or_default()
    )]
    PortInUse {
        /// The port.
        port: u16,
        /// Its protocol.
        protocol: Protocol,
        /// The address, if one was requested.
        address: Option<String>,
    },
    /// No address is free.
    #[error(
        "network {network}: no free address in {subnet} ({leased} leased); remove pods or configure a larger subnet"
    )]
    Exhausted {
        /// The network's name.
        network: String,
        /// Its range.
        subnet: String,
        /// How many addresses are given out.
        leased: usize,
    },
    /// A CNI plugin failed.
    #[error("CNI plugin {plugin} {command}: {reason}")]
    Plugin {
        /// Its type.
        plugin: String,
        /// `ADD`, `DEL`, …
        command: &'static str,
        /// What it said, or how it failed.
        reason: String,
    },
    /// The pod is attached already.
    #[error("sandbox {0} is attached already; detach it first")]
    Attached(String),
    /// Its end was asked for before it was attached.
    #[error("sandbox {0} is being stopped: it was not attached")]
    Cancelled(String),
    /// Not a sandbox's id.
    #[error("sandbox id {0:?} is not valid: 1 to 128 of A-Z a-z 0-9 _ . - and no dot at its head")]
    Sandbox(String),
    /// A namespace could not be entered or made.
    #[error(transparent)]
    Namespace(#[from] netns::Error),
}

impl Error {
    pub(crate) fn kernel(operation: &'static str, object: impl Into<String>, cause: impl Into<io::Error>) -> Self {
        Self::Kernel { operation, object: object.into(), cause: cause.into() }
    }

    pub(crate) fn path(operation: &'static str, path: &Path, cause: impl Into<io::Error>) -> Self {
        Self::kernel(operation, path.display().to_string(), cause)
    }

    pub(crate) fn config(object: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Config { object: object.into(), reason: reason.into() }
    }

    pub(crate) fn plugin(plugin: &str, command: &'static str, reason: impl Into<String>) -> Self {
        Self::Plugin { plugin: plugin.to_owned(), command, reason: reason.into() }
    }
}
