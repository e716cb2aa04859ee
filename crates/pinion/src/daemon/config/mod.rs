//! The daemon's configuration: one TOML file and its drop-ins, merged key by key, then checked as a whole.
//!
//! ```text
//! default.toml (embedded) ◀─ config.toml ◀─ config.d/*.toml by name      layers.rs   each value knows its file and
//! line
//!                                  │
//!                                  ▼
//!                     typed values, or what is wrong with each           reader.rs, value.rs
//!                                  │
//!                                  ▼
//!                     what keys say together                             whole.rs
//! ```
//!
//! All that is wrong is told at once, each with file, line and key: `/etc/pinion/config.d/10-net.toml:3:
//! network.subnet: …`.

mod layers;
mod reader;
mod show;
mod value;
mod whole;

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, Serialize};

pub(crate) use layers::{Layers, directory_of};
use reader::Reader;

/// The embedded defaults, with a comment on every key: what `pinion config default` prints.
pub(crate) const DEFAULT: &str = include_str!("../default.toml");
/// Where a file is looked for when none is named; none there: the defaults hold.
pub(crate) const DEFAULT_FILE: &str = "/etc/pinion/config.toml";
/// Where the daemon answers when nothing else is said.
pub(crate) const DEFAULT_SOCKET: &str = "/run/pinion/pinion.sock";

/// What was read, valid in form and in meaning.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Config {
    pub(crate) socket: PathBuf,
    pub(crate) state_dir: PathBuf,
    pub(crate) data_dir: PathBuf,
    pub(crate) netns_dir: PathBuf,
    pub(crate) cgroup_parent: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) monitor: Option<PathBuf>,
    pub(crate) log: Log,
    pub(crate) network: Network,
    pub(crate) containers: Containers,
    pub(crate) streaming: Streaming,
    pub(crate) metrics: Metrics,
    pub(crate) tracing: Tracing,
    pub(crate) cdi: Cdi,
    pub(crate) upgrade: Upgrade,
    pub(crate) registries: Registries,
}

/// `[log]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Log {
    pub(crate) level: String,
    pub(crate) format: LogFormat,
}

/// How a line of the log looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    /// For eyes.
    Human,
    /// One object per line, for collectors.
    Json,
}

/// `[network]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Network {
    pub(crate) cni_conf_dir: PathBuf,
    pub(crate) cni_bin_dirs: Vec<PathBuf>,
    pub(crate) bridge: String,
    pub(crate) subnet: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) subnet6: Option<String>,
    pub(crate) pool: usize,
}

/// `[containers]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Containers {
    /// Longest piece of a line in a container's log, in bytes.
    pub(crate) log_line_max: u32,
    /// Most that ExecSync returns of each of a command's two outputs, in bytes.
    pub(crate) exec_sync_output_max: usize,
    /// Whether devices belong to the user that a container's security context names, not to the host's owner.
    pub(crate) device_ownership_from_security_context: bool,
}

/// `[streaming]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Streaming {
    /// A loopback address; port 0 takes a free one.
    pub(crate) address: SocketAddr,
    /// After so long without a byte a session ends.
    #[serde(serialize_with = "value::write_duration")]
    pub(crate) idle_timeout: Duration,
}

/// `[metrics]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Metrics {
    /// Where Prometheus may ask; `None`: nowhere.
    #[serde(serialize_with = "value::write_optional")]
    pub(crate) address: Option<SocketAddr>,
}

/// `[tracing]`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Tracing {
    /// URL of an OTLP collector (gRPC, no TLS); `None`: no traces.
    #[serde(serialize_with = "value::write_optional")]
    pub(crate) endpoint: Option<String>,
    /// Which part of all requests is traced, 0 to 1.
    pub(crate) sample_ratio: f64,
    /// `service.name` of the traces.
    pub(crate) service_name: String,
}

/// `[cdi]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Cdi {
    /// Directories of CDI specifications; a later one goes before an earlier one.
    pub(crate) dirs: Vec<PathBuf>,
}

/// `[upgrade]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Upgrade {
    pub(crate) monitor: MonitorUpgrade,
    /// How long requests that run may take once the daemon was told to end or to give way to a new one.
    #[serde(serialize_with = "value::write_duration")]
    pub(crate) grace: Duration,
}

/// When the monitor takes up the program that is installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum MonitorUpgrade {
    /// As soon as a daemon starts and finds that it differs from the one that runs.
    Auto,
    /// On `pinion upgrade` only.
    Manual,
}

/// `[registries]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Registries {
    pub(crate) default_registry: String,
    pub(crate) plain_http: Vec<String>,
    pub(crate) max_layer_bytes: u64,
    pub(crate) min_bytes_per_second: u64,
    /// containerd's `certs.d` layout: `<dir>/<host>/hosts.toml`.
    pub(crate) config_dir: PathBuf,
    /// Docker's `config.json` with `auths`; `None`: none.
    #[serde(serialize_with = "value::write_optional")]
    pub(crate) auth_file: Option<PathBuf>,
    pub(crate) mirrors: BTreeMap<String, Vec<String>>,
}

/// Why a configuration does not hold, one line for each thing that is wrong:
/// `/etc/pinion/config.toml:12: network.subnet: "10.300.0.0/16" is not a subnet`.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct ConfigError(String);

impl Config {
    /// Reads a file (or the default one where there is one) and its drop-ins, on top of the defaults.
    pub(crate) fn load(file: Option<&Path>) -> Result<Self, ConfigError> {
        Self::of(Layers::load(file)?)
    }

    /// Checks a text; `name` stands for it in messages.
    #[cfg(test)]
    pub(crate) fn parse(name: &str, text: &str) -> Result<Self, ConfigError> {
        Self::of(Layers::of_text(name, text)?)
    }

    /// Checks what was read.
    pub(crate) fn of(layers: Layers) -> Result<Self, ConfigError> {
        let mut from = Reader::new(layers);
        let config = Self {
            socket: from.value("socket", value::socket)?,
            state_dir: from.value("state_dir", value::absolute)?,
            data_dir: from.value("data_dir", value::absolute)?,
            netns_dir: from.value("netns_dir", value::absolute)?,
            cgroup_parent: from.value("cgroup_parent", value::group)?,
            monitor: from.optional("monitor", value::absolute),
            log: Log::read(&mut from)?,
            network: Network::read(&mut from)?,
            containers: Containers::read(&mut from)?,
            streaming: Streaming::read(&mut from)?,
            metrics: Metrics { address: from.optional("metrics.address", value::address) },
            tracing: Tracing::read(&mut from)?,
            cdi: Cdi { dirs: from.list("cdi.dirs", value::absolute)? },
            upgrade: Upgrade::read(&mut from)?,
            registries: Registries::read(&mut from)?,
        };
        if from.has_all_files() {
            whole::check(&config, &mut from);
        }
        from.finish()?;
        Ok(config)
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
            pool: from.value("network.pool", value::pool)?,
        })
    }
}

impl Containers {
    fn read(from: &mut Reader) -> Result<Self, ConfigError> {
        Ok(Self {
            log_line_max: from.value("containers.log_line_max", value::log_line)?,
            exec_sync_output_max: from.value("containers.exec_sync_output_max", value::exec_output)?,
            device_ownership_from_security_context: from
                .value("containers.device_ownership_from_security_context", value::boolean)?,
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
