//! Adjustments of what the specification has below `linux`, and of the process where the kernel is concerned.

use nri::messages::{self, AdjustmentLinux};
use oci::{DeviceKind, NamespaceType};
use rustix::fs::{Mode, OFlags};

use super::removed;
use crate::{
    Error,
    container::{prepare::Draft, spec::devices},
    plugins::{namespace_kind, resources},
};

/// Scheduling policies by their numbers in the protocol.
const POLICIES: [&str; 7] =
    ["SCHED_OTHER", "SCHED_FIFO", "SCHED_RR", "SCHED_BATCH", "SCHED_ISO", "SCHED_IDLE", "SCHED_DEADLINE"];
const SCHEDULER_FLAGS: [&str; 7] = [
    "SCHED_FLAG_RESET_ON_FORK",
    "SCHED_FLAG_RECLAIM",
    "SCHED_FLAG_DL_OVERRUN",
    "SCHED_FLAG_KEEP_POLICY",
    "SCHED_FLAG_KEEP_PARAMS",
    "SCHED_FLAG_UTIL_CLAMP_MIN",
    "SCHED_FLAG_UTIL_CLAMP_MAX",
];
const MEMORY_MODES: [&str; 7] = [
    "MPOL_DEFAULT",
    "MPOL_PREFERRED",
    "MPOL_BIND",
    "MPOL_INTERLEAVE",
    "MPOL_LOCAL",
    "MPOL_PREFERRED_MANY",
    "MPOL_WEIGHTED_INTERLEAVE",
];
const MEMORY_FLAGS: [&str; 3] = ["MPOL_F_STATIC_NODES", "MPOL_F_RELATIVE_NODES", "MPOL_F_NUMA_BALANCING"];
const IO_CLASSES: [&str; 4] = ["IOPRIO_CLASS_NONE", "IOPRIO_CLASS_RT", "IOPRIO_CLASS_BE", "IOPRIO_CLASS_IDLE"];

pub(super) fn apply(draft: &mut Draft, new: AdjustmentLinux) -> Result<(), Error> {
    process(draft.spec.process.get_or_insert_default(), &new)?;
    let AdjustmentLinux { devices, resources, cgroups_path, namespaces, sysctl, net_devices, rdt, .. } = new;
    for device in devices {
        let path = device.path.clone();
        set_device(draft, device).map_err(|error| error.during(format!("device {path}")))?;
    }
    for namespace in namespaces {
        set_namespace(draft, &namespace)?;
    }
    let linux = draft.spec.linux.get_or_insert_default();
    if !cgroups_path.is_empty() {
        cgroup::GroupPath::parse(&cgroups_path).map_err(|e| Error::invalid(format!("cgroup path: {e}")))?;
        linux.cgroups_path = Some(cgroups_path);
    }
    for (key, value) in sysctl {
        match removed(&key) {
            Some(name) => _ = linux.sysctl.remove(name),
            None => _ = linux.sysctl.insert(key, value),
        }
    }
    for (host, device) in net_devices {
        match removed(&host) {
            Some(name) => _ = linux.net_devices.remove(name),
            None => {
                let name = Some(device.name).filter(|name| !name.is_empty());
                linux.net_devices.insert(host, oci::NetDevice { name });
            }
        }
    }
    if let Some(resources) = &resources {
        set_resources(linux, resources)?;
    }
    if let Some(rdt) = rdt {
        set_rdt(linux, rdt);
    }
    if let Some(policy) = new.memory_policy {
        let mode = named(&MEMORY_MODES, policy.mode, 0, "memory policy")?;
        let flags = names(&MEMORY_FLAGS, &policy.flags, "flag of a memory policy")?;
        linux.memory_policy = Some(oci::MemoryPolicy { mode, nodes: policy.nodes, flags });
    }
    if let Some(policy) = new.seccomp_policy {
        draft.seccomp = Some(seccomp(policy)?);
    }
    Ok(())
}

