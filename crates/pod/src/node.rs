//! What one machine offers to pods and containers: images, networks, cgroups, seccomp filters, devices, files.

pub(crate) mod cgroup_names;
mod cgroups;
mod file_server;
mod filters;
mod guest_size;
mod handlers;
mod host_files;
mod hypervisor;
mod mount_table;
mod namespace_pins;
mod pod_limits;
mod pulls;
mod units;
mod wasm;

use std::sync::Arc;

use cgroup::Hierarchies;
use oci::Rlimit;
use rustix::fd::OwnedFd;
use tokio::sync::OnceCell;

use crate::{CgroupDriver, Config, Error, ReloadableConfig};

pub(crate) use cgroups::driver;
pub(crate) use file_server::MIGRATION_MODE;
pub(crate) use filters::Filters;
pub(crate) use guest_size::{Bounds, Demand, Target};
pub(crate) use handlers::{Handler, Handlers, PATH, find_shim};
pub use handlers::{HandlerInfo, HandlerKind};
pub(crate) use host_files::HostFiles;
pub use hypervisor::PodOverhead;
pub(crate) use hypervisor::{Hypervisor, KVM};
pub(crate) use mount_table::MountTable;
pub(crate) use namespace_pins::{NamespacePins, PinnedKind};
pub(crate) use pod_limits::pod_limits;
pub(crate) use pulls::Pulls;
pub(crate) use units::{Registration, UnitOwner, Units};
pub(crate) use wasm::{Interpreter, Wasm};

/// The resources of this machine.
pub(crate) struct Node {
    pub(crate) config: Config,
    pub(crate) images: image::Store,
    pub(crate) pulls: Pulls,
    pub(crate) network: network::Network,
    pub(crate) pool: netns::Pool,
    pub(crate) pins: netns::PinDir,
    /// Pins of other namespaces, if they are configured.
    pub(crate) namespace_pins: Option<NamespacePins>,
    pub(crate) trees: Hierarchies,
    /// The cgroup driver for new pods.
    pub(crate) driver: CgroupDriver,
    /// What systemd has to know about cgroups.
    pub(crate) units: Units,
    pub(crate) filters: Filters,
    pub(crate) handlers: Arc<Handlers>,
    pub(crate) cdi: cdi::Registry,
    pub(crate) host_files: HostFiles,
    /// Whether pods can have user namespaces, and the reason if they cannot; empty until it is known.
    pub(crate) user_namespaces: OnceCell<Result<(), String>>,
    /// RLIMIT_NOFILE as it was when this process started.
    pub(crate) nofile: Rlimit,
    /// Lock on the state directory: while it is open no other daemon uses the directory.
    pub(crate) _state_lock: OwnedFd,
}

impl Node {
    /// Applies a new configuration. Operations in progress (such as a pull) continue with the old one.
    pub(crate) fn reconfigure(&self, config: ReloadableConfig) -> Result<(), Error> {
        self.images.reconfigure(config.registries)?;
        self.pool.resize(config.netns_pool);
        self.cdi.set_directories(config.cdi_dirs);
        Ok(())
    }
}
