//! The contents of a specification file. Unknown fields are refused, as the specification requires: an unknown edit
//! must not be ignored.

use std::collections::BTreeMap;

use serde::Deserialize;

/// A specification file.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Spec {
    pub(crate) cdi_version: String,
    pub(crate) kind: String,
    #[serde(default)]
    pub(crate) annotations: BTreeMap<String, String>,
    pub(crate) devices: Vec<Device>,
    #[serde(default)]
    pub(crate) container_edits: ContainerEdits,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Device {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) annotations: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) container_edits: ContainerEdits,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct ContainerEdits {
    pub(crate) env: Vec<String>,
    pub(crate) device_nodes: Vec<DeviceNode>,
    pub(crate) net_devices: Vec<NetDevice>,
    pub(crate) hooks: Vec<Hook>,
    pub(crate) mounts: Vec<Mount>,
    pub(crate) intel_rdt: Option<IntelRdt>,
    #[serde(alias = "additionalGIDs")]
    pub(crate) additional_gids: Vec<u32>,
}

/// A device file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct DeviceNode {
    /// Absolute path in the container.
    pub path: String,
    /// Path on the node; if empty, the same as in the container.
    pub host_path: String,
    /// Type: `b`, `c`, `u` or `p`; if empty, that of the file on the node.
    #[serde(rename = "type")]
    pub kind: String,
    /// Major number; if 0, that of the file on the node.
    pub major: i64,
    /// Minor number; if 0, that of the file on the node.
    pub minor: i64,
    /// Permissions of the file; if absent, those of the file on the node.
    pub file_mode: Option<u32>,
    /// Cgroup permissions: a combination of `r`, `w` and `m`; if empty, all three; `none` for none.
    pub permissions: String,
    /// Owner in the container; if absent, the container's user.
    pub uid: Option<u32>,
    /// Group in the container; if absent, the container's group.
    pub gid: Option<u32>,
}

/// A network interface of the node that is moved into the container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct NetDevice {
    /// Name on the node.
    pub host_interface_name: String,
    /// Name in the container.
    pub name: String,
}

/// A program to run at a point of the container's lifecycle.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Hook {
    /// Kind of the hook: `createRuntime`, …
    pub hook_name: String,
    /// Absolute path on the node.
    pub path: String,
    /// Arguments; the first is the program name.
    pub args: Vec<String>,
    /// Environment variables, `NAME=value`.
    pub env: Vec<String>,
    /// Timeout in seconds.
    pub timeout: Option<i64>,
}

/// A mount.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Mount {
    /// Path on the node.
    pub host_path: String,
    /// Path in the container.
    pub container_path: String,
    /// Mount options, as in mount(8).
    pub options: Vec<String>,
    /// File system type; if empty, a bind mount.
    #[serde(rename = "type")]
    pub kind: String,
}

/// Allocation of cache and memory bandwidth (resctrl).
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct IntelRdt {
    /// Name of the class of service.
    #[serde(rename = "closID")]
    pub clos_id: String,
    /// `schemata` line of the L3 cache.
    pub l3_cache_schema: String,
    /// `schemata` line of the memory bandwidth.
    pub mem_bw_schema: String,
    /// Lines of the `schemata` file.
    pub schemata: Vec<String>,
    /// Whether to create a monitoring group.
    pub enable_monitoring: bool,
    /// Whether to monitor the cache (before 1.1.0).
    #[serde(rename = "enableCMT")]
    pub enable_cmt: bool,
    /// Whether to monitor the memory bandwidth (before 1.1.0).
    #[serde(rename = "enableMBM")]
    pub enable_mbm: bool,
}
