//! The configuration of the daemon: a TOML file and its drop-ins, merged key by key and then checked.
//!
//! ```text
//! default.toml (embedded) ◀─ config.toml ◀─ config.d/*.toml by name      layers.rs: values with their file and line
//!                                  │
//!                                  ▼
//!                     typed values, or an error for each                 reader.rs, value.rs
//!                                  │
//!                                  ▼
//!                     checks of several keys together                    conflicts.rs
//! ```
//!
//! All errors are reported at once, each with file, line and key:
//! `/etc/pinion/config.d/10-net.toml:3: network.subnet: …`.

mod conflicts;
mod container;
pub(crate) mod handlers;
mod layers;
mod nri;
mod reader;
mod show;
mod value;

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, Serialize};

pub(crate) use layers::{Layers, directory_of};
pub(crate) use nri::Nri;
use reader::Reader;

/// The embedded default configuration, with a comment on every key. `pinion config default` prints it.
pub(crate) const DEFAULT: &str = include_str!("default.toml");
/// The configuration file that is read if none is specified. If it does not exist, the defaults are used.
pub(crate) const DEFAULT_FILE: &str = "/etc/pinion/config.toml";
/// The default path of the daemon's socket.
pub(crate) const DEFAULT_SOCKET: &str = "/run/pinion/pinion.sock";

/// A valid configuration.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Config {
    pub(crate) socket: PathBuf,
    pub(crate) state_dir: PathBuf,
    pub(crate) data_dir: PathBuf,
    pub(crate) netns_dir: PathBuf,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) namespaces_dir: Option<PathBuf>,
    pub(crate) cgroup_parent: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) monitor: Option<PathBuf>,
    pub(crate) cgroup: Cgroup,
    pub(crate) log: Log,
    pub(crate) network: Network,
    pub(crate) containers: Containers,
    pub(crate) images: Images,
    pub(crate) streaming: Streaming,
    pub(crate) metrics: Metrics,
    pub(crate) cadvisor: Cadvisor,
    pub(crate) tracing: Tracing,
    pub(crate) cdi: Cdi,
    pub(crate) nri: Nri,
    pub(crate) upgrade: Upgrade,
    pub(crate) registries: Registries,
    pub(crate) handlers: BTreeMap<String, handlers::Handler>,
}

/// The table `[cgroup]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Cgroup {
    pub(crate) driver: CgroupDriver,
}

/// What manages the cgroups of pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum CgroupDriver {
    /// systemd where it is running and cgroup v2 alone is in use, else Pinion.
    Auto,
    /// Pinion.
    Cgroupfs,
    /// systemd.
    Systemd,
}

/// The table `[log]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Log {
    pub(crate) level: String,
    pub(crate) format: LogFormat,
}

/// The format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    /// For people.
    Human,
    /// One JSON object per line, for log collectors.
    Json,
}

/// The table `[network]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Network {
    pub(crate) cni_conf_dir: PathBuf,
    pub(crate) cni_bin_dirs: Vec<PathBuf>,
    pub(crate) bridge: String,
    pub(crate) subnet: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) subnet6: Option<String>,
    pub(crate) selectable: Vec<String>,
    pub(crate) address_pools: Vec<String>,
    pub(crate) pool: usize,
    pub(crate) overlay: Overlay,
}

/// The table `[network.overlay]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Overlay {
    pub(crate) endpoints: Vec<String>,
    pub(crate) prefix: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ca_file: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cert_file: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key_file: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) username: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) password_file: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) node: Option<IpAddr>,
    pub(crate) address_pools: Vec<String>,
}

/// The table `[containers]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Containers {
    /// Maximum length of an entry in a container log, in bytes.
    pub(crate) log_line_max: u32,
    /// Maximum size of a container log in bytes, at which it is replaced by an empty one; 0: unlimited.
    pub(crate) log_size_max: u64,
    /// Maximum bytes that ExecSync returns of each of the two outputs of a command.
    pub(crate) exec_sync_output_max: usize,
    /// Whether devices are owned by the user of the container's security context instead of their host owner.
    pub(crate) device_ownership_from_security_context: bool,
    /// Resource limits, as `nofile=1024:4096`.
    pub(crate) default_ulimits: Vec<String>,
    /// Sysctls of the namespaces of pods, as `NAME=VALUE`.
    pub(crate) default_sysctls: Vec<String>,
    /// Capabilities of containers that are not privileged.
    pub(crate) default_capabilities: Vec<String>,
    /// Environment variables, as `NAME=VALUE`.
    pub(crate) default_env: Vec<String>,
    /// Maximum number of tasks of a container; 0: unlimited.
    pub(crate) pids_limit: i64,
}

/// The table `[images]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Images {
    /// Patterns of names of images that the kubelet never removes.
    pub(crate) pinned: Vec<String>,
}

