//! Converts limits to properties of a unit (systemd.resource-control(5), `org.freedesktop.systemd1.Scope`). All limits
//! are also written to the kernel files; systemd needs them so that it writes the same values when it applies its
//! properties again.

use super::value::Value;
use crate::{
    convert_v2::{weight_of_blkio, weight_of_shares},
    devices::{DevicePolicy, Exception, Kind},
    limits::{Bound, Limits},
};

/// The value for "no limit" of memory, tasks and CPU time.
pub(super) const INFINITY: u64 = u64::MAX;
/// The default CPU period of the kernel, µs.
const DEFAULT_PERIOD: u64 = 100_000;
/// systemd stores a CPU quota in steps of 10 ms per second.
const QUOTA_STEP: u64 = 10_000;

/// The maximum number of processes and threads. Without it systemd writes a default of its own.
pub(super) const TASKS_MAX: &str = "TasksMax";

pub(super) type Properties = Vec<(String, Value)>;

/// Converts the limits that systemd supports. `v2` is whether the controllers are in the v2 tree.
pub(super) fn from_limits(limits: &Limits, v2: bool) -> Properties {
    let mut out = PropertyList(Vec::new());
    if let Some(policy) = &limits.devices {
        devices(policy, &mut out);
    }
    memory(limits, v2, &mut out);
    cpu(limits, v2, &mut out);
    if let Some(pids) = limits.pids {
        out.number(TASKS_MAX, bytes(pids));
    }
    if let Some(weight) = limits.block_io.weight.filter(|weight| *weight != 0) {
        match v2 {
            true => out.number("IOWeight", weight_of_blkio(weight)),
            false => out.number("BlockIOWeight", weight.into()),
        }
    }
    for (name, list) in [("AllowedCPUs", &limits.cpuset.cpus), ("AllowedMemoryNodes", &limits.cpuset.mems)] {
        if let Some(list) = list {
            out.0.push((name.into(), Value::bytes(&bit_mask(list))));
        }
    }
    unified(limits, &mut out);
    out.0
}

struct PropertyList(Properties);

impl PropertyList {
    fn number(&mut self, name: &str, number: u64) {
        // A later value, from `unified`, replaces an earlier one.
        self.0.retain(|(known, _)| known != name);
        self.0.push((name.into(), Value::U64(number)));
    }
}

fn bytes(bound: Bound) -> u64 {
    match bound {
        Bound::Max => INFINITY,
        Bound::At(bytes) => bytes,
    }
}

fn memory(limits: &Limits, v2: bool, out: &mut PropertyList) {
    let memory = &limits.memory;
    if let Some(limit) = memory.limit {
        out.number(if v2 { "MemoryMax" } else { "MemoryLimit" }, bytes(limit));
    }
    if !v2 {
        return;
    }
    match (memory.swap, memory.limit) {
        (Some(Bound::Max), _) => out.number("MemorySwapMax", INFINITY),
        (Some(Bound::At(both)), Some(Bound::At(limit))) => out.number("MemorySwapMax", both - limit),
        _ => {}
    }
    if let Some(low) = memory.reservation {
        out.number("MemoryLow", bytes(low));
    }
}

fn cpu(limits: &Limits, v2: bool, out: &mut PropertyList) {
    let cpu = &limits.cpu;
    match (v2, cpu.idle, cpu.shares) {
        // Since systemd 252; for an older version the property is dropped after it was refused.
        (true, Some(true), _) => out.number("CPUWeight", 0),
        (true, _, Some(shares)) => out.number("CPUWeight", weight_of_shares(shares)),
        (false, idle, Some(shares)) if idle != Some(true) => out.number("CPUShares", shares),
        _ => {}
    }
    if cpu.quota.is_some() || cpu.period.is_some() {
        quota(cpu.quota.unwrap_or(Bound::Max), cpu.period.unwrap_or(DEFAULT_PERIOD), out);
    }
}

fn quota(quota: Bound, period: u64, out: &mut PropertyList) {
    if period != DEFAULT_PERIOD {
        out.number("CPUQuotaPeriodUSec", period);
    }
    let per_second = match quota {
        Bound::Max => INFINITY,
        Bound::At(quota) => (quota.saturating_mul(1_000_000) / period.max(1)).next_multiple_of(QUOTA_STEP),
    };
    out.number("CPUQuotaPerSecUSec", per_second);
}

