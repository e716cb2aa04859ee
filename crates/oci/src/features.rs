//! What a runtime implements: the output of its command `features` (`features.md` of the runtime specification).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Features of a runtime. A property that the runtime does not report is `None` or empty: it is not known then.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Features {
    /// Oldest version of the specification that it accepts.
    pub oci_version_min: String,
    /// Newest version of the specification that it accepts.
    pub oci_version_max: String,
    /// Options of mounts that it knows, such as `rro`.
    #[serde(default)]
    pub mount_options: Vec<String>,
    /// Features for Linux.
    #[serde(default)]
    pub linux: Option<LinuxFeatures>,
    /// Versions and properties that the specification does not name.
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
}

/// Features of a runtime for Linux.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LinuxFeatures {
    /// Types of namespaces that it creates and joins.
    #[serde(default)]
    pub namespaces: Vec<String>,
    /// Cgroups that it manages.
    #[serde(default)]
    pub cgroup: Option<CgroupFeatures>,
    /// Seccomp filters.
    #[serde(default)]
    pub seccomp: Option<FeatureSwitch>,
    /// AppArmor profiles.
    #[serde(default)]
    pub apparmor: Option<FeatureSwitch>,
    /// SELinux labels.
    #[serde(default)]
    pub selinux: Option<FeatureSwitch>,
    /// Extensions of mounts.
    #[serde(default)]
    pub mount_extensions: Option<MountExtensions>,
}

/// Whether a runtime was built with a feature.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FeatureSwitch {
    /// `None`: the runtime does not report it.
    #[serde(default)]
    pub enabled: Option<bool>,
}

/// Cgroups that a runtime manages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CgroupFeatures {
    /// Version 1.
    #[serde(default)]
    pub v1: Option<bool>,
    /// Version 2.
    #[serde(default)]
    pub v2: Option<bool>,
    /// Through systemd.
    #[serde(default)]
    pub systemd: Option<bool>,
}

/// Extensions of mounts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountExtensions {
    /// Id-mapped mounts.
    #[serde(default)]
    pub idmap: Option<FeatureSwitch>,
}

impl FeatureSwitch {
    /// Whether the runtime reports that it has the feature.
    pub fn is_enabled(&self) -> bool {
        self.enabled == Some(true)
    }
}
