//! What the kernel's log (`/dev/kmsg`) says of a container: out of memory, and what was denied.
//!
//! A system call that a seccomp filter answers with an error is in no log, as most of the default profile's are; one
//! that ends its process, or that a profile logs (`SCMP_ACT_LOG`), is, unless an audit daemon takes such lines for
//! itself.

use std::{fs::OpenOptions, io::Read, os::unix::fs::OpenOptionsExt};

use serde::Serialize;

use crate::container::{Container, ContainerRecord};

/// As many bytes of it are read.
const MOST: usize = 4 << 20;
/// No line is longer.
const LINE: usize = 8 << 10;

/// Something the kernel denied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Denied {
    /// `seccomp` or `lsm` (AppArmor, SELinux; capabilities too).
    pub by: &'static str,
    /// The process.
    pub pid: u32,
    /// Of seccomp: the system call's number on this machine's architecture.
    pub system_call: Option<u32>,
    /// Its name, where it has one.
    pub name: Option<&'static str>,
    /// The kernel's own line.
    pub line: String,
}

/// Every message, the oldest first; nothing where it cannot be read.
pub(super) fn read() -> Vec<String> {
    let mut options = OpenOptions::new();
    let Ok(mut file) = options.read(true).custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as i32).open("/dev/kmsg")
    else {
        return Vec::new();
    };
    let (mut lines, mut buffer, mut total) = (Vec::new(), vec![0; LINE], 0);
    while total < MOST {
        match file.read(&mut buffer) {
            Ok(0) => break,
            Ok(length) => {
                total += length;
                let text = String::from_utf8_lossy(&buffer[..length]);
                // priority,sequence,microseconds,flags;message, then lines of its own that begin with a blank.
                let message = text.split_once(';').map_or("", |(_, rest)| rest);
                lines.push(message.lines().next().unwrap_or_default().to_owned());
            }
            // Overwritten while it was read: the next one is there.
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::PIPE.raw_os_error()) => {}
            Err(_) => break,
        }
    }
    lines
}

/// Of the container's first process; which others were its is known to nobody when they are gone.
pub(super) fn denied(_container: &Container, record: &ContainerRecord, log: &[String]) -> Vec<Denied> {
    log.iter().filter_map(|line| parse(line)).filter(|denied| denied.pid != 0 && denied.pid == record.pid).collect()
}

fn parse(line: &str) -> Option<Denied> {
    let by = if line.contains("audit: type=1326") {
        "seccomp"
    } else if line.contains("audit: type=1400") && line.contains("DENIED") || line.contains("avc:  denied") {
        "lsm"
    } else {
        return None;
    };
    let number = |key: &str| field(line, key).and_then(|value| value.parse().ok());
    let system_call = number("syscall");
    let arch = field(line, "arch").and_then(|value| u32::from_str_radix(value, 16).ok());
    let name = arch.zip(system_call).and_then(|(arch, number)| seccomp::system_call_name(arch, number));
    Some(Denied { by, pid: number("pid")?, system_call, name, line: line.to_owned() })
}

/// `key=value`, of words.
pub(super) fn field<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    line.split([' ', ',']).find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_lines_are_understood() {
        let line = "audit: type=1326 audit(1.2:3): auid=0 uid=0 gid=0 ses=1 pid=4711 comm=\"x\" exe=\"/x\" sig=31 \
                    arch=c000003e syscall=165 compat=0 ip=0x1 code=0x80000000";
        let denied = parse(line).expect("seccomp");
        assert_eq!((denied.by, denied.pid, denied.system_call), ("seccomp", 4711, Some(165)));
        assert_eq!(denied.name, Some("mount"));
        let line =
            "audit: type=1400 audit(1.2:3): apparmor=\"DENIED\" operation=\"mount\" profile=\"p\" pid=12 comm=\"m\"";
        assert_eq!(parse(line).expect("AppArmor").by, "lsm");
        assert_eq!(parse("usb 1-1: new device"), None);
    }
}
