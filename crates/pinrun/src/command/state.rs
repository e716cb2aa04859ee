use std::{collections::BTreeMap, ffi::OsString};

use serde::Serialize;

use crate::{
    arguments::Global,
    exit_code::ExitCode,
    failure::Failure,
    flags::{Flags, Order},
    state::{Directory, Record},
};

/// The output of `state` and `list`: the state of the specification with the fields that runc adds.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ContainerState {
    pub(crate) oci_version: String,
    pub(crate) id: String,
    pub(crate) pid: i32,
    pub(crate) status: oci::Status,
    pub(crate) bundle: String,
    pub(crate) rootfs: String,
    pub(crate) created: String,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) annotations: BTreeMap<String, String>,
    pub(crate) owner: String,
}

impl ContainerState {
    pub(crate) fn new(record: Record, status: oci::Status) -> Self {
        Self {
            oci_version: record.oci_version,
            id: record.id,
            pid: if status == oci::Status::Stopped { 0 } else { record.pid },
            status,
            bundle: record.bundle,
            rootfs: record.rootfs,
            created: record.created,
            annotations: record.annotations,
            owner: user_name(record.owner),
        }
    }
}

/// `state ID`: prints the state of a container.
pub(crate) fn run(global: &Global, arguments: Vec<OsString>) -> Result<ExitCode, Failure> {
    let flags = Flags::parse(arguments, &[], Order::Mixed)?;
    let directory = Directory::open(&global.root, flags.id()?)?;
    let record = directory.load()?;
    let status = record.status(&directory)?;
    print_json(&ContainerState::new(record, status))?;
    Ok(ExitCode::SUCCESS)
}

/// Prints indented JSON to standard output, as runc does.
pub(crate) fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).map_err(|error| Failure::new(format!("print: {error}")))?;
    let written = std::io::Write::write_all(&mut std::io::stdout(), format!("{text}\n").as_bytes());
    written.map_err(|error| Failure::io("print", error))
}

pub(crate) fn status_name(status: oci::Status) -> &'static str {
    match status {
        oci::Status::Creating => "creating",
        oci::Status::Created => "created",
        oci::Status::Running => "running",
        oci::Status::Paused => "paused",
        oci::Status::Stopped => "stopped",
    }
}

/// Returns the user name from the host's passwd(5), or `#UID` for an unknown user.
fn user_name(uid: u32) -> String {
    let list = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let number = uid.to_string();
    let line = list.lines().find(|line| line.split(':').nth(2) == Some(&number));
    line.and_then(|line| line.split(':').next()).map_or(format!("#{uid}"), str::to_owned)
}