/// Returns the name of a number; `first` is the number of the first name.
fn named(list: &[&str], number: i32, first: i32, what: &str) -> Result<String, Error> {
    let index = number.checked_sub(first).and_then(|index| usize::try_from(index).ok());
    let name = index.and_then(|index| list.get(index));
    name.map(|name| (*name).to_owned()).ok_or_else(|| Error::invalid(format!("{what} {number}: it is not known")))
}

fn names(list: &[&str], numbers: &[i32], what: &str) -> Result<Vec<String>, Error> {
    numbers.iter().map(|number| named(list, *number, 0, what)).collect()
}

fn process(process: &mut oci::Process, new: &AdjustmentLinux) -> Result<(), Error> {
    if let Some(score) = &new.oom_score_adj {
        let score = i32::try_from(score.value).ok().filter(|score| (-1000..=1000).contains(score));
        process.oom_score_adj =
            Some(score.ok_or_else(|| Error::invalid("OOM score adjustment: it is not between -1000 and 1000"))?);
    }
    if let Some(priority) = &new.io_priority {
        let class = named(&IO_CLASSES, priority.class, 0, "class of an I/O priority")?;
        let none = priority.class == 0;
        process.io_priority = (!none).then(|| oci::IoPriority { class, priority: priority.priority.into() });
    }
    if let Some(new) = &new.scheduler {
        let scheduler = |policy: String| -> Result<oci::Scheduler, Error> {
            Ok(oci::Scheduler {
                policy,
                nice: new.nice,
                priority: new.priority,
                flags: names(&SCHEDULER_FLAGS, &new.flags, "flag of a scheduling policy")?,
                runtime: new.runtime,
                deadline: new.deadline,
                period: new.period,
            })
        };
        process.scheduler = match new.policy {
            0 => None,
            policy => Some(scheduler(named(&POLICIES, policy, 1, "scheduling policy")?)?),
        };
    }
    Ok(())
}

fn set_device(draft: &mut Draft, new: messages::Device) -> Result<(), Error> {
    let linux = draft.spec.linux.get_or_insert_default();
    if let Some(path) = removed(&new.path) {
        linux.devices.retain(|device| device.path != path);
        return Ok(());
    }
    let kind = match new.r#type.as_str() {
        "c" | "u" => DeviceKind::Char,
        "b" => DeviceKind::Block,
        "p" => DeviceKind::Fifo,
        other => return Err(Error::invalid(format!("{other:?} is not a type of a device"))),
    };
    let device = oci::Device {
        path: new.path,
        kind,
        major: new.major,
        minor: new.minor,
        file_mode: new.file_mode.map(|mode| mode.value & 0o7777),
        uid: new.uid.map(|uid| uid.value),
        gid: new.gid.map(|gid| gid.value),
    };
    let access = if kind == DeviceKind::Block { "rwm" } else { "rw" };
    let rules = &mut linux.resources.get_or_insert_default().devices;
    rules.extend(devices::rule_of(&device, access));
    devices::add(&mut linux.devices, device);
    Ok(())
}

