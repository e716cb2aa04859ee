//! What [`crate::Engine::status`] reports beyond conditions, for `pinion info` and the verbose status of the CRI.

use std::path::PathBuf;

use crate::{Feature, HealthInfo};

/// Facts about the engine.
#[derive(Clone, Debug)]
pub struct EngineInfo {
    /// The network, for people.
    pub network: String,
    /// The state directory.
    pub state_dir: PathBuf,
    /// The data directory.
    pub data_dir: PathBuf,
    /// Results of the health checks.
    pub health: HealthInfo,
    /// The monitor that is connected, if one is.
    pub monitor: Option<MonitorInfo>,
    /// Whether pods can have user namespaces.
    pub user_namespaces: Feature,
    /// Whether containers are confined by AppArmor by default.
    pub apparmor: Feature,
}

/// A connected monitor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MonitorInfo {
    /// Its pid.
    pub pid: u32,
    /// Version of its program.
    pub version: String,
    /// Major and minor version of its contract.
    pub contract: (u32, u32),
}
