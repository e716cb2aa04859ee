//! The tables `[handlers.NAME]`.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use serde::Serialize;

use super::{Reader, container, layers::Value, value};

/// Time limit of a command of a runtime.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Maximum length of the name of a handler, as that of a RuntimeClass (RFC 1123).
const NAME_MAX: usize = 63;

/// A runtime handler: a program with the command line of runc.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Handler {
    /// The only kind so far.
    pub(crate) kind: Kind,
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
}

/// Kind of a runtime handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// A program with the command line of runc.
    Oci,
}

/// Reads all tables. A table with an error is left out; the error is recorded.
pub(super) fn read(from: &mut Reader) -> BTreeMap<String, Handler> {
    const TABLE: &str = "handlers";
    let mut handlers = BTreeMap::new();
    for name in from.tables_under(TABLE) {
        if let Err(cause) = check_name(&name) {
            from.error_in(TABLE, &name, &cause);
        }
        let table = [TABLE, &name];
        let kind = from.value_in(table, "kind", |v| value::one_of(v, &[("oci", Kind::Oci)]));
        let handler = Handler {
            kind: kind.unwrap_or(Kind::Oci),
            binary: from.required_in(table, "binary", value::absolute).unwrap_or_default(),
            arguments: from.list_in(table, "arguments", argument),
            root: from.value_in(table, "root", value::absolute),
            environment: from.list_in(table, "environment", container::variable),
            timeout: from.value_in(table, "timeout", timeout).unwrap_or(TIMEOUT),
            allowed_annotations: from.list_in(table, "allowed_annotations", value::name),
        };
        handlers.insert(name, handler);
    }
    handlers
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
