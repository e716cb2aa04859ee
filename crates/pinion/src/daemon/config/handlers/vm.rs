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
/// Size of memory is a multiple of this, in bytes.
const MEMORY_UNIT: u64 = 2 << 20;
/// Most processors of a guest: those of QEMU's machine `pc`.
const CPUS_MAX: u32 = 255;
/// How long a guest may stay silent.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(120);
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
    /// Memory that a guest can have; `None`: that of the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) memory_max: Option<u64>,
    pub(crate) cpus: u32,
    /// Processors that a guest can have; `None`: those of the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cpus_max: Option<u32>,
    pub(crate) allow_emulation: bool,
    pub(crate) template: bool,
    #[serde(serialize_with = "value::write_duration")]
    pub(crate) boot_timeout: Duration,
    #[serde(serialize_with = "value::write_duration")]
    pub(crate) timeout: Duration,
    #[serde(serialize_with = "value::write_duration")]
    pub(crate) silence_timeout: Duration,
}

/// Reads a table.
pub(super) fn read(from: &mut Reader, table: [&str; 2]) -> VmHandler {
    let installed = || FILE_SERVERS.into_iter().find(|path| Path::new(path).exists()).unwrap_or(FILE_SERVERS[0]);
    let hypervisor = || PathBuf::from(format!("/usr/bin/qemu-system-{}", std::env::consts::ARCH));
    let memory = from.value_in(table, "memory", memory).unwrap_or(MEMORY);
    let boot_cpus = from.value_in(table, "cpus", cpus).unwrap_or(1);
    let memory_max = |value: &Value| at_least(value::positive(value)?, &memory, "memory");
    let cpus_max = |value: &Value| at_least(cpus(value)?, &boot_cpus, "cpus");
    VmHandler {
        hypervisor: from.value_in(table, "hypervisor", value::absolute).unwrap_or_else(hypervisor),
        file_server: from.value_in(table, "file_server", value::absolute).unwrap_or_else(|| installed().into()),
        image: from.value_in(table, "image", value::absolute),
        memory,
        memory_max: from.value_in(table, "memory_max", memory_max),
        cpus: boot_cpus,
        cpus_max: from.value_in(table, "cpus_max", cpus_max),
        allow_emulation: flag(from, table, "allow_emulation"),
        template: flag(from, table, "template"),
        boot_timeout: from.value_in(table, "boot_timeout", timeout).unwrap_or(BOOT_TIMEOUT),
        timeout: from.value_in(table, "timeout", timeout).unwrap_or(TIMEOUT),
        silence_timeout: from.value_in(table, "silence_timeout", timeout).unwrap_or(SILENCE_TIMEOUT),
    }
}

/// Checks what a guest can have: no less than it boots with.
fn at_least<T: PartialOrd + std::fmt::Display>(max: T, boot: &T, key: &str) -> Result<T, String> {
    match max < *boot {
        true => Err(format!("{max} is less than {key} = {boot}")),
        false => Ok(max),
    }
}

fn memory(value: &Value) -> Result<u64, String> {
    match value::positive(value)? {
        bytes if bytes < MEMORY_MIN => Err(format!("must be at least {MEMORY_MIN} bytes, or the guest does not boot")),
        bytes if bytes % MEMORY_UNIT != 0 => Err(format!("must be a multiple of {MEMORY_UNIT} bytes")),
        bytes => Ok(bytes),
    }
}

fn cpus(value: &Value) -> Result<u32, String> {
    match u32::try_from(value::positive(value)?) {
        Ok(cpus) if cpus <= CPUS_MAX => Ok(cpus),
        _ => Err(format!("must be at most {CPUS_MAX}")),
    }
}

#[cfg(test)]
mod tests {
    use crate::daemon::config::{Config, handlers::Handler};

    fn parse(keys: &str) -> Result<(Option<u64>, Option<u32>), String> {
        let text = format!("[handlers.vm]\nkind = \"vm\"\n{keys}");
        let config = Config::parse("/etc/x.toml", &text).map_err(|error| error.to_string())?;
        match &config.handlers["vm"] {
            Handler::Vm(handler) => Ok((handler.memory_max, handler.cpus_max)),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_guest_can_have_no_less_than_it_boots_with() {
        assert_eq!(parse(""), Ok((None, None)));
        assert_eq!(parse("memory_max = 268435456\ncpus_max = 1"), Ok((Some(256 << 20), Some(1))));
        assert_eq!(parse("cpus = 2\nmemory_max = 1000000000\ncpus_max = 255"), Ok((Some(1_000_000_000), Some(255))));
        for (keys, cause) in [
            ("memory_max = 268435455", "handlers.vm.\"memory_max\": 268435455 is less than memory = 268435456"),
            ("memory = 536870912\nmemory_max = 268435456", "is less than memory = 536870912"),
            ("memory = 268435457", "\"memory\": must be a multiple of 2097152 bytes"),
            ("memory_max = -1", "\"memory_max\": "),
            ("cpus = 3\ncpus_max = 2", "\"cpus_max\": 2 is less than cpus = 3"),
            ("cpus_max = 256", "\"cpus_max\": must be at most 255"),
            ("cpus = 0", "\"cpus\": "),
        ] {
            let error = parse(keys).expect_err(keys);
            assert!(error.contains(cause), "{error}");
        }
    }
}
