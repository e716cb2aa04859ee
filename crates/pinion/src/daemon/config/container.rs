//! Checks of the defaults of containers, and their conversion to the types of the engine.

use std::collections::BTreeMap;

use super::{
    Containers,
    layers::Value,
    value::{name, number},
};

/// Resources of setrlimit(2).
const RLIMITS: [&str; 16] = [
    "as",
    "core",
    "cpu",
    "data",
    "fsize",
    "locks",
    "memlock",
    "msgqueue",
    "nice",
    "nofile",
    "nproc",
    "rss",
    "rtprio",
    "rttime",
    "sigpending",
    "stack",
];
/// Beginnings of the names of sysctls that a namespace of a pod has.
const SYSCTLS: [&str; 5] = ["net.", "fs.mqueue.", "kernel.shm", "kernel.msg", "kernel.sem"];
/// Bounds of the limit of tasks: the kernel's largest pid.
const PIDS: std::ops::RangeInclusive<u64> = 0..=4_194_304;

/// Checks a resource limit, such as `nofile=1024:4096`, `core=0` or `memlock=unlimited`.
pub(super) fn ulimit(value: &Value) -> Result<String, String> {
    let text = name(value)?;
    match rlimit(&text) {
        Some(_) => Ok(text),
        None => Err(format!("{text:?} is not NAME=SOFT:HARD, such as nofile=1024:4096; {}", RLIMITS.join(", "))),
    }
}

/// Parses a resource limit: its kind, the soft and the hard limit.
fn rlimit(text: &str) -> Option<(String, u64, u64)> {
    let (name, limits) = text.split_once('=')?;
    let (soft, hard) = limits.split_once(':').unwrap_or((limits, limits));
    let limit = |text: &str| match text {
        "unlimited" | "-1" => Some(u64::MAX),
        text => text.parse().ok(),
    };
    let short = name.to_ascii_lowercase();
    let short = short.strip_prefix("rlimit_").unwrap_or(&short);
    let (soft, hard) = (limit(soft)?, limit(hard)?);
    (RLIMITS.contains(&short) && soft <= hard).then(|| (format!("RLIMIT_{}", short.to_ascii_uppercase()), soft, hard))
}

/// Checks a sysctl of a namespace of a pod, as `NAME=VALUE`.
pub(super) fn sysctl(value: &Value) -> Result<String, String> {
    let text = name(value)?;
    let key = text.split_once('=').map(|(key, _)| key.trim());
    let is_name = |key: &str| {
        SYSCTLS.iter().any(|start| key.starts_with(start))
            && !key.contains("..")
            && key.chars().all(|c| c.is_ascii_alphanumeric() || "._-*".contains(c))
    };
    match key.is_some_and(is_name) {
        true => Ok(text),
        false => Err(format!("{text:?} is not a sysctl of a pod as NAME=VALUE, such as net.core.somaxconn=1024")),
    }
}

/// Checks the name of a capability, with or without `CAP_`. Returns it with `CAP_`.
pub(super) fn capability(value: &Value) -> Result<String, String> {
    let text = name(value)?;
    let upper = text.to_ascii_uppercase();
    let full = if upper.starts_with("CAP_") { upper } else { format!("CAP_{upper}") };
    match pod::CAPABILITIES.contains(&full.as_str()) {
        true => Ok(full),
        false => Err(format!("{text:?} is not a capability; see capabilities(7)")),
    }
}

/// Checks an environment variable, as `NAME=VALUE`.
pub(super) fn variable(value: &Value) -> Result<String, String> {
    let text = name(value)?;
    match text.split_once('=').is_some_and(|(name, _)| !name.is_empty()) && !text.contains('\0') {
        true => Ok(text),
        false => Err(format!("{text:?} is not NAME=VALUE")),
    }
}

/// Checks a limit of tasks; 0 stands for no limit.
pub(super) fn pids(value: &Value) -> Result<i64, String> {
    number(value, PIDS).map(|limit| limit as i64)
}

impl Containers {
    /// Converts the defaults of containers to those of the engine.
    pub(crate) fn defaults(&self) -> pod::ContainerDefaults {
        let sysctl = |text: &String| text.split_once('=').map(|(k, v)| (k.trim().to_owned(), v.trim().to_owned()));
        let limits = self.default_ulimits.iter().filter_map(|text| rlimit(text));
        // The last limit of a resource is used.
        let limits: BTreeMap<_, _> = limits.map(|(kind, soft, hard)| (kind, (soft, hard))).collect();
        pod::ContainerDefaults {
            rlimits: limits.into_iter().map(|(kind, (soft, hard))| pod::Rlimit { kind, soft, hard }).collect(),
            sysctls: self.default_sysctls.iter().filter_map(sysctl).collect(),
            capabilities: self.default_capabilities.clone(),
            env: self.default_env.clone(),
            pids_limit: (self.pids_limit > 0).then_some(self.pids_limit),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::daemon::config::Config;

    #[test]
    fn defaults_of_containers_are_checked_and_converted() {
        let text = "[containers]\ndefault_ulimits = [\"nofile=1:2\", \"core=0\", \"RLIMIT_NOFILE=8:unlimited\"]\n\
                    default_sysctls = [\"net.core.somaxconn = 9\"]\ndefault_capabilities = [\"chown\", \"CAP_KILL\"]\n\
                    default_env = [\"TZ=UTC\"]\npids_limit = 100\n";
        let defaults = Config::parse("", text).expect("valid").containers.defaults();
        let limits: Vec<_> = defaults.rlimits.iter().map(|l| (l.kind.as_str(), l.soft, l.hard)).collect();
        assert_eq!(limits, [("RLIMIT_CORE", 0, 0), ("RLIMIT_NOFILE", 8, u64::MAX)]);
        assert_eq!(defaults.sysctls["net.core.somaxconn"], "9");
        assert_eq!(defaults.capabilities, ["CAP_CHOWN", "CAP_KILL"]);
        assert_eq!((defaults.env, defaults.pids_limit), (vec!["TZ=UTC".to_owned()], Some(100)));
        assert_eq!(Config::parse("", "").expect("valid").containers.defaults(), pod::ContainerDefaults::default());
        for wrong in [
            "default_ulimits = [\"nofile=2:1\"]",
            "default_ulimits = [\"files=1\"]",
            "default_sysctls = [\"kernel.panic=1\"]",
            "default_sysctls = [\"net.core.somaxconn\"]",
            "default_capabilities = [\"FLY\"]",
            "default_env = [\"=x\"]",
            "pids_limit = -1",
        ] {
            Config::parse("", &format!("[containers]\n{wrong}")).expect_err(wrong);
        }
    }
}
