use std::path::PathBuf;

use image::Registries;
use serde::{Deserialize, Serialize};

use crate::{ContainerDefaults, OciHandler, ShimHandler, VmHandler, WasmHandler};

/// What manages the cgroups of pods. The kubelet has to use the same driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CgroupDriver {
    /// The engine, in cgroups of its own.
    #[default]
    Cgroupfs,
    /// systemd: the cgroups of pods are slices, those of containers scopes.
    Systemd,
}

/// How the cgroups of containers are named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CgroupNames {
    /// After the id of the container.
    #[default]
    Plain,
    /// As CRI-O names them, for the kubelet's cAdvisor. A pod with a network namespace then has an empty cgroup, too,
    /// for which cAdvisor reports the metrics of the network.
    Crio,
}

/// Configuration of the engine: a part of the daemon's configuration, already validated.
#[derive(Clone, Debug)]
pub struct Config {
    /// Volatile state (`/run/pinion`). If it is not on a tmpfs, one is mounted there.
    pub state_dir: PathBuf,
    /// Durable state (`/var/lib/pinion`).
    pub data_dir: PathBuf,
    /// The `pinmon` program.
    pub monitor: PathBuf,
    /// Directory in which the network namespaces of pods are visible (`/run/netns`).
    pub netns_dir: PathBuf,
    /// Directory below which the IPC, UTS and user namespaces of pods are visible, in `ipcns`, `utsns` and `userns`; `None`:
    /// nowhere.
    pub namespaces_dir: Option<PathBuf>,
    /// Parent cgroup of pods that name none (`/pinion`), as a path, or as a slice: with systemd, `/a/b` is `a-b.slice`.
    pub default_cgroup_parent: String,
    /// The cgroup driver; `None`: systemd's if the node runs systemd and has cgroup v2 alone.
    pub cgroup_driver: Option<CgroupDriver>,
    /// Names of the cgroups of new pods.
    pub cgroup_names: CgroupNames,
    /// Registry mirrors, and hosts that are contacted over plain HTTP.
    pub registries: Registries,
    /// Configuration of the pod networks.
    pub network: network::Config,
    /// Number of network namespaces that are created in advance.
    pub netns_pool: usize,
    /// Runtime handler that the empty name stands for.
    pub default_runtime_handler: String,
    /// Other runtime handlers, each with a name of its own.
    pub handlers: Vec<OciHandler>,
    /// Runtime handlers that are containerd shims, each with a name of its own.
    pub shim_handlers: Vec<ShimHandler>,
    /// Runtime handlers whose pods are virtual machines, each with a name of its own.
    pub vm_handlers: Vec<VmHandler>,
    /// The runtime handler of WebAssembly modules; `None`: containers cannot be modules.
    pub wasm: Option<WasmHandler>,
    /// Directories of CDI files; the last one has the highest priority.
    pub cdi_dirs: Vec<PathBuf>,
    /// NRI plugins; absent: none are used, and the socket does not exist.
    pub plugins: Option<nri::Config>,
    /// What containers and pods get unless their request has something else.
    pub defaults: ContainerDefaults,
    /// Patterns of names of images that the kubelet never removes: a whole name, `prefix*` or `*part*`.
    pub pinned_images: Vec<String>,
    /// Whether device files are owned by the container's user if that is not root.
    pub device_ownership_from_security_context: bool,
    /// Length after which a line of container output is split in the log, in bytes.
    pub log_line_max: u32,
    /// Maximum size in bytes of a log, at which it is replaced by an empty one; `None`: unlimited.
    pub log_size_max: Option<u64>,
    /// Number of bytes kept of each output stream of an `ExecSync`; the rest is read and discarded.
    pub exec_sync_output_max: usize,
}

/// The part of [`Config`] that can be changed while the engine runs.
#[derive(Clone, Debug)]
pub struct ReloadableConfig {
    /// As in [`Config`].
    pub registries: Registries,
    /// As in [`Config`].
    pub netns_pool: usize,
    /// As in [`Config`].
    pub cdi_dirs: Vec<PathBuf>,
}
