//! Takeover of a pod's running init that no process holds: its monitor died before it reported the init, or at the same
//! time as the daemon. Containers may be in its PID namespace, so it is not killed.

use std::{fs, io, sync::Arc};

use cgroup::{Group, GroupPath};
use monitor_api::{Attachments, HoldingState, Role};
use rustix::{
    fd::OwnedFd,
    fs::{Mode, OFlags},
};

use crate::{
    Error, ErrorKind, error::failed, monitor::HeldObject, operation::blocking, parts::Parts, process, store::Sandbox,
};

/// Command line of an init. A process that did not reach this point exits by itself, and cannot be used.
const COMMAND: &[u8] = b"/pod-init\0";

struct RunningInit {
    pid: u32,
    start_time: u64,
    pidfd: OwnedFd,
    namespace: OwnedFd,
}

/// Finds the init, hands it to the monitor, and returns its PID namespace. If there is none, returns `None` after
/// removing its cgroup.
pub(super) async fn take_over(parts: &Arc<Parts>, sandbox: &Sandbox) -> Result<Option<OwnedFd>, Error> {
    let (task_parts, cgroup) = (Arc::clone(parts), parts.node.init_cgroup_of(sandbox));
    let group = cgroup.clone();
    let Some(init) = blocking(move || find(&task_parts, &group)).await? else {
        parts.node.remove_group(cgroup, sandbox.id().as_str()).await?;
        return Ok(None);
    };
    let mut holding =
        HeldObject::initial_holding(sandbox.id().as_str(), sandbox.id().as_str(), &cgroup, HoldingState::PodInit);
    (holding.container.pid, holding.container.start_time) = (init.pid, init.start_time);
    match parts.monitor.adopt(HeldObject::new(holding, Attachments::new().with(Role::Pidfd, init.pidfd))).await {
        // The monitor did adopt it, but its response was lost.
        Err(error) if error.kind == ErrorKind::AlreadyExists => Ok(Some(init.namespace)),
        adopted => adopted.map(|()| Some(init.namespace)),
    }
}

/// Finds the init in its cgroup. An error is not treated as absence: containers may be in the namespace of an init that
/// could not be inspected.
fn find(parts: &Parts, group: &str) -> Result<Option<RunningInit>, Error> {
    let path = GroupPath::parse(group).map_err(failed(format_args!("open cgroup {group}")))?;
    let group = match Group::open(&parts.node.trees, &path) {
        Err(cgroup::Error::Missing { .. }) => return Ok(None),
        opened => opened.map_err(failed(format_args!("open cgroup {group}")))?,
    };
    let pids = group.pids().map_err(failed(format_args!("list cgroup {}", path.as_str())))?;
    for pid in pids.into_iter().map(|pid| pid.as_raw_pid().unsigned_abs()) {
        if let Some(init) = inspect(pid).map_err(failed(format_args!("inspect process {pid}")))? {
            return Ok(Some(init));
        }
    }
    Ok(None)
}

fn inspect(pid: u32) -> io::Result<Option<RunningInit>> {
    let Some(start_time) = process::try_start_time(pid)? else { return Ok(None) };
    let file = format!("/proc/{pid}/ns/pid");
    let opened = rustix::fs::open(file, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    let Some(namespace) = process::unless_gone(opened.map_err(Into::into))? else { return Ok(None) };
    if process::unless_gone(fs::read(format!("/proc/{pid}/cmdline")))?.is_none_or(|line| line != COMMAND) {
        return Ok(None);
    }
    // Opened last: the start time proves that all of the above belongs to the same process.
    let pidfd = process::try_find(pid, start_time)?;
    Ok(pidfd.map(|pidfd| RunningInit { pid, start_time, pidfd, namespace }))
}
