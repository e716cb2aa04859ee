use crate::Failure;

/// Every capability of Linux 6.18, without `CAP_` (capabilities(7), include/uapi/linux/capability.h).
const KNOWN: [&str; 41] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
    "SETPCAP",
    "LINUX_IMMUTABLE",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_ADMIN",
    "NET_RAW",
    "IPC_LOCK",
    "IPC_OWNER",
    "SYS_MODULE",
    "SYS_RAWIO",
    "SYS_CHROOT",
    "SYS_PTRACE",
    "SYS_PACCT",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_NICE",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "MKNOD",
    "LEASE",
    "AUDIT_WRITE",
    "AUDIT_CONTROL",
    "SETFCAP",
    "MAC_OVERRIDE",
    "MAC_ADMIN",
    "SYSLOG",
    "WAKE_ALARM",
    "BLOCK_SUSPEND",
    "AUDIT_READ",
    "PERFMON",
    "BPF",
    "CHECKPOINT_RESTORE",
];

/// Normalizes capability names: `net_raw`, `NET_RAW`, `CAP_NET_RAW` → `CAP_NET_RAW`; `all` → `ALL`.
pub(super) fn capabilities(field: &str, names: &[String]) -> Result<Vec<String>, Failure> {
    names.iter().enumerate().map(|(index, name)| capability(&format!("{field}[{index}]"), name)).collect()
}

fn capability(field: &str, name: &str) -> Result<String, Failure> {
    let upper = name.to_ascii_uppercase();
    let bare = upper.strip_prefix("CAP_").unwrap_or(&upper);
    match bare {
        "ALL" => Ok("ALL".to_owned()),
        _ if KNOWN.contains(&bare) => Ok(format!("CAP_{bare}")),
        _ => Err(Failure::invalid(field, format_args!("{name:?} is not a capability (see capabilities(7))"))),
    }
}
