//! The tables `[handlers.NAME]`.

mod shim;
mod vm;
mod wasm;

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Read},
    path::PathBuf,
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

pub(crate) use shim::ShimHandler;
pub(crate) use vm::VmHandler;
pub(crate) use wasm::WasmHandler;

/// A runtime handler.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub(crate) enum Handler {
    /// A program with the command line of runc.
    Oci(Box<OciHandler>),
    /// A containerd shim.
    Shim(ShimHandler),
    /// Virtual machines.
    Vm(VmHandler),
    /// The program that runs WebAssembly modules.
    Wasm(WasmHandler),
}

/// A program with the command line of runc.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct OciHandler {
    /// Its absolute path.
    pub(crate) binary: PathBuf,
    /// Global options of the program.
    pub(crate) arguments: Vec<String>,
    /// Directory of its state; `None`: one in the state directory of the daemon.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) root: Option<PathBuf>,
    /// Environment of its commands, as `NAME=value`.
    pub(crate) environment: Vec<String>,
    /// Time limit of one command.
    #[serde(serialize_with = "value::write_duration")]
    pub(crate) timeout: Duration,
    /// Annotations of pods and containers that it gets.
    pub(crate) allowed_annotations: Vec<String>,
    /// Whether privileged containers get only the devices that they request.
    pub(crate) privileged_without_host_devices: bool,
    /// Whether such containers may use every device all the same.
    pub(crate) privileged_without_host_devices_all_devices_allowed: bool,
    /// Specification whose properties containers get in addition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) base_runtime_spec: Option<BaseSpec>,
    /// Annotations of all its containers.
    pub(crate) default_annotations: BTreeMap<String, String>,
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
#[derive(Clone, Copy)]
enum Kind {
    Oci,
    Shim,
    Vm,
    Wasm,
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
        let kinds = [("oci", Kind::Oci), ("shim", Kind::Shim), ("vm", Kind::Vm), ("wasm", Kind::Wasm)];
        let kind = from.value_in(table, "kind", |v| value::one_of(v, &kinds));
        let handler = match kind.unwrap_or(Kind::Oci) {
            Kind::Oci => Handler::Oci(Box::new(read_oci(from, table))),
            Kind::Shim => Handler::Shim(shim::read(from, table)),
            Kind::Vm => Handler::Vm(vm::read(from, table)),
            Kind::Wasm => {
                if handlers.values().any(|other| matches!(other, Handler::Wasm(_))) {
                    from.error_in(TABLE, &name, "another handler has kind = \"wasm\", too; one is possible");
                }
                Handler::Wasm(wasm::read(from, table))
            }
        };
        handlers.insert(name, handler);
    }
    handlers
}

fn read_oci(from: &mut Reader, table: [&str; 2]) -> OciHandler {
    OciHandler {
        binary: from.required_in(table, "binary", value::absolute).unwrap_or_default(),
        arguments: from.list_in(table, "arguments", argument),
        root: from.value_in(table, "root", value::absolute),
        environment: from.list_in(table, "environment", container::variable),
        timeout: from.value_in(table, "timeout", timeout).unwrap_or(TIMEOUT),
        allowed_annotations: from.list_in(table, "allowed_annotations", value::annotation),
        privileged_without_host_devices: flag(from, table, "privileged_without_host_devices"),
        privileged_without_host_devices_all_devices_allowed: flag(
            from,
            table,
            "privileged_without_host_devices_all_devices_allowed",
        ),
        base_runtime_spec: from.value_in(table, "base_runtime_spec", base_spec),
        default_annotations: from.texts_in(table, "default_annotations", value::name),
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
