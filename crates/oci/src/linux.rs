use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Resources, Seccomp};

/// `linux`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Linux {
    /// User ids of a new user namespace.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub uid_mappings: Vec<IdMapping>,
    /// Group ids of a new user namespace.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gid_mappings: Vec<IdMapping>,
    /// `net.ipv4.ip_forward` → `1`, in the container's namespaces.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub sysctl: BTreeMap<String, String>,
    /// Limits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
    /// Where in the cgroup trees.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroups_path: Option<String>,
    /// New or joined namespaces; what is not named is the runtime's.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<Namespace>,
    /// Device files beyond the default ones.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<Device>,
    /// System call filter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seccomp: Option<Seccomp>,
    /// `shared`, `slave`, `private`, `unbindable`, with `r` for all below.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rootfs_propagation: Option<String>,
    /// Paths hidden from the container.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub masked_paths: Vec<String>,
    /// Paths that are read-only inside.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub readonly_paths: Vec<String>,
    /// SELinux label of mounts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mount_label: Option<String>,
    /// Execution domain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub personality: Option<Personality>,
    /// Offsets of the clocks of a new time namespace, by `boottime` and `monotonic`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub time_offsets: BTreeMap<String, TimeOffset>,
    /// Cache and memory bandwidth allocation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub intel_rdt: Option<IntelRdt>,
    /// set_mempolicy(2).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_policy: Option<MemoryPolicy>,
    /// Network devices of the runtime's namespace to move into the container's, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub net_devices: BTreeMap<String, NetDevice>,
}

/// One of `linux.timeOffsets`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TimeOffset {
    /// Seconds.
    pub secs: i64,
    /// Nanoseconds, less than a second.
    pub nanosecs: u32,
}

/// `linux.intelRdt`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IntelRdt {
    /// Name of the class of service; absent: the container's id.
    #[serde(rename = "closID", skip_serializing_if = "Option::is_none")]
    pub clos_id: Option<String>,
    /// Lines of the `schemata` file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub schemata: Vec<String>,
    /// Line of the L3 cache.
    #[serde(rename = "l3CacheSchema", skip_serializing_if = "Option::is_none")]
    pub l3_cache_schema: Option<String>,
    /// Line of the memory bandwidth.
    #[serde(rename = "memBwSchema", skip_serializing_if = "Option::is_none")]
    pub mem_bw_schema: Option<String>,
    /// Whether a monitoring group is made.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub enable_monitoring: bool,
    /// Before 1.3: monitoring of the cache.
    #[serde(rename = "enableCMT", skip_serializing_if = "std::ops::Not::not")]
    pub enable_cmt: bool,
    /// Before 1.3: monitoring of the bandwidth.
    #[serde(rename = "enableMBM", skip_serializing_if = "std::ops::Not::not")]
    pub enable_mbm: bool,
}

/// `linux.memoryPolicy`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemoryPolicy {
    /// `MPOL_BIND`, …
    pub mode: String,
    /// NUMA nodes, as `0-1,3`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub nodes: String,
    /// `MPOL_F_STATIC_NODES`, …
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub flags: Vec<String>,
}

/// One of `linux.netDevices`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NetDevice {
    /// Its name inside; absent: the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// Ids of a user namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IdMapping {
    /// First id inside.
    #[serde(rename = "containerID")]
    pub container_id: u32,
    /// First id outside.
    #[serde(rename = "hostID")]
    pub host_id: u32,
    /// How many.
    pub size: u32,
}

/// One of `linux.namespaces`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Namespace {
    /// Its kind.
    #[serde(rename = "type")]
    pub kind: NamespaceType,
    /// A namespace to join; absent: a new one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub path: Option<String>,
}

/// Kinds of namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum NamespaceType {
    Pid,
    Network,
    Ipc,
    Uts,
    Mount,
    User,
    Cgroup,
    Time,
}

/// A device file to make.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Device {
    /// Absolute path in the container.
    pub path: String,
    /// Its kind.
    #[serde(rename = "type")]
    pub kind: DeviceKind,
    /// Major number.
    #[serde(default)]
    pub major: i64,
    /// Minor number.
    #[serde(default)]
    pub minor: i64,
    /// Permissions; 0666 where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_mode: Option<u32>,
    /// Owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// Group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gid: Option<u32>,
}

/// Kinds of device file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DeviceKind {
    /// Character.
    #[serde(rename = "c", alias = "u")]
    Char,
    /// Block.
    #[serde(rename = "b")]
    Block,
    /// FIFO.
    #[serde(rename = "p")]
    Fifo,
}

/// `linux.personality`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Personality {
    /// `LINUX` or `LINUX32`.
    pub domain: String,
    /// None are defined yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flags: Vec<String>,
}