/// Converts the entries of `unified` that systemd supports; it does not change the files of the others.
fn unified(limits: &Limits, out: &mut PropertyList) {
    for (_, file, value) in &limits.unified {
        let value = value.trim();
        let number = if value == "max" { Some(INFINITY) } else { value.parse().ok() };
        match (file.as_str(), number) {
            ("memory.max", Some(number)) => out.number("MemoryMax", number),
            ("memory.high", Some(number)) => out.number("MemoryHigh", number),
            ("memory.low", Some(number)) => out.number("MemoryLow", number),
            ("memory.min", Some(number)) => out.number("MemoryMin", number),
            ("memory.swap.max", Some(number)) => out.number("MemorySwapMax", number),
            ("pids.max", Some(number)) => out.number(TASKS_MAX, number),
            ("cpu.weight", Some(number)) => out.number("CPUWeight", number),
            ("cpu.idle", Some(1)) => out.number("CPUWeight", 0),
            ("cpu.max", _) => {
                let mut words = value.split_whitespace();
                let first = words.next().unwrap_or("max");
                let period = words.next().and_then(|word| word.parse().ok()).unwrap_or(DEFAULT_PERIOD);
                let bound = first.parse().map_or(Bound::Max, Bound::At);
                quota(bound, period, out);
            }
            ("cpuset.cpus" | "cpuset.mems", _) if !value.is_empty() => {
                let name = if file == "cpuset.cpus" { "AllowedCPUs" } else { "AllowedMemoryNodes" };
                out.0.retain(|(known, _)| known != name);
                out.0.push((name.into(), Value::bytes(&bit_mask(value))));
            }
            _ => {}
        }
    }
}

/// Converts a list such as `0-3,7` to a bit mask: number n is bit n % 8 of byte n / 8. An invalid list is not reported
/// here, because the kernel refuses it.
fn bit_mask(list: &str) -> Vec<u8> {
    let mut mask = Vec::new();
    for part in list.split(',') {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let (Ok(from), Ok(to)) = (from.trim().parse::<usize>(), to.trim().parse::<usize>()) else { continue };
        for n in from..=to.min(65_535) {
            if mask.len() <= n / 8 {
                mask.resize(n / 8 + 1, 0);
            }
            mask[n / 8] |= 1 << (n % 8);
        }
    }
    mask
}

/// Converts a device policy to systemd's list of allowed devices. systemd does not support a list of denied devices:
/// the policy is `auto` then, and the list is applied only through the kernel.
fn devices(policy: &DevicePolicy, out: &mut PropertyList) {
    let entry = |(name, access): (String, String)| Value::Struct(vec![Value::Text(name), Value::Text(access)]);
    let allowed =
        if policy.allow { Vec::new() } else { policy.exceptions.iter().filter_map(device).map(entry).collect() };
    out.0.push(("DevicePolicy".into(), Value::text(if policy.allow { "auto" } else { "strict" })));
    // An empty assignment clears the list, so that an update replaces it.
    out.0.push(("DeviceAllow".into(), Value::List("(ss)".into(), Vec::new())));
    if !allowed.is_empty() {
        out.0.push(("DeviceAllow".into(), Value::List("(ss)".into(), allowed)));
    }
}

/// Formats an exception: `/dev/char/1:3 rwm`, `char-pts rwm`, `char-* m`. Returns `None` if systemd cannot express it.
fn device(exception: &Exception) -> Option<(String, String)> {
    let kind = if exception.kind == Kind::Char { "char" } else { "block" };
    let name = match (exception.major, exception.minor) {
        (Some(major), Some(minor)) => format!("/dev/{kind}/{major}:{minor}"),
        (Some(major), None) => format!("{kind}-{}", driver(exception.kind, major)?),
        (None, None) => format!("{kind}-*"),
        (None, Some(_)) => return None,
    };
    Some((name, exception.access.text()))
}

/// Looks up the driver name of a major number in proc_devices(5).
fn driver(kind: Kind, major: u32) -> Option<String> {
    let list = std::fs::read_to_string("/proc/devices").ok()?;
    let heading = if kind == Kind::Char { "Character devices:" } else { "Block devices:" };
    let lines = list.lines().skip_while(|line| *line != heading).skip(1).take_while(|line| !line.is_empty());
    let mut drivers = lines.filter_map(|line| line.trim().split_once(' '));
    drivers.find(|(number, _)| number.parse() == Ok(major)).map(|(_, name)| name.to_owned())
}

/// Returns the accounting properties that make systemd enable the controllers for the unit.
pub(super) fn accounting(v2: bool) -> Properties {
    let io = if v2 { "IOAccounting" } else { "BlockIOAccounting" };
    ["MemoryAccounting", "CPUAccounting", "TasksAccounting", io].map(|name| (name.into(), Value::Bool(true))).into()
}

/// Reports whether a property can be dropped if this version of systemd does not support it or its value: it comes only
/// from limits, which are also written to the kernel files.
pub(super) fn is_optional(name: &str) -> bool {
    const OPTIONAL: [&str; 6] =
        ["AllowedCPUs", "AllowedMemoryNodes", "CPUQuotaPeriodUSec", "CPUWeight", "MemoryMin", "BlockIOAccounting"];
    OPTIONAL.contains(&name)
}

#[cfg(test)]
mod tests;
