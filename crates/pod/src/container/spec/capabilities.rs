//! Capabilities: a default set, more, less, or all.

use oci::Capabilities;

use crate::{Error, Security};

/// What other engines give.
const DEFAULT: [&str; 14] = [
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FSETID",
    "CAP_FOWNER",
    "CAP_MKNOD",
    "CAP_NET_RAW",
    "CAP_SETGID",
    "CAP_SETUID",
    "CAP_SETFCAP",
    "CAP_SETPCAP",
    "CAP_NET_BIND_SERVICE",
    "CAP_SYS_CHROOT",
    "CAP_KILL",
    "CAP_AUDIT_WRITE",
];

/// capabilities(7), by number. What the kernel or this process lacks is left out further down.
const ALL: [&str; 41] = [
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_DAC_READ_SEARCH",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_SETGID",
    "CAP_SETUID",
    "CAP_SETPCAP",
    "CAP_LINUX_IMMUTABLE",
    "CAP_NET_BIND_SERVICE",
    "CAP_NET_BROADCAST",
    "CAP_NET_ADMIN",
    "CAP_NET_RAW",
    "CAP_IPC_LOCK",
    "CAP_IPC_OWNER",
    "CAP_SYS_MODULE",
    "CAP_SYS_RAWIO",
    "CAP_SYS_CHROOT",
    "CAP_SYS_PTRACE",
    "CAP_SYS_PACCT",
    "CAP_SYS_ADMIN",
    "CAP_SYS_BOOT",
    "CAP_SYS_NICE",
    "CAP_SYS_RESOURCE",
    "CAP_SYS_TIME",
    "CAP_SYS_TTY_CONFIG",
    "CAP_MKNOD",
    "CAP_LEASE",
    "CAP_AUDIT_WRITE",
    "CAP_AUDIT_CONTROL",
    "CAP_SETFCAP",
    "CAP_MAC_OVERRIDE",
    "CAP_MAC_ADMIN",
    "CAP_SYSLOG",
    "CAP_WAKE_ALARM",
    "CAP_BLOCK_SUSPEND",
    "CAP_AUDIT_READ",
    "CAP_PERFMON",
    "CAP_BPF",
    "CAP_CHECKPOINT_RESTORE",
];

/// `ALL` comes before single names, whichever list has it.
pub(super) fn granted(security: &Security) -> Result<Vec<String>, Error> {
    if security.privileged {
        return Ok(ALL.map(str::to_owned).to_vec());
    }
    let (add_all, add) = parse(&security.add_capabilities)?;
    let (drop_all, drop) = parse(&security.drop_capabilities)?;
    let mut granted: Vec<&str> = match (add_all, drop_all) {
        (true, _) => ALL.to_vec(),
        (false, true) => Vec::new(),
        (false, false) => DEFAULT.to_vec(),
    };
    granted.retain(|name| !drop.contains(name));
    for name in add {
        if !granted.contains(&name) {
            granted.push(name);
        }
    }
    Ok(granted.into_iter().map(str::to_owned).collect())
}

/// Whether `ALL` is among them, and the others.
fn parse(names: &[String]) -> Result<(bool, Vec<&'static str>), Error> {
    let mut all = false;
    let mut known = Vec::new();
    for name in names {
        let upper = name.to_ascii_uppercase();
        let bare = upper.strip_prefix("CAP_").unwrap_or(&upper);
        if bare == "ALL" {
            all = true;
            continue;
        }
        match ALL.iter().find(|known| known.strip_prefix("CAP_") == Some(bare)) {
            Some(found) => known.push(*found),
            None => return Err(Error::invalid(format!("capability {name:?} is not known; see capabilities(7)"))),
        }
    }
    Ok((all, known))
}

/// The sets of a process. Nothing is inheritable (CVE-2022-24769).
pub(super) fn sets(granted: &[String], ambient: &[String]) -> Capabilities {
    let ambient: Vec<String> = match parse(ambient) {
        Ok((_, names)) => names.into_iter().map(str::to_owned).filter(|name| granted.contains(name)).collect(),
        Err(_) => Vec::new(),
    };
    Capabilities {
        bounding: granted.to_vec(),
        effective: granted.to_vec(),
        permitted: granted.to_vec(),
        // The kernel wants an ambient capability to be inheritable, too.
        inheritable: ambient.clone(),
        ambient,
    }
}
