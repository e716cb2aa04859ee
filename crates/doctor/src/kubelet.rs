//! The kubelet of a node: its command line, from the running process or its unit, and its configuration files.
//!
//! ```text
//! --config FILE ◀─ --config-dir DIRECTORY/*.conf by name ◀─ flags     the last value of a setting is used
//! ```

mod files;
mod flags;

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::{Host, processes::Process, program, systemd::Unit};
use flags::Flags;

/// The file that kubeadm writes, used if neither a flag nor the caller names another one.
const DEFAULT_FILE: &str = "/var/lib/kubelet/config.yaml";
/// The runtime that a kubelet without the setting uses.
const DEFAULT_ENDPOINT: &str = "unix:///run/containerd/containerd.sock";
/// The unit of the packages.
const UNIT: &str = "kubelet.service";

/// A kubelet, running or not.
#[derive(Clone, Debug, Default)]
pub struct Kubelet {
    /// The process id, if it is running.
    pub pid: Option<u32>,
    /// Major and minor version, if the program reported it.
    pub version: Option<(u32, u32)>,
    /// The configuration files that were read.
    pub files: Vec<PathBuf>,
    /// Why a file could not be read or parsed.
    pub errors: Vec<String>,
    pub(crate) unit: Option<Unit>,
    pub(crate) flags: Flags,
    config: Value,
}

impl Kubelet {
    /// Finds the kubelet of a node; `None` if there is neither a process, a unit nor a configuration file. `file`
    /// replaces the configuration file.
    pub(crate) fn find(host: &Host, processes: &[Process], file: Option<&Path>) -> Option<Self> {
        // Its program is run, and its command line is believed.
        let process = processes.iter().find(|process| process.name == "kubelet" && process.is_trusted(host));
        let unit = Unit::load(host, UNIT);
        let command = match (process, &unit) {
            (Some(process), _) => process.arguments.clone(),
            (None, Some(unit)) => unit.command(host),
            (None, None) => Vec::new(),
        };
        let flags = Flags::parse(command.get(1..).unwrap_or_default());
        let default = || host.exists(DEFAULT_FILE).then(|| PathBuf::from(DEFAULT_FILE));
        let main = file.map(Path::to_owned).or_else(|| flags.get("config").map(PathBuf::from)).or_else(default);
        if process.is_none() && unit.is_none() && main.is_none() {
            return None;
        }
        let mut kubelet =
            Self { pid: process.map(|process| process.pid), unit, version: version(host, process), ..Self::default() };
        kubelet.config = kubelet.load(host, main, flags.get("config-dir").map(PathBuf::from), file.is_some());
        kubelet.flags = flags;
        Some(kubelet)
    }

    fn load(&mut self, host: &Host, main: Option<PathBuf>, drop_ins: Option<PathBuf>, is_given: bool) -> Value {
        let mut config = Value::Null;
        let names = drop_ins.iter().flat_map(|directory| {
            let names = host.list(directory).into_iter().filter(|name| name.ends_with(".conf"));
            names.map(|name| directory.join(name)).collect::<Vec<_>>()
        });
        for (number, path) in main.iter().cloned().chain(names).enumerate() {
            // A file that the user names is not below the root of the host.
            let source = if number == 0 && is_given { Host::real() } else { host.clone() };
            match files::read(&source, &path) {
                Ok(value) => files::merge(&mut config, value),
                Err(error) => self.errors.push(format!("{}: {error}", path.display())),
            }
            self.files.push(path);
        }
        config
    }

    /// Returns a setting of the configuration files as text; `path` are the keys from the top.
    pub(crate) fn config(&self, path: &[&str]) -> Option<String> {
        let value = path.iter().try_fold(&self.config, |value, key| value.get(key))?;
        match value {
            Value::Null => None,
            Value::String(text) => Some(text.clone()),
            value => Some(value.to_string()),
        }
    }

    /// Returns a setting that is a flag or a key of the configuration; the flag has priority.
    pub(crate) fn setting(&self, flag: &str, key: &str) -> Option<String> {
        self.flags.get(flag).map(str::to_owned).or_else(|| self.config(&[key]))
    }

    /// Returns a boolean setting.
    pub(crate) fn boolean(&self, flag: &str, key: &str, default: bool) -> bool {
        self.setting(flag, key).map_or(default, |value| value == "true")
    }

    /// Returns whether a feature gate is set; `None` if it has its default.
    pub(crate) fn gate(&self, name: &str) -> Option<bool> {
        let flag = self.flags.get("feature-gates").and_then(|gates| {
            gates.split(',').filter_map(|gate| gate.split_once('=')).rfind(|(key, _)| *key == name).map(|(_, v)| v)
        });
        flag.map(str::to_owned).or_else(|| self.config(&["featureGates", name])).map(|value| value == "true")
    }

