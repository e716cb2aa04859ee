use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The state of a container, as the `state` operation and hooks get it (runtime.md, "State").
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct State {
    /// Version of the specification with which the state complies.
    pub oci_version: String,
    /// Id of the container.
    pub id: String,
    /// Status of the container.
    pub status: Status,
    /// Pid of the container's process on the host; 0 without a process.
    pub pid: i32,
    /// Absolute path of the bundle.
    pub bundle: String,
    /// Annotations of the spec.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// The status of a container.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// The container is being created.
    #[default]
    Creating,
    /// The container is created, and its program is not running yet.
    Created,
    /// The program of the container is running.
    Running,
    /// The container is frozen. Not in the specification, but used by runc and crun.
    Paused,
    /// The process of the container has exited.
    Stopped,
}