/// Removes a namespace, so that the container uses the node's, or replaces it by a new one or by that of a path.
fn set_namespace(draft: &mut Draft, new: &messages::Namespace) -> Result<(), Error> {
    let name = removed(&new.r#type).unwrap_or(&new.r#type);
    let kind = namespace_kind(name).ok_or_else(|| Error::invalid(format!("{name:?} is not a kind of namespaces")))?;
    // The monitor creates these two with the container.
    if matches!(kind, NamespaceType::Mount | NamespaceType::User) {
        return Err(Error::invalid(format!("the {name} namespace of a container cannot be adjusted")));
    }
    let linux = draft.spec.linux.get_or_insert_default();
    linux.namespaces.retain(|namespace| namespace.kind != kind);
    draft.namespaces.retain(|(other, _)| *other != kind);
    if removed(&new.r#type).is_some() {
        return Ok(());
    }
    linux.namespaces.push(oci::Namespace { kind, path: None });
    if new.path.is_empty() {
        draft.own_namespaces.push(kind);
        return Ok(());
    }
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = rustix::fs::open(&new.path, flags, Mode::empty())
        .map_err(|e| Error::invalid(format!("{name} namespace {}: {e}", new.path)))?;
    draft.namespaces.push((kind, file));
    Ok(())
}

fn set_resources(linux: &mut oci::Linux, new: &messages::Resources) -> Result<(), Error> {
    let class = |class: &Option<messages::Text>| class.as_ref().map(|class| class.value.clone());
    match class(&new.blockio_class) {
        None => {}
        Some(class) if class.is_empty() => linux.resources.get_or_insert_default().block_io = None,
        Some(class) => {
            return Err(Error::invalid(format!(
                "block I/O class {class:?}: this node defines none; a plugin can set the files of cgroup v2 by name \
                 (unified)"
            )));
        }
    }
    match class(&new.rdt_class) {
        None => {}
        Some(class) if class.is_empty() => linux.intel_rdt = None,
        Some(class) => linux.intel_rdt = Some(oci::IntelRdt { clos_id: Some(class), ..oci::IntelRdt::default() }),
    }
    let resources = linux.resources.get_or_insert_default();
    resources::set(new, resources);
    let limit = new.memory.as_ref().and_then(|memory| memory.limit.as_ref()).map(|limit| limit.value);
    let swap = new.memory.as_ref().and_then(|memory| memory.swap.as_ref());
    if let (Some(limit), None, Some(memory)) = (limit, swap, &mut resources.memory) {
        // As in containerd: a limit of memory alone permits no swap.
        memory.swap = Some(limit);
    }
    let rule = |rule: &messages::DeviceRule| oci::DeviceRule {
        allow: rule.allow,
        kind: Some(rule.r#type.clone()).filter(|kind| !kind.is_empty()),
        major: rule.major.as_ref().map(|number| number.value),
        minor: rule.minor.as_ref().map(|number| number.value),
        access: Some(rule.access.clone()).filter(|access| !access.is_empty()),
    };
    resources.devices.extend(new.devices.iter().map(rule));
    Ok(())
}

fn set_rdt(linux: &mut oci::Linux, new: messages::Rdt) {
    if new.remove {
        linux.intel_rdt = None;
    }
    let messages::Rdt { clos_id, schemata, enable_monitoring, .. } = new;
    if clos_id.is_none() && schemata.is_none() && enable_monitoring.is_none() {
        return;
    }
    let rdt = linux.intel_rdt.get_or_insert_default();
    if let Some(clos_id) = clos_id {
        rdt.clos_id = Some(clos_id.value);
    }
    if let Some(schemata) = schemata {
        rdt.schemata = schemata.value;
    }
    if let Some(enable) = enable_monitoring {
        rdt.enable_monitoring = enable.value;
    }
}

fn seccomp(policy: messages::Seccomp) -> Result<oci::Seccomp, Error> {
    if !policy.listener_path.is_empty() {
        return Err(Error::invalid("seccomp policy: an agent for system calls is not supported"));
    }
    let argument = |argument: messages::SyscallArgument| oci::SeccompArg {
        index: argument.index,
        value: argument.value,
        value_two: argument.value_two,
        op: argument.op,
    };
    let rule = |rule: messages::SyscallRule| oci::SyscallRule {
        names: rule.names,
        action: rule.action,
        errno_ret: rule.errno_ret.map(|errno| errno.value),
        args: rule.args.into_iter().map(argument).collect(),
    };
    Ok(oci::Seccomp {
        default_action: policy.default_action,
        default_errno_ret: policy.default_errno.map(|errno| errno.value),
        architectures: policy.architectures,
        flags: Some(policy.flags).filter(|flags| !flags.is_empty()),
        syscalls: policy.syscalls.into_iter().map(rule).collect(),
        ..oci::Seccomp::default()
    })
}
