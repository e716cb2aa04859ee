use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// `state.json`: what is known for good when a container was made. Where the kernel can be asked (does it run, is it
/// frozen), the kernel is asked.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Record {
    /// Of this file; another major version is refused.
    pub(crate) version: u32,
    pub(crate) oci_version: String,
    pub(crate) id: String,
    /// The container's init on the host.
    pub(crate) pid: i32,
    /// Field 22 of proc_pid_stat(5), so that a reused pid is not taken for it.
    pub(crate) start_time: u64,
    /// Absolute.
    pub(crate) bundle: String,
    /// Absolute path of the root on the host.
    pub(crate) rootfs: String,
    /// RFC 3339 with nanoseconds, UTC.
    pub(crate) created: String,
    /// User that made it.
    pub(crate) owner: u32,
    /// Path of its group in the trees (`cgroup::GroupPath`).
    pub(crate) cgroup: String,
    /// Its transient unit, where systemd made the group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) systemd_unit: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) annotations: BTreeMap<String, String>,
    /// What exec starts from.
    pub(crate) process: oci::Process,
    /// What update starts from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) resources: Option<oci::Resources>,
    /// What delete runs (`poststop`), and start (`poststart`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) hooks: Option<oci::Hooks>,
    /// `linux.intelRdt`, for what delete has to take away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) intel_rdt: Option<oci::IntelRdt>,
}
