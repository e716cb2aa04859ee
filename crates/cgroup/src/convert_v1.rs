//! Converts limits to values of v1 files.

use crate::{
    controller::Controller,
    limits::{Bound, Limits},
    setting::Setting,
};

fn number(bound: Bound) -> String {
    match bound {
        Bound::Max => "-1".into(),
        Bound::At(n) => n.to_string(),
    }
}

pub(crate) fn settings(limits: &Limits, controller: Controller) -> Vec<Setting> {
    match controller {
        Controller::Cpu => cpu(limits),
        Controller::Cpuset => {
            let cpus = limits.cpuset.cpus.iter().map(|list| Setting::new("cpu.cpus", "cpuset.cpus", list));
            cpus.chain(limits.cpuset.mems.iter().map(|list| Setting::new("cpu.mems", "cpuset.mems", list))).collect()
        }
        Controller::Memory => memory(limits),
        Controller::Blkio => blkio(limits),
        Controller::Pids => pids(limits),
        Controller::Hugetlb => hugetlb(limits),
        Controller::NetCls => {
            limits.class_id.iter().map(|id| Setting::new("network.classID", "net_cls.classid", id)).collect()
        }
        Controller::NetPrio => {
            let line = |(name, priority): &(String, u32)| {
                Setting::new("network.priorities", "net_prio.ifpriomap", format!("{name} {priority}"))
            };
            limits.priorities.iter().map(line).collect()
        }
        Controller::Rdma => rdma(limits),
        Controller::Cpuacct | Controller::Devices | Controller::Freezer | Controller::Misc => Vec::new(),
    }
}

fn cpu(limits: &Limits) -> Vec<Setting> {
    let cpu = &limits.cpu;
    let mut out = Vec::new();
    // The kernel refuses shares while the group is idle.
    if cpu.idle == Some(false) {
        out.push(Setting::new("cpu.idle", "cpu.idle", 0));
    }
    if let Some(shares) = cpu.shares.filter(|_| cpu.idle != Some(true)) {
        out.push(Setting::new("cpu.shares", "cpu.shares", shares));
    }
    if cpu.idle == Some(true) {
        out.push(Setting::new("cpu.idle", "cpu.idle", 1));
    }
    if let Some(period) = cpu.rt_period {
        out.push(Setting::new("cpu.realtimePeriod", "cpu.rt_period_us", period));
    }
    if let Some(runtime) = cpu.rt_runtime {
        out.push(Setting::new("cpu.realtimeRuntime", "cpu.rt_runtime_us", runtime));
    }
    if let Some(period) = cpu.period {
        out.push(Setting::new("cpu.period", "cpu.cfs_period_us", period));
    }
    if let Some(quota) = cpu.quota {
        out.push(Setting::new("cpu.quota", "cpu.cfs_quota_us", number(quota)));
    }
    if let Some(burst) = cpu.burst {
        let setting = Setting::new("cpu.burst", "cpu.cfs_burst_us", burst);
        out.push(if burst == 0 { setting.optional() } else { setting });
    }
    out
}

fn memory(limits: &Limits) -> Vec<Setting> {
    let memory = &limits.memory;
    let mut out = Vec::new();
    if let Some(limit) = memory.limit {
        out.push(Setting::new("memory.limit", "memory.limit_in_bytes", number(limit)));
    }
    if let Some(swap) = memory.swap {
        // A kernel without swap accounting does not have this file. "No swap beyond memory" is acceptable there.
        let setting = Setting::new("memory.swap", "memory.memsw.limit_in_bytes", number(swap));
        let needed = matches!(swap, Bound::At(_)) && memory.limit != Some(swap);
        out.push(if needed { setting } else { setting.optional() });
    }
    if let Some(soft) = memory.reservation {
        out.push(Setting::new("memory.reservation", "memory.soft_limit_in_bytes", number(soft)));
    }
    if let Some(tcp) = memory.kernel_tcp {
        out.push(Setting::new("memory.kernelTCP", "memory.kmem.tcp.limit_in_bytes", number(tcp)));
    }
    if let Some(swappiness) = memory.swappiness {
        out.push(Setting::new("memory.swappiness", "memory.swappiness", swappiness));
    }
    if memory.disable_oom_killer {
        out.push(Setting::new("memory.disableOOMKiller", "memory.oom_control", 1));
    }
    out
}

pub(crate) fn pids(limits: &Limits) -> Vec<Setting> {
    let value = |bound: Bound| match bound {
        Bound::Max => "max".to_owned(),
        Bound::At(n) => n.to_string(),
    };
    limits.pids.into_iter().map(|limit| Setting::new("pids.limit", "pids.max", value(limit))).collect()
}

pub(crate) fn rdma(limits: &Limits) -> Vec<Setting> {
    limits.rdma.iter().map(|line| Setting::new("rdma", "rdma.max", line)).collect()
}

fn blkio(limits: &Limits) -> Vec<Setting> {
    let io = &limits.block_io;
    let mut out = Vec::new();
    if let Some(weight) = io.weight.filter(|w| *w != 0) {
        out.push(Setting::new("blockIO.weight", "blkio.bfq.weight", weight).or("blkio.weight", weight));
    }
    if let Some(weight) = io.leaf_weight.filter(|w| *w != 0) {
        out.push(Setting::new("blockIO.leafWeight", "blkio.leaf_weight", weight));
    }
    for device in &io.weight_device {
        let name = format!("{}:{}", device.major, device.minor);
        if let Some(weight) = device.weight.filter(|w| *w != 0) {
            let line = format!("{name} {weight}");
            let setting = Setting::new("blockIO.weightDevice", "blkio.bfq.weight_device", &line);
            out.push(setting.or("blkio.weight_device", line));
        }
        if let Some(weight) = device.leaf_weight.filter(|w| *w != 0) {
            out.push(Setting::new("blockIO.weightDevice", "blkio.leaf_weight_device", format!("{name} {weight}")));
        }
    }
    let throttles = [
        ("blockIO.throttleReadBpsDevice", "blkio.throttle.read_bps_device", &io.throttle_read_bps_device),
        ("blockIO.throttleWriteBpsDevice", "blkio.throttle.write_bps_device", &io.throttle_write_bps_device),
        ("blockIO.throttleReadIOPSDevice", "blkio.throttle.read_iops_device", &io.throttle_read_iops_device),
        ("blockIO.throttleWriteIOPSDevice", "blkio.throttle.write_iops_device", &io.throttle_write_iops_device),
    ];
    for (field, file, devices) in throttles {
        out.extend(devices.iter().map(|d| Setting::new(field, file, format!("{}:{} {}", d.major, d.minor, d.rate))));
    }
    out
}

fn hugetlb(limits: &Limits) -> Vec<Setting> {
    let pair = |(size, bytes): &(String, u64)| {
        let usage = Setting::new("hugepageLimits", format!("hugetlb.{size}.limit_in_bytes"), bytes);
        // The kubelet sets a limit of 0 for every size that a pod does not request; on a machine without accounting of
        // huge pages that is optional.
        let usage = if *bytes == 0 { usage.optional() } else { usage };
        let reserved = Setting::new("hugepageLimits", format!("hugetlb.{size}.rsvd.limit_in_bytes"), bytes);
        [usage, reserved.optional()]
    };
    limits.hugepages.iter().flat_map(pair).collect()
}
