//! Converts limits to values of v2 files. The specification uses the values of v1; the conversions are those of current
//! runc and crun.

use crate::{
    Error,
    controller::Controller,
    convert_v1,
    limits::{Bound, Limits, SHARES_MAX},
    setting::Setting,
};

/// The default CPU period of the kernel, µs.
const DEFAULT_PERIOD: u64 = 100_000;

fn word(bound: Bound) -> String {
    match bound {
        Bound::Max => "max".into(),
        Bound::At(n) => n.to_string(),
    }
}

/// Converts `cpu.shares` (2 to 262144, default 1024) to `cpu.weight` (1 to 10000, default 100), by a curve through both
/// ends and the two defaults that is quadratic in the logarithms. The former linear conversion gave 1024 shares a
/// weight of 39, so that a container with a request of one CPU lost against any process in the root cgroup.
pub(crate) fn weight_of_shares(shares: u64) -> u64 {
    match shares {
        0..=2 => 1,
        SHARES_MAX.. => 10_000,
        shares => {
            let log = (shares as f64).log2();
            let exponent = (log * log + 125.0 * log) / 612.0 - 7.0 / 34.0;
            10f64.powf(exponent).ceil() as u64
        }
    }
}

/// Converts `blkio.weight` (10 to 1000) to `io.weight` (1 to 10000).
pub(crate) fn weight_of_blkio(weight: u16) -> u64 {
    1 + u64::from(weight.saturating_sub(10)) * 9999 / 990
}

/// Refuses limits that v2 does not support.
pub(crate) fn check(limits: &Limits) -> Result<(), Error> {
    if limits.cpu.rt_runtime.is_some() || limits.cpu.rt_period.is_some() {
        return Err(Error::invalid("cpu.realtimeRuntime", "cgroup v2 has no real-time limits; remove the field"));
    }
    if limits.memory.disable_oom_killer {
        return Err(Error::invalid(
            "memory.disableOOMKiller",
            "cgroup v2 cannot disable the OOM killer; remove the field",
        ));
    }
    if limits.memory.kernel_tcp.is_some_and(|tcp| tcp != Bound::Max) {
        return Err(Error::invalid("memory.kernelTCP", "cgroup v2 counts TCP buffers as memory; remove the field"));
    }
    Ok(())
}

pub(crate) fn settings(limits: &Limits, controller: Controller) -> Vec<Setting> {
    let mut out = match controller {
        Controller::Cpu => cpu(limits),
        Controller::Cpuset => convert_v1::settings(limits, Controller::Cpuset),
        Controller::Memory => memory(limits),
        Controller::Blkio => io(limits),
        Controller::Pids => convert_v1::pids(limits),
        Controller::Hugetlb => hugetlb(limits),
        Controller::Rdma => convert_v1::rdma(limits),
        _ => Vec::new(),
    };
    for (_, file, value) in limits.unified.iter().filter(|(of, ..)| *of == controller) {
        out.extend(value.lines().map(|line| Setting::new("unified", file, line)));
    }
    out
}

fn cpu(limits: &Limits) -> Vec<Setting> {
    let cpu = &limits.cpu;
    let mut out = Vec::new();
    if cpu.idle == Some(false) {
        out.push(Setting::new("cpu.idle", "cpu.idle", 0));
    }
    if let Some(shares) = cpu.shares.filter(|_| cpu.idle != Some(true)) {
        out.push(Setting::new("cpu.shares", "cpu.weight", weight_of_shares(shares)));
    }
    if cpu.idle == Some(true) {
        out.push(Setting::new("cpu.idle", "cpu.idle", 1));
    }
    match (cpu.quota, cpu.period) {
        (None, None) => {}
        // Without a period in the value the kernel keeps the current one.
        (Some(quota), None) => out.push(Setting::new("cpu.quota", "cpu.max", word(quota))),
        (quota, Some(period)) => {
            let quota = word(quota.unwrap_or(Bound::Max));
            // `max` with the default period changes nothing, so it is not written.
            if quota != "max" || period != DEFAULT_PERIOD || cpu.quota.is_some() {
                out.push(Setting::new("cpu.quota", "cpu.max", format!("{quota} {period}")));
            }
        }
    }
    if let Some(burst) = cpu.burst {
        let setting = Setting::new("cpu.burst", "cpu.max.burst", burst);
        out.push(if burst == 0 { setting.optional() } else { setting });
    }
    out
}

fn memory(limits: &Limits) -> Vec<Setting> {
    let memory = &limits.memory;
    let mut out = Vec::new();
    let swap = match (memory.swap, memory.limit) {
        (Some(Bound::Max), _) => Some(Bound::Max),
        (Some(Bound::At(both)), Some(Bound::At(limit))) => Some(Bound::At(both - limit)),
        _ => None,
    };
    if let Some(swap) = swap {
        let setting = Setting::new("memory.swap", "memory.swap.max", word(swap));
        out.push(if matches!(swap, Bound::At(1..)) { setting } else { setting.optional() });
    }
    if let Some(limit) = memory.limit {
        out.push(Setting::new("memory.limit", "memory.max", word(limit)));
    }
    if let Some(low) = memory.reservation {
        out.push(Setting::new("memory.reservation", "memory.low", word(low)));
    }
    out
}

fn io(limits: &Limits) -> Vec<Setting> {
    let io = &limits.block_io;
    let mut out = Vec::new();
    if let Some(weight) = io.weight.filter(|w| *w != 0) {
        let setting = Setting::new("blockIO.weight", "io.bfq.weight", weight);
        out.push(setting.or("io.weight", weight_of_blkio(weight)));
    }
    for device in &io.weight_device {
        if let Some(weight) = device.weight.filter(|w| *w != 0) {
            let name = format!("{}:{}", device.major, device.minor);
            let setting = Setting::new("blockIO.weightDevice", "io.bfq.weight", format!("{name} {weight}"));
            out.push(setting.or("io.weight", format!("{name} {}", weight_of_blkio(weight))));
        }
    }
    let throttles = [
        ("blockIO.throttleReadBpsDevice", "rbps", &io.throttle_read_bps_device),
        ("blockIO.throttleWriteBpsDevice", "wbps", &io.throttle_write_bps_device),
        ("blockIO.throttleReadIOPSDevice", "riops", &io.throttle_read_iops_device),
        ("blockIO.throttleWriteIOPSDevice", "wiops", &io.throttle_write_iops_device),
    ];
    for (field, key, devices) in throttles {
        // In the specification 0 means "no limit", as on v1.
        let value = |rate: u64| if rate == 0 { "max".to_owned() } else { rate.to_string() };
        let line = |d: &oci::ThrottleDevice| format!("{}:{} {key}={}", d.major, d.minor, value(d.rate));
        out.extend(devices.iter().map(|d| Setting::new(field, "io.max", line(d))));
    }
    out
}

fn hugetlb(limits: &Limits) -> Vec<Setting> {
    let pair = |(size, bytes): &(String, u64)| {
        let usage = Setting::new("hugepageLimits", format!("hugetlb.{size}.max"), bytes);
        // The kubelet sets a limit of 0 for every size that a pod does not request; on a machine without accounting of
        // huge pages that is optional.
        let usage = if *bytes == 0 { usage.optional() } else { usage };
        [usage, Setting::new("hugepageLimits", format!("hugetlb.{size}.rsvd.max"), bytes).optional()]
    };
    limits.hugepages.iter().flat_map(pair).collect()
}

#[cfg(test)]
mod tests;
