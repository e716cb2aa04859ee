//! `base_runtime_spec`: a JSON file that containerd uses in place of its default specification. Distributions of
//! Kubernetes use it for resource limits (Amazon's images, kind).

use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value as Json};
use toml::Value;

use crate::{
    Finding, Outcome,
    key::dotted,
    source::{Setting, text_of},
};

/// Directories that every specification mounts.
const MOUNTS: [&str; 9] =
    ["/proc", "/dev", "/dev/pts", "/dev/shm", "/dev/mqueue", "/sys", "/sys/fs/cgroup", "/run", "/etc/resolv.conf"];
const UNSERVED: &str =
    "not taken from the file: Pinion has its own; pods request them, or CDI devices and NRI plugins add them";

/// The parts of a specification that are considered.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Spec {
    process: Process,
    mounts: Vec<Mount>,
    hooks: Map<String, Json>,
    linux: Linux,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Process {
    rlimits: Vec<Rlimit>,
    env: Vec<String>,
    capabilities: Capabilities,
}

#[derive(Debug, Deserialize)]
struct Rlimit {
    #[serde(rename = "type")]
    kind: String,
    soft: u64,
    hard: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Capabilities {
    bounding: Option<Vec<String>>,
}

#[derive(Debug, Deserialize)]
struct Mount {
    destination: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Linux {
    sysctl: Map<String, Json>,
    seccomp: Option<Json>,
    devices: Vec<Json>,
}

/// Removes the settings of base specifications, and returns what becomes of them.
pub(super) fn take(settings: &mut Vec<Setting>) -> Vec<Finding> {
    let is_base = |setting: &Setting| {
        let path: Vec<&str> = setting.path.iter().map(String::as_str).collect();
        matches!(path.as_slice(), ["plugins", super::RUNTIME, "containerd", "runtimes", _, "base_runtime_spec"])
    };
    // Of several settings of one key, the last is used.
    let last = settings.extract_if(.., |setting| is_base(setting)).last();
    last.iter().flat_map(findings).collect()
}

fn findings(setting: &Setting) -> Vec<Finding> {
    let key = dotted(setting.written.as_ref().unwrap_or(&setting.path));
    let place = Some((setting.file.to_path_buf(), setting.line));
    let finding = |part: &str, outcome| {
        let key = if part.is_empty() { key.clone() } else { format!("{key} ({part})") };
        Finding { key, place: place.clone(), outcome }
    };
    let path = setting.value.as_str().unwrap_or_default();
    if path.is_empty() {
        return vec![finding("", Outcome::Same)];
    }
    match read(Path::new(path)) {
        Err(cause) => vec![finding("", Outcome::Unserved(format!("read {path}: {cause}")))],
        Ok(spec) => {
            let translated = spec.translated().into_iter().map(|(part, target, items)| {
                let target = vec!["containers".to_owned(), target.to_owned()];
                let value = Some(Value::Array(items.into_iter().map(Value::String).collect()));
                finding(part, Outcome::Translated { target, value })
            });
            let unserved = spec.unserved();
            let unserved = unserved.into_iter().map(|part| finding(&part, Outcome::Unserved(UNSERVED.to_owned())));
            translated.chain(unserved).collect()
        }
    }
}

fn read(path: &Path) -> Result<Spec, String> {
    let text = text_of(path).map_err(|error| error.to_string())?;
    serde_json::from_str(&text).map_err(|error| error.to_string())
}

impl Spec {
    /// Returns the parts that become lists: name of the part, name of the key, items.
    fn translated(&self) -> Vec<(&'static str, &'static str, Vec<String>)> {
        let Process { rlimits, env, capabilities } = &self.process;
        let limit = |limit: &Rlimit| {
            let number = |number: u64| if number == u64::MAX { "unlimited".to_owned() } else { number.to_string() };
            let kind = limit.kind.trim_start_matches("RLIMIT_").to_ascii_lowercase();
            format!("{kind}={}:{}", number(limit.soft), number(limit.hard))
        };
        // The image or the engine sets PATH.
        let env: Vec<String> = env.iter().filter(|variable| !variable.starts_with("PATH=")).cloned().collect();
        let mut parts = vec![("process.rlimits", "default_ulimits", rlimits.iter().map(limit).collect())];
        if !env.is_empty() {
            parts.push(("process.env", "default_env", env));
        }
        if let Some(bounding) = &capabilities.bounding {
            parts.push(("process.capabilities", "default_capabilities", bounding.clone()));
        }
        parts
    }

    /// Returns the parts that Pinion does not take from the file, as far as they differ from those of every specification.
    fn unserved(&self) -> Vec<String> {
        let is_set = [
            ("hooks", !self.hooks.is_empty()),
            ("linux.sysctl", !self.linux.sysctl.is_empty()),
            ("linux.seccomp", self.linux.seccomp.is_some()),
            ("linux.devices", !self.linux.devices.is_empty()),
        ];
        let parts = is_set.into_iter().filter(|(_, is_set)| *is_set).map(|(part, _)| part.to_owned());
        let mounts = self.mounts.iter().filter(|mount| !MOUNTS.contains(&mount.destination.as_str()));
        parts.chain(mounts.map(|mount| format!("mounts: {}", mount.destination))).collect()
    }
}
