//! Runtime handlers that an administrator configures.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

/// A runtime handler whose containers a program with the command line of runc creates, starts and deletes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OciHandler {
    /// Name of the handler, as a RuntimeClass names it.
    pub name: String,
    /// Absolute path of the program.
    pub binary: PathBuf,
    /// Global options of the program, before its command.
    pub arguments: Vec<String>,
    /// Directory of its state (`--root`). `None`: `runtime/<name>` in the state directory.
    pub root: Option<PathBuf>,
    /// Environment of its commands in addition to `PATH`, as `NAME=value`.
    pub environment: Vec<String>,
    /// Time limit of one command.
    pub timeout: Duration,
    /// Annotations of pods and containers that the runtime gets: whole names, or prefixes that end with `*`.
    pub allowed_annotations: Vec<String>,
    /// Annotations of all containers. Those of pods and containers, as far as they are allowed, replace them.
    pub default_annotations: BTreeMap<String, String>,
    /// Devices of privileged containers.
    pub privileged_devices: PrivilegedDevices,
    /// Specification whose properties containers get if the request does not determine them.
    pub base_spec: Option<Arc<oci::Spec>>,
}

/// Devices of privileged containers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PrivilegedDevices {
    /// All devices of the node.
    #[default]
    All,
    /// Those that the container requests, as for a container that is not privileged; it may create and use any other.
    Allowed,
    /// Those that the container requests, as for a container that is not privileged.
    Requested,
}
