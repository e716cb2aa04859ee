//! `process.scheduler`, `process.ioPriority`, `process.execCPUAffinity`.

use rustix::thread::{CpuSet, sched_setaffinity};
use syscall::scheduling::{SchedulerAttributes, reset_cpu_affinity, set_io_priority, set_scheduler};

use crate::{Error, error::During, spec_string::number_list};

const POLICIES: [(&str, u32); 7] = [
    ("SCHED_OTHER", 0),
    ("SCHED_FIFO", 1),
    ("SCHED_RR", 2),
    ("SCHED_BATCH", 3),
    ("SCHED_ISO", 4),
    ("SCHED_IDLE", 5),
    ("SCHED_DEADLINE", 6),
];
const FLAGS: [(&str, u64); 7] = [
    ("SCHED_FLAG_RESET_ON_FORK", 0x01),
    ("SCHED_FLAG_RECLAIM", 0x02),
    ("SCHED_FLAG_DL_OVERRUN", 0x04),
    ("SCHED_FLAG_KEEP_POLICY", 0x08),
    ("SCHED_FLAG_KEEP_PARAMS", 0x10),
    ("SCHED_FLAG_UTIL_CLAMP_MIN", 0x20),
    ("SCHED_FLAG_UTIL_CLAMP_MAX", 0x40),
];
const IO_CLASSES: [(&str, u8); 3] = [("IOPRIO_CLASS_RT", 1), ("IOPRIO_CLASS_BE", 2), ("IOPRIO_CLASS_IDLE", 3)];

/// CPU and I/O scheduling of the process.
#[derive(Debug, Default)]
pub(crate) struct Scheduling {
    attributes: Option<SchedulerAttributes>,
    /// I/O priority: class and level.
    io: Option<(u8, u8)>,
}

impl Scheduling {
    pub(crate) fn parse(process: &oci::Process) -> Result<Self, Error> {
        Ok(Self {
            attributes: process.scheduler.as_ref().map(attributes).transpose()?,
            io: process.io_priority.as_ref().map(io_priority).transpose()?,
        })
    }

    /// Sets the scheduling. Runs in the child, while it has its capabilities.
    pub(crate) fn apply(&self) -> Result<(), Error> {
        if let Some(attributes) = self.attributes {
            set_scheduler(attributes).during(|| format!("set process.scheduler ({})", describe(attributes)))?;
        }
        if let Some((class, level)) = self.io {
            set_io_priority(class, level)
                .during(|| format!("set process.ioPriority (class {class}, level {level})"))?;
        }
        Ok(())
    }
}

/// Formats the policy and all values other than 0, for messages.
fn describe(attributes: SchedulerAttributes) -> String {
    let SchedulerAttributes { policy, flags, nice, priority, runtime, deadline, period, .. } = attributes;
    let policy = POLICIES.iter().find(|(_, number)| *number == policy).map_or("policy", |(name, _)| *name);
    let numbers = [
        ("nice", i128::from(nice)),
        ("priority", i128::from(priority)),
        ("runtime", i128::from(runtime)),
        ("deadline", i128::from(deadline)),
        ("period", i128::from(period)),
    ];
    let set = numbers.iter().filter(|(_, number)| *number != 0).map(|(name, number)| format!(", {name} {number}"));
    let flags = FLAGS.iter().filter(|(_, bit)| flags & bit != 0).map(|(name, _)| format!(", {name}"));
    set.chain(flags).fold(policy.to_owned(), |text, part| text + &part)
}

