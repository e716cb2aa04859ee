//! Paths of /proc and /sys that tell too much, or change the node.

use crate::Security;

const MASKED: [&str; 12] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
];

const READONLY: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

pub(super) fn masked(security: &Security) -> Vec<String> {
    choose(security, &security.masked_paths, &MASKED)
}

pub(super) fn readonly(security: &Security) -> Vec<String> {
    choose(security, &security.readonly_paths, &READONLY)
}

fn choose(security: &Security, given: &Option<Vec<String>>, default: &[&str]) -> Vec<String> {
    match given {
        _ if security.privileged => Vec::new(),
        None => default.iter().map(|path| (*path).to_owned()).collect(),
        Some(given) => given.clone(),
    }
}
