//! The daemon's configuration: a TOML file, checked as a whole. What is wrong is named by file, line and key.

use std::{
    collections::BTreeMap,
    fs, io,
    net::IpAddr,
    path::{Component, Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use toml::Spanned;

/// The embedded defaults, with a comment on every key: what `pinion config default` prints.
pub(crate) const DEFAULT: &str = include_str!("default.toml");
/// Where a file is looked for when none is named; none there: the defaults hold.
pub(crate) const DEFAULT_FILE: &str = "/etc/pinion/config.toml";
/// Where the daemon answers when nothing else is said.
pub(crate) const DEFAULT_SOCKET: &str = "/run/pinion/pinion.sock";

/// Longest path of a Unix socket: `sun_path` without its NUL (unix(7)).
const SOCKET_PATH_MAX: usize = 107;
/// Most namespaces that may wait in the pool: each costs about 220 KiB of kernel memory.
const POOL_MAX: usize = 1024;
/// Longest name of an interface (IFNAMSIZ without its NUL).
const INTERFACE_MAX: usize = 15;

/// What was read, valid in form and in meaning.
#[derive(Clone, Debug, Serialize)]
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
    pub(crate) registries: Registries,
}

/// `[log]`.
#[derive(Clone, Debug, Serialize)]
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
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Network {
    pub(crate) cni_conf_dir: PathBuf,
    pub(crate) cni_bin_dirs: Vec<PathBuf>,
    pub(crate) bridge: String,
    pub(crate) subnet: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) subnet6: Option<String>,
    pub(crate) pool: usize,
}

/// `[registries]`.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Registries {
    pub(crate) default_registry: String,
    pub(crate) plain_http: Vec<String>,
    pub(crate) max_layer_bytes: u64,
    pub(crate) mirrors: BTreeMap<String, Vec<String>>,
}

/// Why a configuration does not hold: `/etc/pinion/config.toml:12: network.subnet: "10.300.0.0/16" is not a subnet`.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct ConfigError(String);

impl Config {
    /// Reads a file, or the default one where there is one, on top of the defaults.
    pub(crate) fn load(file: Option<&Path>) -> Result<Self, ConfigError> {
        let path = file.unwrap_or(Path::new(DEFAULT_FILE));
        match fs::read_to_string(path) {
            Ok(text) => Self::parse(&path.display().to_string(), &text),
            Err(error) if error.kind() == io::ErrorKind::NotFound && file.is_none() => Self::parse("", ""),
            Err(error) => Err(ConfigError(format!("read configuration {}: {error}", path.display()))),
        }
    }

    /// Checks a text; `name` stands for it in messages.
    pub(crate) fn parse(name: &str, text: &str) -> Result<Self, ConfigError> {
        let defaults: File = toml::from_str(DEFAULT).map_err(|e| ConfigError(format!("embedded defaults: {e}")))?;
        let source = Source { name, text };
        let file: File = toml::from_str(text).map_err(|error| source.syntax(&error))?;
        file.over(defaults, &source)
    }
}

