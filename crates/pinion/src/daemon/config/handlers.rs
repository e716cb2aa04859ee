//! The tables `[handlers.NAME]`.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use serde::Serialize;

use super::{Reader, container, layers::Value, value};

/// Time limit of a command of a runtime.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Maximum length of the name of a handler, as that of a RuntimeClass (RFC 1123).
const NAME_MAX: usize = 63;
/// Maximum size of a base specification, in bytes.
const SPEC_MAX: u64 = 1024 * 1024;

/// A runtime handler.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Handler {
    pub(crate) kind: Kind,
    /// Absolute path of the program; of a shim also its name.
    pub(crate) binary: PathBuf,
    /// Global options of the program. Not of shims.
    pub(crate) arguments: Vec<String>,
    /// Directory of its state; `None`: one in the state directory of the daemon. Not of shims.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) root: Option<PathBuf>,
    /// Environment of its commands, as `NAME=value`.
    pub(crate) environment: Vec<String>,
    /// Time limit of one command, and of one request to a shim.
    #[serde(serialize_with = "value::write_duration")]
    pub(crate) timeout: Duration,
    /// Annotations of pods and containers that it gets.
    pub(crate) allowed_annotations: Vec<String>,
    /// Whether privileged containers get only the devices that they request. This and the next three not of shims.
    pub(crate) privileged_without_host_devices: bool,
    /// Whether such containers may use every device all the same.
    pub(crate) privileged_without_host_devices_all_devices_allowed: bool,
    /// Specification whose properties containers get in addition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) base_runtime_spec: Option<BaseSpec>,
    /// Annotations of all its containers.
    pub(crate) default_annotations: BTreeMap<String, String>,
    /// Type of the options of a shim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) options_type: Option<OptionsType>,
    /// Options of a shim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) options: Option<pod::ShimOptions>,
}

/// A file with a runtime specification.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(into = "PathBuf")]
pub(crate) struct BaseSpec {
    path: PathBuf,
    /// Its content.
    pub(crate) spec: Arc<pod::oci::Spec>,
}

impl From<BaseSpec> for PathBuf {
    fn from(base: BaseSpec) -> Self {
        base.path
    }
}

/// Kind of a runtime handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// A program with the command line of runc.
    Oci,
    /// A containerd shim.
    Shim,
}

/// Type of the options of a shim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum OptionsType {
    #[serde(rename = "containerd.runc.v1.Options")]
    Runc,
    #[serde(rename = "runtimeoptions.v1.Options")]
    Runtime,
}

const TABLE: &str = "handlers";

/// Reads all tables. A table with an error is left out; the error is recorded.
pub(super) fn read(from: &mut Reader) -> BTreeMap<String, Handler> {
    let mut handlers = BTreeMap::new();
    for name in from.tables_under(TABLE) {
        if let Err(cause) = check_name(&name) {
            from.error_in(TABLE, &name, &cause);
        }
        let table = [TABLE, &name];
        let kind = from.value_in(table, "kind", |v| value::one_of(v, &[("oci", Kind::Oci), ("shim", Kind::Shim)]));
        let handler = match kind.unwrap_or(Kind::Oci) {
            Kind::Oci => read_oci(from, table),
            Kind::Shim => read_shim(from, table),
        };
        handlers.insert(name, handler);
    }
    handlers
}

fn read_oci(from: &mut Reader, table: [&str; 2]) -> Handler {
    Handler {
        kind: Kind::Oci,
        binary: from.required_in(table, "binary", value::absolute).unwrap_or_default(),
        arguments: from.list_in(table, "arguments", argument),
        root: from.value_in(table, "root", value::absolute),
        environment: from.list_in(table, "environment", container::variable),
        timeout: from.value_in(table, "timeout", timeout).unwrap_or(TIMEOUT),
        allowed_annotations: from.list_in(table, "allowed_annotations", value::name),
        privileged_without_host_devices: flag(from, table, "privileged_without_host_devices"),
        privileged_without_host_devices_all_devices_allowed: flag(
            from,
            table,
            "privileged_without_host_devices_all_devices_allowed",
        ),
        base_runtime_spec: from.value_in(table, "base_runtime_spec", base_spec),
        default_annotations: from.texts_in(table, "default_annotations", value::name),
        options_type: None,
        options: None,
    }
}

