//! The daemon's network configuration.

use std::{net::IpAddr, path::PathBuf};

/// The `[network]` section of the daemon's configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// Directory of CNI configurations (`/etc/cni/net.d`). If it is empty, the built-in bridge is used.
    pub cni_conf_dir: PathBuf,
    /// Directories of plugin programs, searched in this order.
    pub cni_bin_dirs: Vec<PathBuf>,
    /// Directory on tmpfs for attachments and leases. Only one daemon may use it at a time.
    pub state_dir: PathBuf,
    /// Name of the built-in network's bridge: `pinion0`.
    pub bridge: String,
    /// IPv4 subnet of the built-in network: `10.85.0.0/16`.
    pub subnet: String,
    /// IPv6 subnet of the built-in network, if any.
    pub subnet6: Option<String>,
    /// Names of networks that pods may select, and of which they may request addresses; `*` is every network of
    /// `cni_conf_dir`. If it is empty, the annotation that selects networks has no effect.
    pub selectable: Vec<String>,
    /// Directory of the definitions of named networks. It is kept over a reboot, and need not exist.
    pub definitions_dir: PathBuf,
    /// Pools that subnets of named networks are chosen from, as `172.18.0.0/15:16`: a base, and the prefix length of the
    /// subnets.
    pub address_pools: Vec<String>,
    /// Where overlays that people create are kept; `None` if they cannot be created.
    pub overlay: Option<OverlayConfig>,
}

/// The etcd cluster that the nodes of overlays share, as in the plugin type `overlay`.
#[derive(Clone, Debug, Default)]
pub struct OverlayConfig {
    /// Base addresses of members, such as `https://192.0.2.9:2379`.
    pub endpoints: Vec<String>,
    /// Prefix of keys.
    pub prefix: String,
    /// File with certificates of authorities in PEM; `None` for those of the system.
    pub ca_file: Option<PathBuf>,
    /// File with a client certificate in PEM.
    pub cert_file: Option<PathBuf>,
    /// File with its key in PEM.
    pub key_file: Option<PathBuf>,
    /// User.
    pub username: Option<String>,
    /// File with the password.
    pub password_file: Option<PathBuf>,
    /// Address of this node; `None` for the source address of the default route.
    pub node: Option<IpAddr>,
    /// Pools that subnets of overlays are chosen from.
    pub address_pools: Vec<String>,
}