/// The table `[streaming]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Streaming {
    /// A loopback address; port 0 selects a free port.
    pub(crate) address: SocketAddr,
    /// A session without traffic for this long is closed.
    #[serde(serialize_with = "value::write_duration")]
    pub(crate) idle_timeout: Duration,
}

/// The table `[metrics]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Metrics {
    /// The address for Prometheus; `None` if disabled.
    #[serde(serialize_with = "value::write_optional")]
    pub(crate) address: Option<SocketAddr>,
}

/// The table `[cadvisor]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Cadvisor {
    /// The socket for the kubelet's cAdvisor; `None` if disabled.
    #[serde(serialize_with = "value::write_optional")]
    pub(crate) socket: Option<PathBuf>,
}

/// The table `[tracing]`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Tracing {
    /// URL of an OTLP collector (gRPC without TLS); `None` if disabled.
    #[serde(serialize_with = "value::write_optional")]
    pub(crate) endpoint: Option<String>,
    /// The fraction of all requests that is traced, 0 to 1.
    pub(crate) sample_ratio: f64,
    /// `service.name` of the traces.
    pub(crate) service_name: String,
}

/// The table `[cdi]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Cdi {
    /// Directories of CDI specifications; a later one overrides an earlier one.
    pub(crate) dirs: Vec<PathBuf>,
}

/// The table `[upgrade]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Upgrade {
    pub(crate) monitor: MonitorUpgrade,
    /// How long running requests may take to complete when the daemon is stopped or replaced.
    #[serde(serialize_with = "value::write_duration")]
    pub(crate) grace: Duration,
}

/// When the monitor is upgraded to the installed program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum MonitorUpgrade {
    /// When a daemon starts and the installed program differs from the running one.
    Auto,
    /// Only on `pinion upgrade`.
    Manual,
}

/// The table `[registries]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Registries {
    pub(crate) default_registry: String,
    pub(crate) plain_http: Vec<String>,
    pub(crate) max_layer_bytes: u64,
    pub(crate) min_bytes_per_second: u64,
    /// Directory in containerd's `certs.d` layout: `<dir>/<host>/hosts.toml`.
    pub(crate) config_dir: PathBuf,
    /// Path of a `config.json` with `auths`, as Docker's; `None` if unset.
    #[serde(serialize_with = "value::write_optional")]
    pub(crate) auth_file: Option<PathBuf>,
    pub(crate) mirrors: BTreeMap<String, Vec<String>>,
}

/// The errors of a configuration, one per line:
/// `/etc/pinion/config.toml:12: network.subnet: "10.300.0.0/16" is not a subnet`.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct ConfigError(String);

impl Config {
    /// Reads a file, or the default one if it exists, and its drop-ins, and merges them with the defaults.
    pub(crate) fn load(file: Option<&Path>) -> Result<Self, ConfigError> {
        Self::of(Layers::load(file)?)
    }

    /// Checks a text; error messages use `name` as its file name.
    pub(crate) fn parse(name: &str, text: &str) -> Result<Self, ConfigError> {
        Self::of(Layers::of_text(name, text)?)
    }

    /// Checks the merged values and converts them.
    pub(crate) fn of(layers: Layers) -> Result<Self, ConfigError> {
        let mut from = Reader::new(layers);
        let config = Self {
            socket: from.value("socket", value::socket)?,
            state_dir: from.value("state_dir", value::absolute)?,
            data_dir: from.value("data_dir", value::absolute)?,
            netns_dir: from.value("netns_dir", value::absolute)?,
            namespaces_dir: from.optional("namespaces_dir", value::absolute),
            cgroup_parent: from.value("cgroup_parent", value::group)?,
            monitor: from.optional("monitor", value::absolute),
            cgroup: Cgroup::read(&mut from)?,
            log: Log::read(&mut from)?,
            network: Network::read(&mut from)?,
            containers: Containers::read(&mut from)?,
            images: Images { pinned: from.list("images.pinned", value::name)? },
            streaming: Streaming::read(&mut from)?,
            metrics: Metrics { address: from.optional("metrics.address", value::address) },
            cadvisor: Cadvisor { socket: from.optional("cadvisor.socket", value::socket) },
            tracing: Tracing::read(&mut from)?,
            cdi: Cdi { dirs: from.list("cdi.dirs", value::absolute)? },
            nri: Nri::read(&mut from)?,
            upgrade: Upgrade::read(&mut from)?,
            registries: Registries::read(&mut from)?,
            handlers: handlers::read(&mut from),
        };
        if from.has_all_files() {
            conflicts::check(&config, &mut from);
        }
        from.finish()?;
        Ok(config)
    }
}

