//! Errors of network operations.

use std::{io, net::IpAddr, path::Path};

use crate::Protocol;

/// Code of CNI errors about the version of the configuration.
const INCOMPATIBLE: u32 = 1;
/// Code of CNI errors that may go away: "try again later".
const TRY_AGAIN: u32 = 11;
/// Code with which plugins report errors of the kernel and of files.
const OF_SYSTEM: u32 = 999;

/// Category of an error, by what a caller can do about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The configuration or the request is invalid; the caller must change it.
    Invalid,
    /// The object does not exist.
    NotFound,
    /// The sandbox is already attached, or the namespace is already pinned.
    AlreadyExists,
    /// Another pod or process has the host port.
    InUse,
    /// The network has no free address.
    Exhausted,
    /// The sandbox is being stopped.
    Cancelled,
    /// A CNI plugin failed.
    Plugin,
    /// The kernel failed.
    System,
}

/// An error with the operation, its object, the cause and, where one is known, a remedy.
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
    /// A configuration is invalid.
    #[error("{object}: {reason}")]
    Config {
        /// Setting, or file and line.
        object: String,
        /// Reason why it is invalid.
        reason: String,
    },
    /// What a pod requests of networks by its annotations is invalid or not permitted, or was not honoured.
    #[error("{object}: {reason}")]
    Selection {
        /// The annotation, or the network.
        object: String,
        /// What is wrong.
        reason: String,
    },
    /// A host port belongs to another pod.
    #[error("host port {port}/{protocol}{} is taken by sandbox {owner}", address.as_deref().map(|a| format!(" on {a}")).unwrap_or_default())]
    PortTaken {
        /// Requested port.
        port: u16,
        /// Transport protocol.
        protocol: Protocol,
        /// Requested address, if any.
        address: Option<String>,
        /// Sandbox that has the port.
        owner: String,
    },
    /// A process of the node listens on a host port, and the pod requires it to be free
    /// ([`PodRef::require_free_ports`](crate::PodRef)).
    #[error(
        "host port {port}/{protocol}{} is in use by a process of the node; choose another port, or stop that process",
        address.as_deref().map(|a| format!(" on {a}")).unwrap_or_default()
    )]
    PortInUse {
        /// Port on the node.
        port: u16,
        /// Transport protocol.
        protocol: Protocol,
        /// Requested address, if any.
        address: Option<String>,
    },
    /// The subnet has no free address.
    #[error(
        "network {network}: no free address in {subnet} ({leased} leased); remove pods or configure a larger subnet"
    )]
    Exhausted {
        /// Network name.
        network: String,
        /// Ranges that were searched.
        subnet: String,
        /// Number of leased addresses.
        leased: usize,
    },
    /// A CNI plugin failed.
    #[error("CNI plugin {plugin} {command}: {reason}")]
    Plugin {
        /// Plugin type.
        plugin: String,
        /// CNI command: `ADD`, `DEL`, …
        command: &'static str,
        /// Error that the plugin returned, or how running it failed.
        reason: String,
        /// Code of the error that the plugin returned, of the CNI specification or the plugin's own.
        code: Option<u32>,
    },
    /// The program of a CNI plugin does not exist.
    #[error("CNI plugin {plugin} {command}: not found in {directories}; install it there")]
    PluginMissing {
        /// Plugin type.
        plugin: String,
        /// CNI command, or `lookup`.
        command: &'static str,
        /// Directories of plugins.
        directories: String,
    },
    /// A pod requested an address that another pod has.
    #[error("address {0} is in use by another pod; choose another one")]
    AddressTaken(IpAddr),
    /// A named network does not exist.
    #[error("network {0:?} does not exist; `pinion network ls` lists all")]
    NetworkMissing(String),
    /// A network of this name exists.
    #[error("network {0} exists already; choose another name, or remove it: pinion network rm {0}")]
    NetworkExists(String),
    /// A named network has pods.
    #[error(
        "network {network} is in use{}; disconnect or remove them first",
        if pods.is_empty() { ": a pod is being attached".to_owned() } else { format!(" by pods {}", pods.join(", ")) }
    )]
    NetworkInUse {
        /// Name of the network.
        network: String,
        /// Names of the pods; empty if one is being attached.
        pods: Vec<String>,
    },
    /// Several operations failed.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Several(Vec<Error>),
    /// The pod is already attached.
    #[error("sandbox {0} is already attached; detach it first")]
    Attached(String),
    /// The attachment was cancelled before it was complete.
    #[error("sandbox {0} is being stopped; attaching it was cancelled")]
    Cancelled(String),
    /// The sandbox id is invalid.
    #[error("sandbox id {0:?} is not valid: 1 to 128 of A-Z a-z 0-9 _ . - not starting with a dot")]
    Sandbox(String),
    /// A network namespace could not be created or entered.
    #[error(transparent)]
    Namespace(#[from] netns::Error),
}

