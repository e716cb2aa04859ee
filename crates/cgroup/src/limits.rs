//! Parses `linux.resources`. Values that are invalid on every kernel are refused here, before a group is created.

use oci::{BlockIo, Resources};

use crate::{Error, controller::Controller, devices::DevicePolicy};

/// The largest `cpu.shares` that the kernel accepts.
pub(crate) const SHARES_MAX: u64 = 262_144;
/// The longest value of an entry of `unified`, in bytes.
const UNIFIED_VALUE_MAX: usize = 4096;

/// Validated resources of the spec. The default restricts nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Limits {
    pub(crate) cpu: Cpu,
    pub(crate) cpuset: Cpuset,
    pub(crate) memory: Memory,
    pub(crate) pids: Option<Bound>,
    pub(crate) block_io: BlockIo,
    /// Page size (`2MB`) and bytes.
    pub(crate) hugepages: Vec<(String, u64)>,
    pub(crate) class_id: Option<u32>,
    /// Interface and priority.
    pub(crate) priorities: Vec<(String, u32)>,
    /// Lines of `rdma.max`, one per device.
    pub(crate) rdma: Vec<String>,
    pub(crate) devices: Option<DevicePolicy>,
    /// Controller, v2 file and value.
    pub(crate) unified: Vec<(Controller, String, String)>,
    pub(crate) nesting: Option<Nesting>,
}

/// Limits of the groups that a container may create below its own, in the v2 tree (cgroups(7), Linux 4.14). Its exec
/// groups count, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nesting {
    /// The value of `cgroup.max.depth`.
    pub depth: u32,
    /// The value of `cgroup.max.descendants`.
    pub descendants: u32,
}