fn attributes(scheduler: &oci::Scheduler) -> Result<SchedulerAttributes, Error> {
    let invalid = |message: String| Err(Error::invalid(format!("process.scheduler.{message}")));
    let name = scheduler.policy.as_str();
    let Some(policy) = find(&POLICIES, name) else { return invalid(format!("policy: {name:?} is unknown")) };
    let real_time = matches!(name, "SCHED_FIFO" | "SCHED_RR");
    if !(-20..=19).contains(&scheduler.nice) {
        return invalid(format!("nice: {} is not between -20 and 19", scheduler.nice));
    }
    if scheduler.priority != 0 && !real_time || !(0..=99).contains(&scheduler.priority) {
        return invalid(format!("priority: {} is for SCHED_FIFO and SCHED_RR, 1 to 99", scheduler.priority));
    }
    if name != "SCHED_DEADLINE" && (scheduler.runtime, scheduler.deadline, scheduler.period) != (0, 0, 0) {
        return invalid("runtime, deadline, period: are for SCHED_DEADLINE".to_owned());
    }
    let mut flags = 0;
    for flag in &scheduler.flags {
        match find(&FLAGS, flag) {
            Some(bit) => flags |= bit,
            None => return invalid(format!("flags: {flag:?} is unknown")),
        }
    }
    let mut attributes = SchedulerAttributes::default();
    (attributes.policy, attributes.flags) = (policy, flags);
    (attributes.nice, attributes.priority) = (scheduler.nice, scheduler.priority as u32);
    (attributes.runtime, attributes.deadline, attributes.period) =
        (scheduler.runtime, scheduler.deadline, scheduler.period);
    Ok(attributes)
}

fn io_priority(priority: &oci::IoPriority) -> Result<(u8, u8), Error> {
    let Some(class) = find(&IO_CLASSES, &priority.class) else {
        return Err(Error::invalid(format!("process.ioPriority.class: {:?} is unknown", priority.class)));
    };
    match u8::try_from(priority.priority) {
        Ok(level @ 0..=7) => Ok((class, level)),
        _ => Err(Error::invalid(format!("process.ioPriority.priority: {} is not between 0 and 7", priority.priority))),
    }
}

fn find<T: Copy>(table: &[(&str, T)], name: &str) -> Option<T> {
    table.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
}

/// CPU affinity of an exec'd process before and after it joins the container's cgroups.
#[derive(Debug, Default)]
pub(crate) struct Affinity {
    initial: Option<CpuSet>,
    last: Option<CpuSet>,
}

impl Affinity {
    pub(crate) fn parse(process: &oci::Process) -> Result<Self, Error> {
        let Some(affinity) = &process.exec_cpu_affinity else { return Ok(Self::default()) };
        let parse = |field: &str, list: &Option<String>| {
            let list = list.as_deref().filter(|list| !list.is_empty());
            list.map(|list| cpus(&format!("process.execCPUAffinity.{field}"), list)).transpose()
        };
        Ok(Self { initial: parse("initial", &affinity.initial)?, last: parse("final", &affinity.last)? })
    }

    pub(crate) fn before_joining(&self) -> Result<(), Error> {
        set(self.initial.as_ref(), "initial")
    }

    /// Sets the affinity after the process has joined the cgroups. Without one of its own, the caller's is reset.
    pub(crate) fn after_joining(&self) -> Result<(), Error> {
        if self.initial.is_none() && self.last.is_none() {
            reset_affinity();
        }
        set(self.last.as_ref(), "final")
    }
}

/// Resets the CPU affinity, so that the caller's (taskset(1), `CPUAffinity=` of its unit) does not apply to the
/// container, as in runc and crun. Runs in the child, once it is in its cpuset. If the kernel refuses it (a seccomp
/// filter of an outer container), the caller's affinity stays.
pub(crate) fn reset_affinity() {
    let _ = reset_cpu_affinity();
}

fn set(cpus: Option<&CpuSet>, field: &str) -> Result<(), Error> {
    match cpus {
        Some(cpus) => sched_setaffinity(None, cpus).during(|| format!("set process.execCPUAffinity.{field}: {cpus:?}")),
        None => Ok(()),
    }
}

fn cpus(field: &str, list: &str) -> Result<CpuSet, Error> {
    let mut set = CpuSet::new();
    for cpu in number_list(field, list, CpuSet::MAX_CPU)? {
        set.set(cpu);
    }
    Ok(set)
}
