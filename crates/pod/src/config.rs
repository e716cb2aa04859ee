use std::path::PathBuf;

use image::Registries;

/// What the engine works with: the daemon's configuration, already checked.
#[derive(Clone, Debug)]
pub struct Config {
    /// Volatile state (`/run/pinion`). A tmpfs is mounted there where it is none.
    pub state_dir: PathBuf,
    /// Durable state (`/var/lib/pinion`).
    pub data_dir: PathBuf,
    /// The `pinmon` program.
    pub monitor: PathBuf,
    /// Where pods' network namespaces are visible (`/run/netns`).
    pub netns_dir: PathBuf,
    /// cgroup above pods that name no parent (`/pinion`).
    pub default_cgroup_parent: String,
    /// Mirrors and plain-HTTP hosts.
    pub registries: Registries,
    /// Pod networks.
    pub network: network::Config,
    /// How many network namespaces are kept ready.
    pub netns_pool: usize,
    /// What an empty runtime handler means.
    pub default_runtime_handler: String,
    /// Directories of CDI files, the one with the highest priority last.
    pub cdi_dirs: Vec<PathBuf>,
    /// Whether device files of containers belong to the container's user, where that is not root.
    pub device_ownership_from_security_context: bool,
    /// Longest piece of a line of a container's log, bytes.
    pub log_line_max: u32,
    /// As many bytes of each stream of an `ExecSync` are kept; the rest is read and dropped.
    pub exec_sync_output_max: usize,
}