fn read_shim(from: &mut Reader, table: [&str; 2]) -> Handler {
    let binary = from.required_in(table, "binary", shim).unwrap_or_default();
    let types =
        [("containerd.runc.v1.Options", OptionsType::Runc), ("runtimeoptions.v1.Options", OptionsType::Runtime)];
    let options_type = from.value_in(table, "options_type", |v| value::one_of(v, &types));
    let options_type = options_type.or_else(|| default_type(&binary));
    Handler {
        kind: Kind::Shim,
        arguments: Vec::new(),
        root: None,
        environment: from.list_in(table, "environment", container::variable),
        timeout: from.value_in(table, "timeout", timeout).unwrap_or(TIMEOUT),
        allowed_annotations: from.list_in(table, "allowed_annotations", value::name),
        privileged_without_host_devices: false,
        privileged_without_host_devices_all_devices_allowed: false,
        base_runtime_spec: None,
        default_annotations: BTreeMap::new(),
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
fn options(from: &mut Reader, [table, name]: [&str; 2], options_type: OptionsType) -> pod::ShimOptions {
    let mut text = |key: &str| from.value_at(&[table, name, "options", key], value::name).unwrap_or_default();
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
                |key: &str| from.value_at(&[table, name, "options", key], value::boolean).unwrap_or_default();
            let [systemd_cgroup, no_pivot_root, no_new_keyring] =
                ["systemd_cgroup", "no_pivot_root", "no_new_keyring"].map(&mut flag);
            let mut id = |key: &str| {
                let number = from.value_at(&[table, name, "options", key], |v| value::number(v, 0..=u32::MAX.into()));
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

/// Global options that Pinion sets itself.
const RESERVED: [&str; 5] = ["--root", "--log", "--log-format", "--systemd-cgroup", "--cgroup-manager"];

fn argument(value: &Value) -> Result<String, String> {
    let argument = value::name(value)?;
    let name = argument.split('=').next().unwrap_or_default();
    match RESERVED.contains(&name) {
        true => Err(format!("{name} is set by Pinion; for the directory of the state, set root")),
        false => Ok(argument),
    }
}

/// Reads a boolean; false if it is not set.
fn flag(from: &mut Reader, table: [&str; 2], key: &str) -> bool {
    from.value_in(table, key, value::boolean).unwrap_or(false)
}

/// Reads a file with a runtime specification.
fn base_spec(value: &Value) -> Result<BaseSpec, String> {
    let path = value::absolute(value)?;
    let read = || -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        if !fs::metadata(&path)?.is_file() {
            return Err(io::Error::other("not a regular file"));
        }
        fs::File::open(&path)?.take(SPEC_MAX + 1).read_to_end(&mut bytes)?;
        match bytes.len() as u64 > SPEC_MAX {
            true => Err(io::Error::other(format!("larger than {SPEC_MAX} bytes"))),
            false => Ok(bytes),
        }
    };
    let bytes = read().map_err(|error| format!("read {}: {error}", path.display()))?;
    let spec = pod::oci::from_json(&bytes).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(BaseSpec { path, spec: Arc::new(spec) })
}

fn timeout(value: &Value) -> Result<Duration, String> {
    match value::duration(value)? {
        duration if duration < Duration::from_secs(1) => Err("must be at least 1s".to_owned()),
        duration => Ok(duration),
    }
}

/// The name is a directory name, too.
fn check_name(name: &str) -> Result<(), String> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    match !name.is_empty() && name.len() <= NAME_MAX && name.bytes().all(is_allowed) && !name.starts_with('.') {
        true => Ok(()),
        false => Err(format!("must be 1 to {NAME_MAX} characters of A-Z a-z 0-9 . _ -, and not start with a dot")),
    }
}
