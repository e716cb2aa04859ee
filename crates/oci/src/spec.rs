use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Linux, Mount, NamespaceType, Process};

/// `config.json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Spec {
    /// Version of the specification this file follows.
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
    /// Mounts beside the root, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<Mount>,
    /// Programs to run at points of the life.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hooks: Option<Hooks>,
    /// Free-form.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// What is Linux's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub linux: Option<Linux>,
}

impl Spec {
    /// Whether the container has a namespace of this kind of its own, new or joined.
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
    /// Whether the root is read-only inside.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub readonly: bool,
}

/// `hooks`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Hooks {
    /// Deprecated: after create, before start, in the runtime's namespaces.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub prestart: Vec<Hook>,
    /// During create, in the runtime's namespaces.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub create_runtime: Vec<Hook>,
    /// During create, in the container's namespaces, before pivot_root.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub create_container: Vec<Hook>,
    /// During start, in the container, before its program.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub start_container: Vec<Hook>,
    /// After start.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub poststart: Vec<Hook>,
    /// After delete.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub poststop: Vec<Hook>,
}

/// One hook.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Hook {
    /// Absolute path of the program.
    pub path: String,
    /// Its arguments, the first its name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// Its environment.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
    /// Seconds until it is ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<i64>,
}
