//! Tables with `kind = "vm"`.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use serde::Serialize;

use super::{TIMEOUT, flag, timeout};
use crate::daemon::config::{Reader, layers::Value, value};

/// Memory of a guest, in bytes.
const MEMORY: u64 = 256 << 20;
/// Least memory with which a guest boots, in bytes.
const MEMORY_MIN: u64 = 128 << 20;
/// Time limit until the agent in a guest answers.
const BOOT_TIMEOUT: Duration = Duration::from_secs(30);
/// Most processors of a guest.
const CPUS_MAX: u64 = 255;
/// Where distributions install virtiofsd.
const FILE_SERVERS: [&str; 3] = ["/usr/libexec/virtiofsd", "/usr/lib/virtiofsd", "/usr/lib/qemu/virtiofsd"];

/// Virtual machines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct VmHandler {
    pub(crate) hypervisor: PathBuf,
    pub(crate) file_server: PathBuf,
    /// Directory of the image that guests boot; `None`: one in the data directory of the daemon.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) image: Option<PathBuf>,
    pub(crate) memory: u64,
    pub(crate) cpus: u64,
    pub(crate) allow_emulation: bool,
    #[serde(serialize_with = "value::write_duration")]
    pub(crate) boot_timeout: Duration,
    #[serde(serialize_with = "value::write_duration")]
    pub(crate) timeout: Duration,
}

/// Reads a table.
pub(super) fn read(from: &mut Reader, table: [&str; 2]) -> VmHandler {
    let installed = || FILE_SERVERS.into_iter().find(|path| Path::new(path).exists()).unwrap_or(FILE_SERVERS[0]);
    let hypervisor = || PathBuf::from(format!("/usr/bin/qemu-system-{}", std::env::consts::ARCH));
    VmHandler {
        hypervisor: from.value_in(table, "hypervisor", value::absolute).unwrap_or_else(hypervisor),
        file_server: from.value_in(table, "file_server", value::absolute).unwrap_or_else(|| installed().into()),
        image: from.value_in(table, "image", value::absolute),
        memory: from.value_in(table, "memory", memory).unwrap_or(MEMORY),
        cpus: from.value_in(table, "cpus", cpus).unwrap_or(1),
        allow_emulation: flag(from, table, "allow_emulation"),
        boot_timeout: from.value_in(table, "boot_timeout", timeout).unwrap_or(BOOT_TIMEOUT),
        timeout: from.value_in(table, "timeout", timeout).unwrap_or(TIMEOUT),
    }
}

fn memory(value: &Value) -> Result<u64, String> {
    match value::positive(value)? {
        bytes if bytes < MEMORY_MIN => Err(format!("must be at least {MEMORY_MIN} bytes, or the guest does not boot")),
        bytes => Ok(bytes),
    }
}

fn cpus(value: &Value) -> Result<u64, String> {
    match value::positive(value)? {
        cpus if cpus > CPUS_MAX => Err(format!("must be at most {CPUS_MAX}")),
        cpus => Ok(cpus),
    }
}
