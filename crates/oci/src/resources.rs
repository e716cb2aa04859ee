use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// `linux.resources`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Resources {
    /// Device allow list, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<DeviceRule>,
    /// Memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    /// CPU time and placement.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Cpu>,
    /// Number of tasks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pids: Option<Pids>,
    /// Block devices.
    #[serde(rename = "blockIO", skip_serializing_if = "Option::is_none")]
    pub block_io: Option<BlockIo>,
    /// Huge pages, by page size.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hugepage_limits: Vec<HugepageLimit>,
    /// Classes and priorities (v1).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
    /// Handles and objects, by RDMA device.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub rdma: BTreeMap<String, Rdma>,
    /// v2 files written as they are.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub unified: BTreeMap<String, String>,
}

/// One of `resources.devices`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceRule {
    /// Allow or deny.
    pub allow: bool,
    /// `a`, `c` or `b`; absent: all.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Absent: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub major: Option<i64>,
    /// Absent: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub minor: Option<i64>,
    /// Of `r`, `w`, `m`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access: Option<String>,
}

/// `resources.memory`, bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Memory {
    /// Hard limit; -1: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<i64>,
    /// Soft limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reservation: Option<i64>,
    /// Memory and swap together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub swap: Option<i64>,
    /// Kernel memory (v1, gone from the kernel).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel: Option<i64>,
    /// TCP buffers (v1).
    #[serde(rename = "kernelTCP", skip_serializing_if = "Option::is_none")]
    pub kernel_tcp: Option<i64>,
    /// 0 to 100 (v1).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub swappiness: Option<u64>,
    /// No OOM killer (v1).
    #[serde(rename = "disableOOMKiller", skip_serializing_if = "Option::is_none")]
    pub disable_oom_killer: Option<bool>,
    /// Hierarchical accounting (v1, always on).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub use_hierarchy: Option<bool>,
    /// Refuse an update below what is in use.
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
    /// Microseconds per period; -1: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota: Option<i64>,
    /// Microseconds that a quota may save up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<u64>,
    /// Microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub period: Option<u64>,
    /// Real-time microseconds per period.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub realtime_runtime: Option<i64>,
    /// Real-time period, microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub realtime_period: Option<u64>,
    /// `0-3,7`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<String>,
    /// NUMA nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mems: Option<String>,
    /// 1: SCHED_IDLE for the group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle: Option<i64>,
}

/// `resources.pids`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Pids {
    /// Number of tasks; -1: no limit. 0 is a limit since 1.3 of the specification, not the same as absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<i64>,
}

/// `resources.blockIO`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BlockIo {
    /// 10 to 1000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<u16>,
    /// The same for tasks beside child groups.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leaf_weight: Option<u16>,
    /// Weights per device.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub weight_device: Vec<WeightDevice>,
    /// Bytes per second.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub throttle_read_bps_device: Vec<ThrottleDevice>,
    /// Bytes per second.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub throttle_write_bps_device: Vec<ThrottleDevice>,
    /// Operations per second.
    #[serde(rename = "throttleReadIOPSDevice", skip_serializing_if = "Vec::is_empty")]
    pub throttle_read_iops_device: Vec<ThrottleDevice>,
    /// Operations per second.
    #[serde(rename = "throttleWriteIOPSDevice", skip_serializing_if = "Vec::is_empty")]
    pub throttle_write_iops_device: Vec<ThrottleDevice>,
}

/// Weight of one block device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WeightDevice {
    /// Major number.
    pub major: i64,
    /// Minor number.
    pub minor: i64,
    /// 10 to 1000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<u16>,
    /// The same for tasks beside child groups.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leaf_weight: Option<u16>,
}

/// Throttle of one block device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ThrottleDevice {
    /// Major number.
    pub major: i64,
    /// Minor number.
    pub minor: i64,
    /// Per second.
    pub rate: u64,
}

/// Limit of one size of huge page.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HugepageLimit {
    /// `2MB`, `1GB`.
    pub page_size: String,
    /// Bytes.
    pub limit: u64,
}

/// `resources.network` (v1).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Network {
    /// `net_cls.classid`.
    #[serde(rename = "classID", skip_serializing_if = "Option::is_none")]
    pub class_id: Option<u32>,
    /// `net_prio.ifpriomap`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub priorities: Vec<NetworkPriority>,
}

/// Priority of an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NetworkPriority {
    /// Interface.
    pub name: String,
    /// Priority.
    pub priority: u32,
}

/// One of `resources.rdma`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Rdma {
    /// Most handles; absent: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hca_handles: Option<u32>,
    /// Most objects; absent: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hca_objects: Option<u32>,
}