    /// Returns the socket of the runtime.
    #[must_use]
    pub fn endpoint(&self) -> String {
        let endpoint = self.setting("container-runtime-endpoint", "containerRuntimeEndpoint");
        endpoint.filter(|value| !value.is_empty()).unwrap_or_else(|| DEFAULT_ENDPOINT.to_owned())
    }

    /// Returns the path of the runtime's socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        let endpoint = self.endpoint();
        normalized(endpoint.strip_prefix("unix://").unwrap_or(&endpoint))
    }

    /// Whether the socket of the runtime is set by a flag.
    #[must_use]
    pub fn has_endpoint_flag(&self) -> bool {
        self.flags.get("container-runtime-endpoint").is_some()
    }

    /// Returns the directory, or the file, of static pods.
    #[must_use]
    pub fn static_pods(&self) -> Option<PathBuf> {
        self.setting("pod-manifest-path", "staticPodPath").filter(|path| !path.is_empty()).map(PathBuf::from)
    }

    /// Returns the file that [`Kubelet::endpoint`] should be changed in.
    #[must_use]
    pub fn file(&self) -> PathBuf {
        self.files.first().cloned().unwrap_or_else(|| PathBuf::from(DEFAULT_FILE))
    }

    /// Whether the version is at least this one; `None` if it is not known.
    pub(crate) fn is_at_least(&self, version: (u32, u32)) -> Option<bool> {
        self.version.map(|own| own >= version)
    }
}

/// Replaces `/var/run`, which is a link to `/run` everywhere.
pub(crate) fn normalized(path: &str) -> PathBuf {
    match path.strip_prefix("/var/run/") {
        Some(rest) => Path::new("/run").join(rest),
        None => PathBuf::from(path),
    }
}

fn version(host: &Host, process: Option<&Process>) -> Option<(u32, u32)> {
    let running = process.map(|process| PathBuf::from(format!("/proc/{}/exe", process.pid)));
    let program = running.or_else(|| host.program("kubelet"))?;
    parse_version(&program::output(host, &program, &["--version"])?)
}

/// Parses `Kubernetes v1.37.1`.
fn parse_version(text: &str) -> Option<(u32, u32)> {
    let version = text.split_whitespace().find_map(|word| word.strip_prefix('v'))?;
    let mut parts = version.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn flags_override_drop_ins_and_these_the_file() {
        let dir = tempfile::tempdir().expect("a directory");
        let host = Host::at(dir.path());
        let write = |path, text| host.write(path, text);
        write(
            DEFAULT_FILE,
            "kind: KubeletConfiguration\ncontainerRuntimeEndpoint: unix:///var/run/crio/crio.sock\nfailSwapOn: false\nfeatureGates:\n  A: true\n  B: false\n",
        );
        write("/etc/kubelet.d/20.conf", "featureGates: {B: true}\n");
        write("/etc/kubelet.d/30.conf", "featureGates: [\n");
        write(
            "/etc/systemd/system/kubelet.service",
            "[Service]\nExecStart=/usr/bin/kubelet --config-dir /etc/kubelet.d --feature-gates=A=false,C=true --fail-swap-on=true\n",
        );
        let kubelet = Kubelet::find(&host, &[], None).expect("a kubelet");
        assert_eq!(kubelet.socket(), Path::new("/run/crio/crio.sock"));
        assert_eq!(["A", "B", "C", "D"].map(|gate| kubelet.gate(gate)), [Some(false), Some(true), Some(true), None]);
        assert!(kubelet.boolean("fail-swap-on", "failSwapOn", true));
        assert!(
            kubelet.errors.len() == 1 && kubelet.errors[0].starts_with("/etc/kubelet.d/30.conf: "),
            "{:?}",
            kubelet.errors
        );
        assert_eq!(kubelet.files.len(), 3);
    }

    #[test]
    fn a_node_may_have_no_kubelet() {
        let dir = tempfile::tempdir().expect("a directory");
        assert!(Kubelet::find(&Host::at(dir.path()), &[], None).is_none());
        let file = dir.path().join("k.yaml");
        fs::write(&file, "cgroupDriver: systemd\n").expect("written");
        let kubelet = Kubelet::find(&Host::at("/nonexistent"), &[], Some(&file)).expect("its file is given");
        assert_eq!(kubelet.config(&["cgroupDriver"]).as_deref(), Some("systemd"));
        assert_eq!((kubelet.endpoint().as_str(), kubelet.file()), (DEFAULT_ENDPOINT, file));
    }

    #[test]
    fn versions_are_parsed() {
        assert_eq!(parse_version("Kubernetes v1.37.1\n"), Some((1, 37)));
        assert_eq!(parse_version("Kubernetes v1.38.0-rc.1"), Some((1, 38)));
        assert_eq!(parse_version("unknown"), None);
    }
}
