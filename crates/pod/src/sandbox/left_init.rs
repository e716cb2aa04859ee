//! A pod's init that runs and that nobody holds: its monitor died before it told of it, or with the daemon. Containers
//! may be in its PID namespace, so it is taken over, not ended.

use std::{fs, io, sync::Arc};

use cgroup::{Group, GroupPath};
use monitor_api::{Attachments, HoldingState, Role};
use rustix::{
    fd::OwnedFd,
    fs::{Mode, OFlags},
};

use super::{Sandbox, namespaces::init_group};
use crate::{
    Error, ErrorKind,
    engine::{Inner, blocking},
    error::failed,
    monitor::Held,
    process, remains,
};

/// Its command line. One that did not come so far ends by itself, and is of no use.
const COMMAND: &[u8] = b"/pod-init\0";

struct Left {
    pid: u32,
    start_time: u64,
    pidfd: OwnedFd,
    namespace: OwnedFd,
}

/// Its PID namespace; the monitor and this process hold it again. `None`: there is none, and the place is free.
pub(super) async fn take_over(engine: &Arc<Inner>, sandbox: &Sandbox) -> Result<Option<OwnedFd>, Error> {
    let (of, cgroup) = (Arc::clone(engine), init_group(engine, sandbox));
    let group = cgroup.clone();
    let Some(left) = blocking(move || find(&of, &group)).await? else {
        remains::end_group(engine, cgroup, sandbox.id()).await?;
        return Ok(None);
    };
    let mut holding = Held::nascent(sandbox.id(), sandbox.id(), &cgroup, HoldingState::PodInit);
    (holding.pid, holding.start_time) = (left.pid, left.start_time);
    match engine.monitor.adopt(Held::new(holding, Attachments::new().with(Role::Pidfd, left.pidfd))).await {
        // Only the answer was lost, not the monitor.
        Err(error) if error.kind == ErrorKind::AlreadyExists => Ok(Some(left.namespace)),
        adopted => adopted.map(|()| Some(left.namespace)),
    }
}

/// An error does not mean absence: containers may be in the namespace of an init that could not be looked at.
fn find(engine: &Inner, group: &str) -> Result<Option<Left>, Error> {
    let path = GroupPath::parse(group).map_err(failed(format_args!("open cgroup {group}")))?;
    let group = match Group::open(&engine.trees, &path) {
        Err(cgroup::Error::Missing { .. }) => return Ok(None),
        opened => opened.map_err(failed(format_args!("open cgroup {group}")))?,
    };
    let pids = group.pids().map_err(failed(format_args!("list cgroup {}", path.as_str())))?;
    for pid in pids.into_iter().filter_map(|pid| u32::try_from(pid).ok()) {
        if let Some(left) = left(pid).map_err(failed(format_args!("look at process {pid}")))? {
            return Ok(Some(left));
        }
    }
    Ok(None)
}

fn left(pid: u32) -> io::Result<Option<Left>> {
    let Some(start_time) = process::known_start_time(pid)? else { return Ok(None) };
    let file = format!("/proc/{pid}/ns/pid");
    let opened = rustix::fs::open(file, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    let Some(namespace) = process::unless_gone(opened.map_err(Into::into))? else { return Ok(None) };
    if process::unless_gone(fs::read(format!("/proc/{pid}/cmdline")))?.is_none_or(|line| line != COMMAND) {
        return Ok(None);
    }
    // Asked last: all of the above was of this very process.
    let pidfd = process::look_for(pid, start_time)?;
    Ok(pidfd.map(|pidfd| Left { pid, start_time, pidfd, namespace }))
}
