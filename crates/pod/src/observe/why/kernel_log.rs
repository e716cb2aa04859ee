//! Messages of the kernel log (`/dev/kmsg`) about a container: out of memory, and denials.
//!
//! A system call that a seccomp filter fails with an errno is not logged; this is what the default profile does for
//! most. A call that kills its process, or that a profile logs (`SCMP_ACT_LOG`), is logged, unless an audit daemon
//! receives such messages instead.

use std::{fs::OpenOptions, io::Read, os::unix::fs::OpenOptionsExt};

use crate::store::{Container, ContainerRecord};

/// Number of bytes of the log that are read.
const LOG_MAX: usize = 4 << 20;
/// Maximum length of a message.
const MESSAGE_MAX: usize = 8 << 10;

/// What denies an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeniedBy {
    /// A seccomp filter.
    Seccomp,
    /// A security module (AppArmor, SELinux; capabilities too).
    Lsm,
}

/// An action that the kernel denied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// What denied it.
    pub by: DeniedBy,
    /// Pid of the process.
    pub pid: u32,
    /// For seccomp: the number of the system call on this machine's architecture.
    pub system_call: Option<u32>,
    /// Name of the system call, if it is known.
    pub name: Option<&'static str>,
    /// The message of the kernel.
    pub line: String,
}

/// Returns all messages, the oldest first; none if the log cannot be read.
pub(super) fn read() -> Vec<String> {
    let mut options = OpenOptions::new();
    let Ok(mut file) = options.read(true).custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as i32).open("/dev/kmsg")
    else {
        return Vec::new();
    };
    let (mut lines, mut buffer, mut total) = (Vec::new(), vec![0; MESSAGE_MAX], 0);
    while total < LOG_MAX {
        match file.read(&mut buffer) {
            Ok(0) => break,
            Ok(length) => {
                total += length;
                let text = String::from_utf8_lossy(&buffer[..length]);
                // The format is `priority,sequence,microseconds,flags;message`, then lines that begin with a space.
                let message = text.split_once(';').map_or("", |(_, rest)| rest);
                lines.push(message.lines().next().unwrap_or_default().to_owned());
            }
            // The message was overwritten before it was read: reading continues with the next one.
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::PIPE.raw_os_error()) => {}
            Err(_) => break,
        }
    }
    lines
}

/// Returns the denials for the container's first process. Its other processes cannot be identified after they are gone.
pub(super) fn denied(_container: &Container, record: &ContainerRecord, log: &[String]) -> Vec<Denial> {
    log.iter().filter_map(|line| parse(line)).filter(|denied| denied.pid != 0 && denied.pid == record.pid).collect()
}

fn parse(line: &str) -> Option<Denial> {
    let by = if line.contains("audit: type=1326") {
        DeniedBy::Seccomp
    } else if line.contains("audit: type=1400") && line.contains("DENIED") || line.contains("avc:  denied") {
        DeniedBy::Lsm
    } else {
        return None;
    };
    let number = |key: &str| field(line, key).and_then(|value| value.parse().ok());
    let system_call = number("syscall");
    let arch = field(line, "arch").and_then(|value| u32::from_str_radix(value, 16).ok());
    let name = arch.zip(system_call).and_then(|(arch, number)| seccomp::system_call_name(arch, number));
    Some(Denial { by, pid: number("pid")?, system_call, name, line: line.to_owned() })
}

/// Returns the value of `key=value` in a message.
pub(super) fn field<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    line.split([' ', ',']).find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_the_kernel_are_parsed() {
        let line = "audit: type=1326 audit(1.2:3): auid=0 uid=0 gid=0 ses=1 pid=4711 comm=\"x\" exe=\"/x\" sig=31 \
                    arch=c000003e syscall=165 compat=0 ip=0x1 code=0x80000000";
        let denied = parse(line).expect("seccomp");
        assert_eq!((denied.by, denied.pid, denied.system_call), (DeniedBy::Seccomp, 4711, Some(165)));
        assert_eq!(denied.name, Some("mount"));
        let line =
            "audit: type=1400 audit(1.2:3): apparmor=\"DENIED\" operation=\"mount\" profile=\"p\" pid=12 comm=\"m\"";
        assert_eq!(parse(line).expect("AppArmor").by, DeniedBy::Lsm);
        assert_eq!(parse("usb 1-1: new device"), None);
    }
}
