use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// `linux.resources`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Resources {
    /// Device rules, which apply in this order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<DeviceRule>,
    /// Memory limits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    /// CPU limits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Cpu>,
    /// Limit of tasks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pids: Option<Pids>,
    /// Block I/O limits.
    #[serde(rename = "blockIO", skip_serializing_if = "Option::is_none")]
    pub block_io: Option<BlockIo>,
    /// Huge page limits, by page size.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hugepage_limits: Vec<HugepageLimit>,
    /// Network class and priorities (v1).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
    /// RDMA limits, by device.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub rdma: BTreeMap<String, Rdma>,
    /// Values of cgroup v2 files, by file name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub unified: BTreeMap<String, String>,
}

/// An entry of `resources.devices`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceRule {
    /// Whether the devices are allowed or denied.
    pub allow: bool,
    /// Type: `a`, `c` or `b`; if absent, all.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Major number; if absent, all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub major: Option<i64>,
    /// Minor number; if absent, all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub minor: Option<i64>,
    /// Access: a combination of `r`, `w` and `m`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access: Option<String>,
}

/// `resources.memory`, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Memory {
    /// Hard limit; -1 means no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<i64>,
    /// Soft limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reservation: Option<i64>,
    /// Limit of memory plus swap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub swap: Option<i64>,
    /// Limit of kernel memory (v1; removed from the kernel).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel: Option<i64>,
    /// Limit of TCP buffers (v1).
    #[serde(rename = "kernelTCP", skip_serializing_if = "Option::is_none")]
    pub kernel_tcp: Option<i64>,
    /// Swappiness, 0 to 100 (v1).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub swappiness: Option<u64>,
    /// Whether to disable the OOM killer (v1).
    #[serde(rename = "disableOOMKiller", skip_serializing_if = "Option::is_none")]
    pub disable_oom_killer: Option<bool>,
    /// Whether to use hierarchical accounting (v1; always on).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub use_hierarchy: Option<bool>,
    /// Whether to refuse an update below the current usage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub check_before_update: Option<bool>,
}

/// `resources.cpu`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Cpu {
    /// Relative weight, 2 to 262144.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shares: Option<u64>,
    /// CPU time per period, in µs; -1 means no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota: Option<i64>,
    /// Unused quota that may be accumulated, in µs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<u64>,
    /// Period, in µs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub period: Option<u64>,
    /// Real-time CPU time per period, in µs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub realtime_runtime: Option<i64>,
    /// Real-time period, in µs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub realtime_period: Option<u64>,
    /// CPUs, for example `0-3,7`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<String>,
    /// NUMA nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mems: Option<String>,
    /// 1 gives all tasks of the cgroup the SCHED_IDLE policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle: Option<i64>,
}

/// `resources.pids`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Pids {
    /// Limit of tasks; -1 means no limit. Since version 1.3 of the specification 0 is a limit, not the same as absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<i64>,
}

/// `resources.blockIO`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BlockIo {
    /// Weight, 10 to 1000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<u16>,
    /// Weight of the tasks of the cgroup relative to its child cgroups, 10 to 1000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leaf_weight: Option<u16>,
    /// Weights per device.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub weight_device: Vec<WeightDevice>,
    /// Limits of bytes read per second.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub throttle_read_bps_device: Vec<ThrottleDevice>,
    /// Limits of bytes written per second.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub throttle_write_bps_device: Vec<ThrottleDevice>,
    /// Limits of reads per second.
    #[serde(rename = "throttleReadIOPSDevice", skip_serializing_if = "Vec::is_empty")]
    pub throttle_read_iops_device: Vec<ThrottleDevice>,
    /// Limits of writes per second.
    #[serde(rename = "throttleWriteIOPSDevice", skip_serializing_if = "Vec::is_empty")]
    pub throttle_write_iops_device: Vec<ThrottleDevice>,
}

/// The weight of one block device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WeightDevice {
    /// Major number.
    pub major: i64,
    /// Minor number.
    pub minor: i64,
    /// Weight, 10 to 1000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<u16>,
    /// Weight of the tasks of the cgroup relative to its child cgroups, 10 to 1000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leaf_weight: Option<u16>,
}

/// A limit of one block device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ThrottleDevice {
    /// Major number.
    pub major: i64,
    /// Minor number.
    pub minor: i64,
    /// Bytes or operations per second.
    pub rate: u64,
}

/// The limit of one huge page size.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HugepageLimit {
    /// Page size: `2MB`, `1GB`.
    pub page_size: String,
    /// Limit in bytes.
    pub limit: u64,
}

/// `resources.network` (v1).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Network {
    /// Value of `net_cls.classid`.
    #[serde(rename = "classID", skip_serializing_if = "Option::is_none")]
    pub class_id: Option<u32>,
    /// Entries of `net_prio.ifpriomap`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub priorities: Vec<NetworkPriority>,
}

/// The priority of a network interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NetworkPriority {
    /// Name of the interface.
    pub name: String,
    /// Priority of its traffic.
    pub priority: u32,
}

/// An entry of `resources.rdma`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Rdma {
    /// Limit of handles; no limit if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hca_handles: Option<u32>,
    /// Limit of objects; no limit if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hca_objects: Option<u32>,
}
