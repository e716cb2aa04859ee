use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Linux, Mount, NamespaceType, Process};

/// `config.json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Spec {
    /// Version of the specification with which the file complies.
    pub oci_version: String,
    /// The root file system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub root: Option<Root>,
    /// The container's process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process: Option<Process>,
    /// Host name, in the container's UTS namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// NIS domain name, in the container's UTS namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domainname: Option<String>,
    /// Mounts in addition to the root, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<Mount>,
    /// Programs to run at points of the lifecycle.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hooks: Option<Hooks>,
    /// Arbitrary metadata.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Linux-specific properties.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub linux: Option<Linux>,
}

impl Spec {
    /// Reports whether the container creates or joins a namespace of this kind.
    #[must_use]
    pub fn has_namespace(&self, kind: NamespaceType) -> bool {
        self.linux.as_ref().is_some_and(|linux| linux.namespaces.iter().any(|namespace| namespace.kind == kind))
    }
}

/// `root`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Root {
    /// Absolute, or relative to the bundle.
    pub path: String,
    /// Whether the root is read-only in the container.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub readonly: bool,
}

/// `hooks`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Hooks {
    /// Hooks during create, in the runtime's namespaces (deprecated).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub prestart: Vec<Hook>,
    /// Hooks during create, in the runtime's namespaces.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub create_runtime: Vec<Hook>,
    /// Hooks during create, in the container's namespaces, before pivot_root.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub create_container: Vec<Hook>,
    /// Hooks during start, in the container, before its program is executed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub start_container: Vec<Hook>,
    /// Hooks after start, in the runtime's namespaces.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub poststart: Vec<Hook>,
    /// Hooks after delete, in the runtime's namespaces.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub poststop: Vec<Hook>,
}

/// A hook.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Hook {
    /// Absolute path of the program.
    pub path: String,
    /// Arguments of the program; the first is its name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// Environment of the program.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
    /// Timeout in seconds, after which the hook is killed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<i64>,
}