/// The text as it is written; every value remembers where it stood.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct File {
    socket: Option<Spanned<PathBuf>>,
    state_dir: Option<Spanned<PathBuf>>,
    data_dir: Option<Spanned<PathBuf>>,
    netns_dir: Option<Spanned<PathBuf>>,
    cgroup_parent: Option<Spanned<String>>,
    monitor: Option<Spanned<PathBuf>>,
    log: LogTable,
    network: NetworkTable,
    registries: RegistriesTable,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct LogTable {
    level: Option<Spanned<String>>,
    format: Option<LogFormat>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct NetworkTable {
    cni_conf_dir: Option<Spanned<PathBuf>>,
    cni_bin_dirs: Option<Vec<Spanned<PathBuf>>>,
    bridge: Option<Spanned<String>>,
    subnet: Option<Spanned<String>>,
    subnet6: Option<Spanned<String>>,
    pool: Option<Spanned<usize>>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct RegistriesTable {
    default_registry: Option<Spanned<String>>,
    plain_http: Option<Vec<Spanned<String>>>,
    max_layer_bytes: Option<Spanned<u64>>,
    mirrors: Option<BTreeMap<String, Vec<Spanned<String>>>>,
}

/// Name and text of what is being checked, for messages.
struct Source<'a> {
    name: &'a str,
    text: &'a str,
}

impl Source<'_> {
    fn syntax(&self, error: &toml::de::Error) -> ConfigError {
        let at = error.span().map_or(0, |span| span.start);
        let message = error.message().trim_end().replace('\n', "; ");
        ConfigError(format!("{}:{}: {}{message}", self.name, self.line(at), self.key(at)))
    }

    /// `network.pool: ` where this byte stands behind a key of a table; the parser tells no key.
    fn key(&self, at: usize) -> String {
        let before = self.text.get(..at).unwrap_or("");
        let (above, line) = before.rsplit_once('\n').unwrap_or(("", before));
        let Some((key, _)) = line.split_once('=') else { return String::new() };
        let table = above.lines().rev().find_map(|line| line.trim().strip_prefix('[')?.strip_suffix(']'));
        table.map_or_else(String::new, |table| format!("{table}.")) + key.trim() + ": "
    }

    fn wrong<T>(&self, key: &str, value: &Spanned<T>, why: impl std::fmt::Display) -> ConfigError {
        ConfigError(format!("{}:{}: {key}: {why}", self.name, self.line(value.span().start)))
    }

    /// The line, from 1, in which this byte stands.
    fn line(&self, at: usize) -> usize {
        self.text.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count() + 1
    }

    /// The file's value if it is good, else the default.
    fn value<T, U>(
        &self,
        key: &str,
        value: Option<Spanned<T>>,
        default: Option<Spanned<T>>,
        check: impl Fn(&T) -> Result<U, String>,
    ) -> Result<U, ConfigError> {
        let value = value.or(default).ok_or_else(|| ConfigError(format!("{key}: has no default")))?;
        check(value.get_ref()).map_err(|why| self.wrong(key, &value, why))
    }
}

impl File {
    fn over(self, default: Self, source: &Source<'_>) -> Result<Config, ConfigError> {
        Ok(Config {
            socket: source.value("socket", self.socket, default.socket, socket)?,
            state_dir: source.value("state_dir", self.state_dir, default.state_dir, absolute)?,
            data_dir: source.value("data_dir", self.data_dir, default.data_dir, absolute)?,
            netns_dir: source.value("netns_dir", self.netns_dir, default.netns_dir, absolute)?,
            cgroup_parent: source.value("cgroup_parent", self.cgroup_parent, default.cgroup_parent, group)?,
            monitor: self.monitor.map(|path| source.value("monitor", Some(path), None, absolute)).transpose()?,
            log: self.log.over(default.log, source)?,
            network: self.network.over(default.network, source)?,
            registries: self.registries.over(default.registries, source)?,
        })
    }
}

impl LogTable {
    fn over(self, default: Self, source: &Source<'_>) -> Result<Log, ConfigError> {
        let format = self.format.or(default.format).unwrap_or(LogFormat::Human);
        Ok(Log { level: source.value("log.level", self.level, default.level, level)?, format })
    }
}

impl NetworkTable {
    fn over(self, default: Self, source: &Source<'_>) -> Result<Network, ConfigError> {
        let dirs = self.cni_bin_dirs.or(default.cni_bin_dirs).unwrap_or_default();
        let dir = |dir| source.value("network.cni_bin_dirs", Some(dir), None, absolute);
        let subnet6 = self.subnet6.map(|text| source.value("network.subnet6", Some(text), None, |t| subnet(t, true)));
        Ok(Network {
            cni_conf_dir: source.value("network.cni_conf_dir", self.cni_conf_dir, default.cni_conf_dir, absolute)?,
            cni_bin_dirs: dirs.into_iter().map(dir).collect::<Result<_, _>>()?,
            bridge: source.value("network.bridge", self.bridge, default.bridge, interface)?,
            subnet: source.value("network.subnet", self.subnet, default.subnet, |t| subnet(t, false))?,
            subnet6: subnet6.transpose()?,
            pool: source.value("network.pool", self.pool, default.pool, pool)?,
        })
    }
}

