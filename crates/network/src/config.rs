//! The daemon's network configuration.

use std::path::PathBuf;

/// `[network]` of the daemon's configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// Directory of CNI configurations (`/etc/cni/net.d`). None in it: the built-in bridge.
    pub cni_conf_dir: PathBuf,
    /// Directories of plugin programs, searched in order.
    pub cni_bin_dirs: Vec<PathBuf>,
    /// Directory on tmpfs for attachments and leases. It belongs to one daemon at a time.
    pub state_dir: PathBuf,
    /// The built-in network's bridge, `pinion0`.
    pub bridge: String,
    /// Its subnet, `10.85.0.0/16`.
    pub subnet: String,
    /// Its IPv6 subnet, if it has one.
    pub subnet6: Option<String>,
}
