use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A container's state: what `state` prints and hooks read (runtime.md, "State").
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct State {
    /// Version of the specification the state follows.
    pub oci_version: String,
    /// The container's id.
    pub id: String,
    /// Where it is in its life.
    pub status: Status,
    /// Pid of its process on the host; 0: there is none.
    pub pid: i32,
    /// Absolute path of the bundle.
    pub bundle: String,
    /// The spec's.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// `status` of a container.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Being made.
    #[default]
    Creating,
    /// Made; its program does not run yet.
    Created,
    /// Its program runs.
    Running,
    /// Frozen; not of the specification, but what runc and crun say.
    Paused,
    /// Its process ended.
    Stopped,
}
