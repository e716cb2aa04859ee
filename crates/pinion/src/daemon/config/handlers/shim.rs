//! Tables with `kind = "shim"`.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use serde::Serialize;

use super::{TABLE, TIMEOUT, timeout};
use crate::daemon::config::{Reader, container, layers::Value, value};

/// A containerd shim.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct ShimHandler {
    /// Its absolute path, or its name.
    pub(crate) binary: PathBuf,
    /// Its environment in addition to `PATH`, as `NAME=value`.
    pub(crate) environment: Vec<String>,
    /// Time limit of its start, and of one request.
    #[serde(serialize_with = "value::write_duration")]
    pub(crate) timeout: Duration,
    /// Annotations of pods and containers that it gets.
    pub(crate) allowed_annotations: Vec<String>,
    /// Whether the sandbox of a pod is a container of its own.
    pub(crate) sandbox_container: bool,
    /// Type of its options.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) options_type: Option<OptionsType>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) options: Option<pod::ShimOptions>,
}

/// Type of the options of a shim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum OptionsType {
    #[serde(rename = "containerd.runc.v1.Options")]
    Runc,
    #[serde(rename = "runtimeoptions.v1.Options")]
    Runtime,
}

/// Reads a table.
pub(super) fn read(from: &mut Reader, table: [&str; 2]) -> ShimHandler {
    let binary = from.required_in(table, "binary", shim).unwrap_or_default();
    let types =
        [("containerd.runc.v1.Options", OptionsType::Runc), ("runtimeoptions.v1.Options", OptionsType::Runtime)];
    let options_type = from.value_in(table, "options_type", |v| value::one_of(v, &types));
    let options_type = options_type.or_else(|| default_type(&binary));
    ShimHandler {
        environment: from.list_in(table, "environment", container::variable),
        timeout: from.value_in(table, "timeout", timeout).unwrap_or(TIMEOUT),
        allowed_annotations: from.list_in(table, "allowed_annotations", value::annotation),
        // Those of gVisor and Kata, which have these options.
        sandbox_container: from
            .value_in(table, "sandbox_container", value::boolean)
            .unwrap_or_else(|| default_type(&binary) == Some(OptionsType::Runtime)),
        options: options_type.map(|options_type| options(from, table, options_type)),
        options_type,
        binary,
    }
}

/// Returns the type of the options that a shim expects, if it is known by its name.
fn default_type(binary: &Path) -> Option<OptionsType> {
    let name = binary.file_name()?.to_str()?;
    match name {
        "containerd-shim-runc-v2" | "io.containerd.runc.v2" => Some(OptionsType::Runc),
        "containerd-shim-runsc-v1" | "io.containerd.runsc.v1" => Some(OptionsType::Runtime),
        "containerd-shim-kata-v2" | "io.containerd.kata.v2" => Some(OptionsType::Runtime),
        _ => None,
    }
}

/// Reads the table `options`.
fn options(from: &mut Reader, [_, name]: [&str; 2], options_type: OptionsType) -> pod::ShimOptions {
    let mut text = |key: &str| from.value_at(&[TABLE, name, "options", key], value::name).unwrap_or_default();
    match options_type {
        OptionsType::Runtime => pod::ShimOptions::Runtime {
            type_url: text("type_url"),
            config_path: text("config_path"),
            config_body: text("config_body"),
        },
        OptionsType::Runc => {
            let [binary_name, root, shim_cgroup] = ["binary_name", "root", "shim_cgroup"].map(&mut text);
            let [criu_image_path, criu_work_path] = ["criu_image_path", "criu_work_path"].map(&mut text);
            let mut flag =
                |key: &str| from.value_at(&[TABLE, name, "options", key], value::boolean).unwrap_or_default();
            let [systemd_cgroup, no_pivot_root, no_new_keyring] =
                ["systemd_cgroup", "no_pivot_root", "no_new_keyring"].map(&mut flag);
            let mut id = |key: &str| {
                let number = from.value_at(&[TABLE, name, "options", key], |v| value::number(v, 0..=u32::MAX.into()));
                number.and_then(|number| u32::try_from(number).ok()).unwrap_or_default()
            };
            let [io_uid, io_gid] = ["io_uid", "io_gid"].map(&mut id);
            pod::ShimOptions::Runc {
                binary_name,
                root,
                systemd_cgroup,
                no_pivot_root,
                no_new_keyring,
                shim_cgroup,
                io_uid,
                io_gid,
                criu_image_path,
                criu_work_path,
            }
        }
    }
}

/// A shim: an absolute path, or a name without a slash.
fn shim(value: &Value) -> Result<PathBuf, String> {
    match value::name(value)? {
        name if name.starts_with('/') => value::absolute(value),
        name if name.contains('/') => {
            Err("must be an absolute path, or a name such as io.containerd.runc.v2".to_owned())
        }
        name => Ok(name.into()),
    }
}
