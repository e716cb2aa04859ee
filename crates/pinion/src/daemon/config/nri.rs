//! The table `[nri]`.

use std::{path::PathBuf, time::Duration};

use serde::Serialize;

use super::{ConfigError, Reader, value};

/// The table `[nri]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Nri {
    pub(crate) enable: bool,
    pub(crate) socket_path: PathBuf,
    /// Whether only launched plugins are used.
    pub(crate) disable_connections: bool,
    pub(crate) plugin_path: PathBuf,
    pub(crate) plugin_config_path: PathBuf,
    #[serde(serialize_with = "value::write_duration")]
    pub(crate) plugin_registration_timeout: Duration,
    #[serde(serialize_with = "value::write_duration")]
    pub(crate) plugin_request_timeout: Duration,
    /// Plugins without which no container is created.
    pub(crate) required: Vec<String>,
    /// Annotation with which a pod tolerates the absence of required plugins; `None` if there is none.
    #[serde(serialize_with = "value::write_optional")]
    pub(crate) tolerate_missing_annotation: Option<String>,
    pub(crate) reject_hooks: bool,
    pub(crate) reject_default_seccomp: bool,
    pub(crate) reject_unconfined_seccomp: bool,
    pub(crate) reject_custom_seccomp: bool,
    pub(crate) reject_namespaces: bool,
    pub(crate) reject_sysctls: bool,
}

impl Nri {
    pub(super) fn read(from: &mut Reader) -> Result<Self, ConfigError> {
        Ok(Self {
            enable: from.value("nri.enable", value::boolean)?,
            socket_path: from.value("nri.socket_path", value::socket)?,
            disable_connections: from.value("nri.disable_connections", value::boolean)?,
            plugin_path: from.value("nri.plugin_path", value::absolute)?,
            plugin_config_path: from.value("nri.plugin_config_path", value::absolute)?,
            plugin_registration_timeout: from.value("nri.plugin_registration_timeout", value::duration)?,
            plugin_request_timeout: from.value("nri.plugin_request_timeout", value::duration)?,
            required: from.list("nri.required", value::name)?,
            tolerate_missing_annotation: from.optional("nri.tolerate_missing_annotation", value::name),
            reject_hooks: from.value("nri.reject_hooks", value::boolean)?,
            reject_default_seccomp: from.value("nri.reject_default_seccomp", value::boolean)?,
            reject_unconfined_seccomp: from.value("nri.reject_unconfined_seccomp", value::boolean)?,
            reject_custom_seccomp: from.value("nri.reject_custom_seccomp", value::boolean)?,
            reject_namespaces: from.value("nri.reject_namespaces", value::boolean)?,
            reject_sysctls: from.value("nri.reject_sysctls", value::boolean)?,
        })
    }
}