impl RegistriesTable {
    fn over(self, default: Self, source: &Source<'_>) -> Result<Registries, ConfigError> {
        let plain = self.plain_http.or(default.plain_http).unwrap_or_default();
        let plain = plain.into_iter().map(|text| source.value("registries.plain_http", Some(text), None, host));
        let most = (self.max_layer_bytes, default.max_layer_bytes);
        let mut mirrors = BTreeMap::new();
        for (name, urls) in self.mirrors.or(default.mirrors).unwrap_or_default() {
            let key = format!("registries.mirrors.{name:?}");
            let urls = urls.into_iter().map(|text| source.value(&key, Some(text), None, url));
            mirrors.insert(name, urls.collect::<Result<_, _>>()?);
        }
        let default_registry = (self.default_registry, default.default_registry);
        Ok(Registries {
            default_registry: source.value(
                "registries.default_registry",
                default_registry.0,
                default_registry.1,
                host,
            )?,
            plain_http: plain.collect::<Result<_, _>>()?,
            max_layer_bytes: source.value("registries.max_layer_bytes", most.0, most.1, positive)?,
            mirrors,
        })
    }
}

fn absolute(path: &PathBuf) -> Result<PathBuf, String> {
    match path.is_absolute() && !path.components().any(|c| c == Component::ParentDir) {
        true => Ok(path.clone()),
        false => Err(format!("{path:?} is not an absolute path without \"..\"")),
    }
}

fn socket(path: &PathBuf) -> Result<PathBuf, String> {
    match path.as_os_str().len() > SOCKET_PATH_MAX {
        true => Err(format!("{path:?} is longer than the {SOCKET_PATH_MAX} bytes of a Unix socket's path")),
        false => absolute(path),
    }
}

fn group(path: &String) -> Result<String, String> {
    absolute(&PathBuf::from(path)).map(|_| path.clone())
}

fn level(text: &String) -> Result<String, String> {
    match tracing_subscriber::EnvFilter::try_new(text) {
        Ok(_) => Ok(text.clone()),
        Err(error) => Err(format!("{text:?} is not a level (error, warn, info, debug, trace): {error}")),
    }
}

fn interface(name: &String) -> Result<String, String> {
    let good = !name.is_empty() && name.len() <= INTERFACE_MAX && name != "." && name != "..";
    match good && name.chars().all(|c| c.is_ascii_graphic() && c != '/' && c != ':') {
        true => Ok(name.clone()),
        false => Err(format!("{name:?} is not the name of an interface (1 to {INTERFACE_MAX} characters)")),
    }
}

fn subnet(text: &str, six: bool) -> Result<String, String> {
    let (kind, longest) = if six { ("IPv6", 126) } else { ("IPv4", 30) };
    let parts =
        text.split_once('/').and_then(|(ip, bits)| Some((ip.parse::<IpAddr>().ok()?, bits.parse::<u8>().ok()?)));
    match parts {
        Some((ip, bits)) if ip.is_ipv6() == six && (8..=longest).contains(&bits) => Ok(text.to_owned()),
        _ => Err(format!("{text:?} is not an {kind} subnet (address/bits, 8 to {longest} bits)")),
    }
}

fn pool(size: &usize) -> Result<usize, String> {
    match *size <= POOL_MAX {
        true => Ok(*size),
        false => Err(format!("{size} is more than {POOL_MAX}")),
    }
}

fn positive(value: &u64) -> Result<u64, String> {
    if *value > 0 { Ok(*value) } else { Err("must be more than 0".to_owned()) }
}

fn host(text: &String) -> Result<String, String> {
    match text.is_empty() || text.contains('/') || text.chars().any(char::is_whitespace) {
        true => Err(format!("{text:?} is not a host or host:port")),
        false => Ok(text.clone()),
    }
}

fn url(text: &String) -> Result<String, String> {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    match rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/') && !rest.chars().any(char::is_whitespace))
    {
        true => Ok(text.clone()),
        false => Err(format!("{text:?} is not a URL like https://mirror.example")),
    }
}

#[cfg(test)]
mod tests;
