//! The init of a pod, and with it the PID namespace that the pod's containers share.

use std::{sync::Arc, time::Duration};

use monitor_api::HoldingState;
use rustix::{
    fd::OwnedFd,
    fs::{Mode, OFlags},
};

use super::{leftover_init, shared::KINDS};
use crate::{Error, ErrorKind, PidMode, SandboxId, error::failed, parts::Parts, process, store::Sandbox};

/// How long the init of a pod may take to kill the other processes in its PID namespace.
const INIT_END: Duration = Duration::from_secs(5);

/// Returns the PID namespace of a pod that shares one. Its init is started at the first request.
pub(crate) async fn pid_namespace(parts: &Arc<Parts>, sandbox: &Arc<Sandbox>) -> Result<OwnedFd, Error> {
    let mut held = sandbox.pid.lock().await;
    forget_ended_init(parts, sandbox, &mut held).await?;
    if let Some(namespace) = &*held {
        return namespace.try_clone().map_err(failed("duplicate a PID namespace"));
    }
    let namespace = match running_init(parts, sandbox.id()) {
        Some(namespace) => namespace,
        None => match leftover_init::take_over(parts, sandbox).await? {
            Some(namespace) => namespace,
            None => start_init(parts, sandbox).await?,
        },
    };
    let duplicate = namespace.try_clone().map_err(failed("duplicate a PID namespace"))?;
    *held = Some(namespace);
    Ok(duplicate)
}

/// Gives up the PID namespace if its init has exited, because nothing can be cloned into it anymore, and removes the
/// init from the monitor. The caller must hold the lock that protects `held`.
pub(crate) async fn forget_ended_init(
    parts: &Parts,
    sandbox: &Sandbox,
    held: &mut Option<OwnedFd>,
) -> Result<(), Error> {
    if !init_has_exited(parts, sandbox.id()).await? {
        return Ok(());
    }
    tracing::warn!("the init of pod {} has exited; the next container that needs one starts another", sandbox.id());
    held.take();
    parts.monitor.delete(sandbox.id().as_str()).await
}

/// Reports whether the PID namespace with this inode number does not belong to the pod any longer, because its init has
/// exited. False if that is not known.
pub(crate) async fn has_lost_init(parts: &Parts, sandbox: &Sandbox, namespace: u64) -> bool {
    let mut held = sandbox.pid.lock().await;
    if let Err(error) = forget_ended_init(parts, sandbox, &mut held).await {
        tracing::warn!("remove the init of pod {}: {error}", sandbox.id());
        return false;
    }
    let current = held.as_ref().and_then(|file| rustix::fs::fstat(file).ok());
    current.is_none_or(|stat| stat.st_ino != namespace)
}

/// Reports whether the init in custody has exited. Waits for an init that is exiting.
async fn init_has_exited(parts: &Parts, sandbox: &SandboxId) -> Result<bool, Error> {
    let custody = parts.monitor.custody();
    let Some((pid, _)) = custody.process(sandbox.as_str(), &HoldingState::PodInit) else {
        // There is none, or an earlier daemon was not notified of its exit.
        return Ok(custody.holds(sandbox.as_str()));
    };
    let Some(pidfd) = custody.with_pidfd(sandbox.as_str(), OwnedFd::try_clone) else { return Ok(false) };
    let pidfd = pidfd.map_err(failed("duplicate a pidfd"))?;
    if !process::has_ended(&pidfd) {
        if !offload::in_place(|| process::is_ending(pid)) {
            return Ok(false);
        }
        let ended = tokio::time::timeout(INIT_END, process::ended(&pidfd)).await;
        ended.map_err(|_| Error::state(format!("the init of pod {sandbox} is exiting; try again")))??;
    }
    Ok(true)
}

/// Returns the PID namespace of an init that an earlier daemon started.
fn running_init(parts: &Parts, sandbox: &SandboxId) -> Option<OwnedFd> {
    let (pid, start_time) = parts.monitor.custody().process(sandbox.as_str(), &HoldingState::PodInit)?;
    offload::in_place(|| {
        let _alive = process::find(pid, start_time)?;
        let path = format!("/proc/{pid}/ns/pid");
        rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()
    })
}

async fn start_init(parts: &Parts, sandbox: &Sandbox) -> Result<OwnedFd, Error> {
    debug_assert_ne!(sandbox.config().pid, PidMode::Node);
    let _permit = parts.concurrency.clone_process().await?;
    let started = match request_init(parts, sandbox).await {
        // An init of an earlier request whose response was lost, and that has been killed since: its PID namespace is
        // empty.
        Err(error) if error.kind == ErrorKind::AlreadyExists => match parts.monitor.delete(sandbox.id().as_str()).await
        {
            Ok(()) => request_init(parts, sandbox).await,
            Err(error) => Err(error),
        },
        started => started,
    };
    started.map_err(|e| e.during(format_args!("start the init of pod {}", sandbox.id())))
}

async fn request_init(parts: &Parts, sandbox: &Sandbox) -> Result<OwnedFd, Error> {
    let mut namespaces = Vec::new();
    for (kind, shared) in KINDS {
        namespaces.extend(shared.file(&parts.monitor, sandbox)?.map(|file| (kind, file)));
    }
    let user = sandbox.config().user_namespace.clone();
    let cgroup = parts.node.init_cgroup_of(sandbox);
    let namespace = parts.monitor.pod_init(sandbox.id().as_str(), cgroup.clone(), user, namespaces).await?;
    if let Some(process) = parts.monitor.custody().process(sandbox.id().as_str(), &HoldingState::PodInit) {
        parts.node.register_scope(&cgroup, process, oci::Resources::default());
    }
    Ok(namespace)
}