impl Cgroup {
    fn read(from: &mut Reader) -> Result<Self, ConfigError> {
        let drivers =
            [("auto", CgroupDriver::Auto), ("cgroupfs", CgroupDriver::Cgroupfs), ("systemd", CgroupDriver::Systemd)];
        Ok(Self { driver: from.value("cgroup.driver", |v| value::one_of(v, &drivers))? })
    }
}

impl Log {
    fn read(from: &mut Reader) -> Result<Self, ConfigError> {
        let formats = [("human", LogFormat::Human), ("json", LogFormat::Json)];
        Ok(Self {
            level: from.value("log.level", value::level)?,
            format: from.value("log.format", |v| value::one_of(v, &formats))?,
        })
    }
}

impl Network {
    fn read(from: &mut Reader) -> Result<Self, ConfigError> {
        Ok(Self {
            cni_conf_dir: from.value("network.cni_conf_dir", value::absolute)?,
            cni_bin_dirs: from.list("network.cni_bin_dirs", value::absolute)?,
            bridge: from.value("network.bridge", value::interface)?,
            subnet: from.value("network.subnet", |v| value::subnet(v, false))?,
            subnet6: from.optional("network.subnet6", |v| value::subnet(v, true)),
            selectable: from.list("network.selectable", value::network_name)?,
            address_pools: from.list("network.address_pools", value::address_pool)?,
            pool: from.value("network.pool", value::pool)?,
            overlay: Overlay::read(from)?,
        })
    }
}

impl Overlay {
    fn read(from: &mut Reader) -> Result<Self, ConfigError> {
        Ok(Self {
            endpoints: from.list("network.overlay.endpoints", value::url)?,
            prefix: from.value("network.overlay.prefix", value::key_prefix)?,
            ca_file: from.optional("network.overlay.ca_file", value::absolute),
            cert_file: from.optional("network.overlay.cert_file", value::absolute),
            key_file: from.optional("network.overlay.key_file", value::absolute),
            username: from.optional("network.overlay.username", value::name),
            password_file: from.optional("network.overlay.password_file", value::absolute),
            node: from.optional("network.overlay.node", value::ip),
            address_pools: from.list("network.overlay.address_pools", value::address_pool)?,
        })
    }
}

impl Containers {
    fn read(from: &mut Reader) -> Result<Self, ConfigError> {
        Ok(Self {
            log_line_max: from.value("containers.log_line_max", value::log_line)?,
            log_size_max: from.value("containers.log_size_max", value::log_size)?,
            exec_sync_output_max: from.value("containers.exec_sync_output_max", value::exec_output)?,
            device_ownership_from_security_context: from
                .value("containers.device_ownership_from_security_context", value::boolean)?,
            default_ulimits: from.list("containers.default_ulimits", container::ulimit)?,
            default_sysctls: from.list("containers.default_sysctls", container::sysctl)?,
            default_capabilities: from.list("containers.default_capabilities", container::capability)?,
            default_env: from.list("containers.default_env", container::variable)?,
            pids_limit: from.value("containers.pids_limit", container::pids)?,
        })
    }
}

impl Streaming {
    fn read(from: &mut Reader) -> Result<Self, ConfigError> {
        Ok(Self {
            address: from.value("streaming.address", value::loopback)?,
            idle_timeout: from.value("streaming.idle_timeout", value::duration)?,
        })
    }
}

impl Tracing {
    fn read(from: &mut Reader) -> Result<Self, ConfigError> {
        Ok(Self {
            endpoint: from.optional("tracing.endpoint", value::collector),
            sample_ratio: from.value("tracing.sample_ratio", value::ratio)?,
            service_name: from.value("tracing.service_name", value::name)?,
        })
    }
}

impl Upgrade {
    fn read(from: &mut Reader) -> Result<Self, ConfigError> {
        let policies = [("auto", MonitorUpgrade::Auto), ("manual", MonitorUpgrade::Manual)];
        Ok(Self {
            monitor: from.value("upgrade.monitor", |v| value::one_of(v, &policies))?,
            grace: from.value("upgrade.grace", value::duration)?,
        })
    }
}

impl Registries {
    fn read(from: &mut Reader) -> Result<Self, ConfigError> {
        Ok(Self {
            default_registry: from.value("registries.default_registry", value::host)?,
            plain_http: from.list("registries.plain_http", value::host)?,
            max_layer_bytes: from.value("registries.max_layer_bytes", value::positive)?,
            min_bytes_per_second: from.value("registries.min_bytes_per_second", value::positive)?,
            config_dir: from.value("registries.config_dir", value::absolute)?,
            auth_file: from.optional("registries.auth_file", value::absolute),
            mirrors: from.lists_under("registries.mirrors", value::url),
        })
    }
}

#[cfg(test)]
mod tests;