impl From<cni_plugins::Error> for Error {
    fn from(error: cni_plugins::Error) -> Self {
        match error {
            cni_plugins::Error::Kernel { operation, object, cause } => Self::Kernel { operation, object, cause },
            cni_plugins::Error::Config { object, reason } => Self::Config { object, reason },
            cni_plugins::Error::Exhausted { network, ranges, leased } => {
                Self::Exhausted { network, subnet: ranges, leased }
            }
            cni_plugins::Error::Namespace(error) => Self::Namespace(error),
            other => Self::config("network", other.to_string()),
        }
    }
}

impl Error {
    /// Returns the category.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Config { .. } | Self::Selection { .. } | Self::Sandbox(_) => ErrorKind::Invalid,
            Self::Attached(_) | Self::NetworkExists(_) => ErrorKind::AlreadyExists,
            Self::NetworkMissing(_) => ErrorKind::NotFound,
            Self::PortTaken { .. } | Self::PortInUse { .. } | Self::AddressTaken(_) | Self::NetworkInUse { .. } => {
                ErrorKind::InUse
            }
            Self::Exhausted { .. } | Self::Plugin { code: Some(TRY_AGAIN), .. } => ErrorKind::Exhausted,
            Self::Cancelled(_) => ErrorKind::Cancelled,
            Self::Plugin { .. } | Self::PluginMissing { .. } => ErrorKind::Plugin,
            Self::Kernel { .. } => ErrorKind::System,
            Self::Several(errors) => errors.first().map_or(ErrorKind::System, Self::kind),
            Self::Namespace(error) => match error.kind() {
                netns::ErrorKind::Invalid => ErrorKind::Invalid,
                netns::ErrorKind::AlreadyExists => ErrorKind::AlreadyExists,
                netns::ErrorKind::NotFound | netns::ErrorKind::Gone => ErrorKind::NotFound,
                netns::ErrorKind::System | netns::ErrorKind::Memory => ErrorKind::System,
            },
        }
    }

    /// Returns the operation that failed; `None` if nothing was tried.
    pub fn operation(&self) -> Option<&'static str> {
        match self {
            Self::Kernel { operation, .. } => Some(operation),
            Self::Plugin { command, .. } | Self::PluginMissing { command, .. } => Some(command),
            Self::Namespace(error) => error.operation(),
            Self::Several(errors) => errors.first()?.operation(),
            _ => None,
        }
    }

    /// Returns the object of the operation, the setting, the network, the plugin or the sandbox that the error is about;
    /// `None` for a host port, which is a number.
    pub fn object(&self) -> Option<&str> {
        match self {
            Self::Kernel { object, .. } | Self::Config { object, .. } | Self::Selection { object, .. } => Some(object),
            Self::Exhausted { network, .. } => Some(network),
            Self::Plugin { plugin, .. } | Self::PluginMissing { plugin, .. } => Some(plugin),
            Self::Attached(sandbox) | Self::Cancelled(sandbox) | Self::Sandbox(sandbox) => Some(sandbox),
            Self::NetworkMissing(network) | Self::NetworkExists(network) | Self::NetworkInUse { network, .. } => {
                Some(network)
            }
            Self::Namespace(error) => error.object(),
            Self::Several(errors) => errors.first()?.object(),
            Self::PortTaken { .. } | Self::PortInUse { .. } | Self::AddressTaken(_) => None,
        }
    }

    pub(crate) fn kernel(operation: &'static str, object: impl Into<String>, cause: impl Into<io::Error>) -> Self {
        Self::Kernel { operation, object: object.into(), cause: cause.into() }
    }

    /// Returns the only error, or all of them as one; succeeds if there is none.
    pub(crate) fn join(mut errors: Vec<Self>) -> Result<(), Self> {
        match errors.len() {
            0 => Ok(()),
            1 => errors.pop().map_or(Ok(()), Err),
            _ => Err(Self::Several(errors)),
        }
    }

    pub(crate) fn path(operation: &'static str, path: &Path, cause: impl Into<io::Error>) -> Self {
        Self::kernel(operation, path.display().to_string(), cause)
    }

    pub(crate) fn config(object: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Config { object: object.into(), reason: reason.into() }
    }

    pub(crate) fn selection(object: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Selection { object: object.into(), reason: reason.into() }
    }

    pub(crate) fn plugin(plugin: &str, command: &'static str, reason: impl Into<String>) -> Self {
        Self::Plugin { plugin: plugin.to_owned(), command, reason: reason.into(), code: None }
    }

    /// Reports whether no program understands the call: it is missing, or does not know the version of the configuration.
    pub(crate) fn is_of_missing_program(&self) -> bool {
        matches!(self, Self::PluginMissing { .. } | Self::Plugin { code: Some(INCOMPATIBLE), .. })
    }

    /// Reports whether a plugin may have failed because of what another pod has, so that it may succeed later.
    pub(crate) fn may_be_conflict(&self) -> bool {
        matches!(self, Self::Plugin { code: Some(TRY_AGAIN | OF_SYSTEM), .. })
    }
}
