//! What the caller knows about Pinion: its configuration, and the state of its daemon.

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
};

/// The part of Pinion's configuration that the checks need.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Socket of the daemon.
    pub socket: PathBuf,
    /// Directory for state that is discarded at boot.
    pub state_dir: PathBuf,
    /// Directory for images and writable layers.
    pub data_dir: PathBuf,
    /// Directory of CNI configurations.
    pub cni_conf_dir: PathBuf,
    /// Directories of CNI plugins.
    pub cni_bin_dirs: Vec<PathBuf>,
    /// Bridge of the built-in network.
    pub bridge: String,
    /// Subnets of the built-in network: address and length of the prefix.
    pub subnets: Vec<(IpAddr, u8)>,
    /// Addresses that the daemon listens on, and the key of each.
    pub listeners: Vec<(&'static str, SocketAddr)>,
    /// Socket for the kubelet's cAdvisor, if there is one.
    pub cadvisor_socket: Option<PathBuf>,
    /// The cgroup driver: of the running daemon, else as configured.
    pub cgroup_driver: CgroupDriver,
    /// Why the configuration files are invalid, if they are. The other fields have default values then.
    pub error: Option<String>,
    /// The monitor program, or why it was not found.
    pub monitor: Result<PathBuf, String>,
}

/// What manages the cgroups of pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupDriver {
    /// systemd where it is running and cgroup v2 alone is in use, else Pinion.
    Auto,
    /// Pinion.
    Cgroupfs,
    /// systemd.
    Systemd,
}

/// The daemon.
#[derive(Clone, Debug)]
pub enum DaemonState {
    /// It does not respond, for this reason.
    Unreachable(String),
    /// It responds.
    Running {
        /// Its version.
        version: String,
        /// The version of this program.
        expected: String,
        /// What it reports as not ready: pods cannot run.
        not_ready: Vec<String>,
    },
}