/// A number, or no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bound {
    Max,
    At(u64),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cpu {
    pub(crate) shares: Option<u64>,
    pub(crate) quota: Option<Bound>,
    pub(crate) period: Option<u64>,
    pub(crate) burst: Option<u64>,
    pub(crate) idle: Option<bool>,
    pub(crate) rt_runtime: Option<i64>,
    pub(crate) rt_period: Option<u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cpuset {
    pub(crate) cpus: Option<String>,
    pub(crate) mems: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Memory {
    pub(crate) limit: Option<Bound>,
    /// Memory plus swap, as on v1; not less than `limit`.
    pub(crate) swap: Option<Bound>,
    pub(crate) reservation: Option<Bound>,
    pub(crate) kernel_tcp: Option<Bound>,
    pub(crate) swappiness: Option<u64>,
    pub(crate) disable_oom_killer: bool,
    pub(crate) check_before_update: bool,
}

impl Limits {
    /// Limits nested groups. v1 trees do not support this limit.
    #[must_use]
    pub fn with_nesting(self, nesting: Nesting) -> Self {
        Self { nesting: Some(nesting), ..self }
    }

    /// Validates the resources of a spec. As in runc, for shares, quota, period and memory 0 means "not set" and -1 "no
    /// limit".
    ///
    /// If a rule of `resources.devices` denies devices, those that every container must have (`/dev/null`, ptys, mknod,
    /// …) are allowed after the last rule. An empty list restricts nothing: see [`Limits::with_default_devices`].
    pub fn from_spec(resources: &Resources) -> Result<Self, Error> {
        let mut limits = Self {
            pids: resources.pids.as_ref().and_then(|pids| pids.limit).map(tasks),
            block_io: resources.block_io.clone().unwrap_or_default(),
            devices: DevicePolicy::from_spec(&resources.devices)?,
            ..Self::default()
        };
        if let Some(cpu) = &resources.cpu {
            limits.cpu = parse_cpu(cpu)?;
            limits.cpuset =
                Cpuset { cpus: parse_list("cpu.cpus", &cpu.cpus)?, mems: parse_list("cpu.mems", &cpu.mems)? };
        }
        if let Some(memory) = &resources.memory {
            limits.memory = parse_memory(memory)?;
        }
        check_block_io(&limits.block_io)?;
        for huge in &resources.hugepage_limits {
            check_page_size(&huge.page_size)?;
            limits.hugepages.push((huge.page_size.clone(), huge.limit));
        }
        if let Some(network) = &resources.network {
            limits.class_id = network.class_id.filter(|id| *id != 0);
            for priority in &network.priorities {
                if priority.name.is_empty() || priority.name.contains(|c: char| c.is_whitespace() || c == '/') {
                    return Err(Error::invalid(
                        "network.priorities",
                        format!("{:?} is not an interface name", priority.name),
                    ));
                }
                limits.priorities.push((priority.name.clone(), priority.priority));
            }
        }
        for (device, rdma) in &resources.rdma {
            limits.rdma.push(parse_rdma(device, rdma)?);
        }
        for (file, value) in &resources.unified {
            limits.unified.push((check_unified(file, value)?, file.clone(), value.clone()));
        }
        Ok(limits)
    }

    /// If the spec has no device rules, denies all devices but those that every container must have.
    #[must_use]
    pub fn with_default_devices(mut self) -> Self {
        self.devices.get_or_insert_with(DevicePolicy::default);
        self
    }

    /// Allows all devices, whatever the rules are (a privileged container).
    #[must_use]
    pub fn with_all_devices(mut self) -> Self {
        self.devices = None;
        self
    }
}

/// Converts a number: negative means no limit, as in `cpu.cfs_quota_us`; 0 means not set.
fn bound(value: i64) -> Option<Bound> {
    match value {
        0 => None,
        n if n < 0 => Some(Bound::Max),
        n => Some(Bound::At(n as u64)),
    }
}

/// Converts bytes of memory: -1 means no limit, 0 not set. Other negative numbers are invalid, for the kernel, too.
fn bytes(field: &str, value: Option<i64>) -> Result<Option<Bound>, Error> {
    match value {
        Some(n) if n < -1 => Err(Error::invalid(field, format!("{n} is neither a number of bytes nor -1 (no limit)"))),
        value => Ok(value.and_then(bound)),
    }
}

/// Converts `pids.limit`. Since version 1.3 of the specification 0 is a limit and not the same as absent. As in runc,
/// it is applied as 1, the minimum of systemd: with either the init cannot fork, but with 0 it could not be cloned into
/// the group.
fn tasks(limit: i64) -> Bound {
    match limit {
        n if n < 0 => Bound::Max,
        n => Bound::At(n.max(1) as u64),
    }
}

fn parse_cpu(cpu: &oci::Cpu) -> Result<Cpu, Error> {
    let shares = cpu.shares.filter(|shares| *shares != 0);
    if let Some(shares) = shares.filter(|shares| *shares > SHARES_MAX) {
        return Err(Error::invalid("cpu.shares", format!("{shares} is more than {SHARES_MAX}")));
    }
    let idle = match cpu.idle {
        None => None,
        Some(0) => Some(false),
        Some(1) => Some(true),
        Some(other) => return Err(Error::invalid("cpu.idle", format!("{other} is neither 0 nor 1"))),
    };
    Ok(Cpu {
        shares: shares.map(|shares| shares.max(2)),
        quota: cpu.quota.and_then(bound),
        period: cpu.period.filter(|period| *period != 0),
        burst: cpu.burst,
        idle,
        rt_runtime: cpu.realtime_runtime.filter(|runtime| *runtime != 0),
        rt_period: cpu.realtime_period.filter(|period| *period != 0),
    })
}

/// Validates a list such as `0-3,7`; an empty one means not set.
fn parse_list(field: &str, list: &Option<String>) -> Result<Option<String>, Error> {
    let Some(list) = list.as_deref().map(str::trim).filter(|list| !list.is_empty()) else { return Ok(None) };
    let number = |text: &str| text.parse::<u32>().ok().filter(|n| *n < 65_536);
    let ok = list.len() < 4096
        && list.split(',').all(|part| match part.split_once('-') {
            Some((from, to)) => number(from).zip(number(to)).is_some_and(|(from, to)| from <= to),
            None => number(part).is_some(),
        });
    match ok {
        true => Ok(Some(list.to_owned())),
        false => Err(Error::invalid(field, format!("{list:?} is not a list such as 0-3,7"))),
    }
}

fn parse_memory(memory: &oci::Memory) -> Result<Memory, Error> {
    let limit = bytes("memory.limit", memory.limit)?;
    let mut swap = bytes("memory.swap", memory.swap)?;
    match (limit, swap) {
        (None | Some(Bound::Max), Some(Bound::At(_))) => {
            return Err(Error::invalid("memory.swap", "it limits memory plus swap, so memory.limit must be set, too"));
        }
        (Some(Bound::At(limit)), Some(Bound::At(swap))) if swap < limit => {
            return Err(Error::invalid("memory.swap", format!("{swap} is less than memory.limit ({limit})")));
        }
        // Without a memory limit, an earlier limit of memory plus swap must be removed, too.
        (Some(Bound::Max), None) => swap = Some(Bound::Max),
        _ => {}
    }
    if let Some(swappiness) = memory.swappiness.filter(|swappiness| *swappiness > 100) {
        return Err(Error::invalid("memory.swappiness", format!("{swappiness} is more than 100")));
    }
    Ok(Memory {
        limit,
        swap,
        reservation: bytes("memory.reservation", memory.reservation)?,
        kernel_tcp: bytes("memory.kernelTCP", memory.kernel_tcp)?,
        swappiness: memory.swappiness,
        disable_oom_killer: memory.disable_oom_killer == Some(true),
        check_before_update: memory.check_before_update == Some(true),
    })
}

fn check_block_io(io: &BlockIo) -> Result<(), Error> {
    let weight = |field: &str, weight: Option<u16>| match weight {
        Some(w) if w != 0 && !(10..=1000).contains(&w) => {
            Err(Error::invalid(field, format!("{w} is not between 10 and 1000")))
        }
        _ => Ok(()),
    };
    weight("blockIO.weight", io.weight)?;
    weight("blockIO.leafWeight", io.leaf_weight)?;
    for device in &io.weight_device {
        weight("blockIO.weightDevice.weight", device.weight)?;
        weight("blockIO.weightDevice.leafWeight", device.leaf_weight)?;
    }
    let throttled = [
        &io.throttle_read_bps_device,
        &io.throttle_write_bps_device,
        &io.throttle_read_iops_device,
        &io.throttle_write_iops_device,
    ];
    let numbers = io.weight_device.iter().map(|d| (d.major, d.minor));
    for (major, minor) in numbers.chain(throttled.into_iter().flatten().map(|d| (d.major, d.minor))) {
        if major < 0 || minor < 0 {
            return Err(Error::invalid("blockIO", format!("device {major}:{minor} has a negative number")));
        }
    }
    Ok(())
}

/// Formats a line of `rdma.max`, which is the same on v1 and v2.
fn parse_rdma(device: &str, rdma: &oci::Rdma) -> Result<String, Error> {
    if device.is_empty() || device.len() > 64 || device.contains(char::is_whitespace) {
        let device: String = device.chars().take(64).collect();
        return Err(Error::invalid("rdma", format!("{device:?} is not a name of an RDMA device")));
    }
    let word = |limit: Option<u32>| limit.map_or("max".to_owned(), |n| n.to_string());
    Ok(format!("{device} hca_handle={} hca_object={}", word(rdma.hca_handles), word(rdma.hca_objects)))
}

/// Validates a page size as in the kernel's file names: `64KB`, `2MB`, `1GB`.
fn check_page_size(size: &str) -> Result<(), Error> {
    let digits = size.strip_suffix("KB").or_else(|| size.strip_suffix("MB")).or_else(|| size.strip_suffix("GB"));
    match digits.map(str::parse::<u32>) {
        Some(Ok(n)) if n > 0 && digits.is_some_and(|d| d.len() <= 4 && !d.starts_with(['0', '+'])) => Ok(()),
        _ => Err(Error::invalid("hugepageLimits.pageSize", format!("{size:?} is not a page size such as 2MB"))),
    }
}

/// Checks an entry of `unified`: the key must be a file name of a controller. Paths and files of the cgroup core are
/// refused, with which a spec could move processes or undo settings on which the runtime relies.
fn check_unified(file: &str, value: &str) -> Result<Controller, Error> {
    let shape = |c: char| {
        c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '_' | '-') || c.is_ascii_uppercase()
    };
    if file.len() > 255 || !file.chars().all(shape) || file.contains("..") {
        return Err(Error::invalid(
            "unified",
            format!("{:?} is not a file name", file.chars().take(64).collect::<String>()),
        ));
    }
    if value.len() > UNIFIED_VALUE_MAX {
        return Err(Error::invalid(format!("unified.{file}"), "the value is longer than 4096 bytes"));
    }
    Controller::from_v2_file(file)
        .ok_or_else(|| Error::invalid("unified", format!("{file:?} is not a file of a controller such as memory.high")))
}

#[cfg(test)]
mod tests;
