//! A file's content, as it is written. Unknown fields are refused, as the specification asks: an edit that is not
//! understood must not be left out in silence.

use std::collections::BTreeMap;

use serde::Deserialize;

/// The whole file.
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
    /// In the container, absolute.
    pub path: String,
    /// On the node; empty: the same.
    pub host_path: String,
    /// `b`, `c`, `u` or `p`; empty: as it is on the node.
    #[serde(rename = "type")]
    pub kind: String,
    /// 0: as it is on the node.
    pub major: i64,
    /// See `major`.
    pub minor: i64,
    /// Absent: as it is on the node.
    pub file_mode: Option<u32>,
    /// Of `r`, `w`, `m`; empty: all three; `none`: none.
    pub permissions: String,
    /// Owner inside; absent: the container's user.
    pub uid: Option<u32>,
    /// Group inside; absent: the container's group.
    pub gid: Option<u32>,
}

/// A network interface of the node that the container gets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct NetDevice {
    /// On the node.
    pub host_interface_name: String,
    /// Inside.
    pub name: String,
}

/// A program to run at a point of the container's life.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Hook {
    /// `createRuntime`, …
    pub hook_name: String,
    /// Absolute, on the node.
    pub path: String,
    /// The first is its name.
    pub args: Vec<String>,
    /// `NAME=value`
    pub env: Vec<String>,
    /// Seconds.
    pub timeout: Option<i64>,
}

/// Something to mount.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Mount {
    /// On the node.
    pub host_path: String,
    /// In the container.
    pub container_path: String,
    /// As mount(8) has them.
    pub options: Vec<String>,
    /// File system; empty: a bind mount.
    #[serde(rename = "type")]
    pub kind: String,
}

/// Cache and memory bandwidth.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct IntelRdt {
    /// Name of the class of service.
    #[serde(rename = "closID")]
    pub clos_id: String,
    /// Line of the L3 cache.
    pub l3_cache_schema: String,
    /// Line of the memory bandwidth.
    pub mem_bw_schema: String,
    /// Lines of the `schemata` file.
    pub schemata: Vec<String>,
    /// Whether a monitoring group is made.
    pub enable_monitoring: bool,
    /// Before 1.1.0: monitoring of the cache.
    #[serde(rename = "enableCMT")]
    pub enable_cmt: bool,
    /// Before 1.1.0: monitoring of the bandwidth.
    #[serde(rename = "enableMBM")]
    pub enable_mbm: bool,
}
