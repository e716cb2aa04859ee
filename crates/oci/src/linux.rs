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
    /// Sysctls of the container's namespaces, for example `net.ipv4.ip_forward` → `1`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub sysctl: BTreeMap<String, String>,
    /// Resource limits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
    /// Path in the cgroup hierarchies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroups_path: Option<String>,
    /// Namespaces to create or join; namespaces of other kinds are the runtime's.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<Namespace>,
    /// Device files in addition to the default ones.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<Device>,
    /// System call filter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seccomp: Option<Seccomp>,
    /// Propagation of the root: `shared`, `slave`, `private`, `unbindable`, recursive with the prefix `r`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rootfs_propagation: Option<String>,
    /// Paths hidden from the container.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub masked_paths: Vec<String>,
    /// Paths that are read-only in the container.
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
    /// Allocation of cache and memory bandwidth (resctrl).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub intel_rdt: Option<IntelRdt>,
    /// NUMA memory policy (set_mempolicy(2)).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_policy: Option<MemoryPolicy>,
    /// Network devices of the runtime's namespace to move into the container's, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub net_devices: BTreeMap<String, NetDevice>,
}

/// Directories through which a process can change itself and the kernel.
const PROCESS_FILES: [&str; 2] = ["/proc", "/sys"];

impl Linux {
    /// Masks `/proc` and `/sys` as a whole, for a program that may open every file of its container, but must not reach its
    /// own memory. What else is masked or read-only stays so.
    pub fn hide_process_files(&mut self) {
        let is_outside =
            |path: &String| !PROCESS_FILES.iter().any(|hidden| std::path::Path::new(path).starts_with(hidden));
        self.masked_paths.retain(is_outside);
        self.readonly_paths.retain(is_outside);
        self.masked_paths.extend(PROCESS_FILES.map(str::to_owned));
    }
}

/// An entry of `linux.timeOffsets`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TimeOffset {
    /// Offset in seconds.
    pub secs: i64,
    /// Additional nanoseconds, less than one second.
    pub nanosecs: u32,
}

/// `linux.intelRdt`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IntelRdt {
    /// Name of the class of service; if absent, the container id.
    #[serde(rename = "closID", skip_serializing_if = "Option::is_none")]
    pub clos_id: Option<String>,
    /// Lines of the `schemata` file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub schemata: Vec<String>,
    /// `schemata` line of the L3 cache.
    #[serde(rename = "l3CacheSchema", skip_serializing_if = "Option::is_none")]
    pub l3_cache_schema: Option<String>,
    /// `schemata` line of the memory bandwidth.
    #[serde(rename = "memBwSchema", skip_serializing_if = "Option::is_none")]
    pub mem_bw_schema: Option<String>,
    /// Whether to create a monitoring group.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub enable_monitoring: bool,
    /// Whether to monitor the cache (deprecated in 1.3).
    #[serde(rename = "enableCMT", skip_serializing_if = "std::ops::Not::not")]
    pub enable_cmt: bool,
    /// Whether to monitor the memory bandwidth (deprecated in 1.3).
    #[serde(rename = "enableMBM", skip_serializing_if = "std::ops::Not::not")]
    pub enable_mbm: bool,
}

/// `linux.memoryPolicy`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemoryPolicy {
    /// Policy: `MPOL_BIND`, …
    pub mode: String,
    /// NUMA nodes, for example `0-1,3`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub nodes: String,
    /// Flags: `MPOL_F_STATIC_NODES`, …
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub flags: Vec<String>,
}

/// An entry of `linux.netDevices`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NetDevice {
    /// Name in the container; if absent, the name on the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// A range of mapped ids of a user namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IdMapping {
    /// First id in the container.
    #[serde(rename = "containerID")]
    pub container_id: u32,
    /// First id on the host.
    #[serde(rename = "hostID")]
    pub host_id: u32,
    /// Number of ids.
    pub size: u32,
}

impl IdMapping {
    /// Returns the id on the host of an id in the container, if this range maps it.
    pub fn to_host(&self, id: u32) -> Option<u32> {
        let distance = id.checked_sub(self.container_id).filter(|distance| *distance < self.size)?;
        self.host_id.checked_add(distance)
    }
}

/// An entry of `linux.namespaces`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Namespace {
    /// Kind of the namespace.
    #[serde(rename = "type")]
    pub kind: NamespaceType,
    /// Path of a namespace to join; if absent, a new one is created.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub path: Option<String>,
}

/// A kind of namespace.
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

impl NamespaceType {
    /// Returns its name in the specification.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Pid => "pid",
            Self::Network => "network",
            Self::Ipc => "ipc",
            Self::Uts => "uts",
            Self::Mount => "mount",
            Self::User => "user",
            Self::Cgroup => "cgroup",
            Self::Time => "time",
        }
    }
}

/// A device file to create.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Device {
    /// Absolute path in the container.
    pub path: String,
    /// Kind of the device.
    #[serde(rename = "type")]
    pub kind: DeviceKind,
    /// Major number.
    #[serde(default)]
    pub major: i64,
    /// Minor number.
    #[serde(default)]
    pub minor: i64,
    /// Permissions; 0666 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_mode: Option<u32>,
    /// User id of the owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// Group id of the owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gid: Option<u32>,
}

/// A kind of device file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DeviceKind {
    /// A character device.
    #[serde(rename = "c", alias = "u")]
    Char,
    /// A block device.
    #[serde(rename = "b")]
    Block,
    /// A FIFO.
    #[serde(rename = "p")]
    Fifo,
}

/// `linux.personality`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Personality {
    /// `LINUX` or `LINUX32`.
    pub domain: String,
    /// Flags; the specification does not define any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flags: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_maps_the_ids_of_its_range_only() {
        let mapping = IdMapping { container_id: 10, host_id: 1000, size: 5 };
        assert_eq!([9, 10, 14, 15].map(|id| mapping.to_host(id)), [None, Some(1000), Some(1004), None]);
        let beyond = IdMapping { container_id: 0, host_id: u32::MAX, size: 2 };
        assert_eq!(beyond.to_host(1), None);
        let text = r#"{"containerID":10,"hostID":1000,"size":5}"#;
        assert_eq!(serde_json::to_string(&mapping).expect("JSON"), text);
    }
}
