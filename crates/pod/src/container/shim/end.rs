//! The end of a container of a shim: it exited, its shim died, or it is removed.

use std::{
    io,
    os::unix::fs::FileTypeExt,
    path::{Path, PathBuf},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use monitor_api::ExitStatus;
use rustix::process::{Signal, pidfd_send_signal};
use shim::Exit;

use super::{
    command::{self, from_shim},
    connection::task,
    namespace, shim_of,
};
use crate::{
    Error, ErrorKind,
    container::external::report_exit,
    namespaces::shim_mounts,
    operation::{Undo, blocking, failpoint},
    parts::Parts,
    process,
    store::{Container, ContainerPhase, ShimProcess, unknown_exit},
};

/// Where shims create their sockets by default.
const SOCKETS: &str = "/run/containerd/s";
/// How long a shim that has no container anymore may take to exit.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a shim may take to delete a container that is removed, and whose processes are gone.
const DELETE_TIMEOUT: Duration = Duration::from_secs(10);

/// Handles the exit of a container that its shim reported.
pub(super) async fn exited(parts: &Arc<Parts>, container: &Arc<Container>, exit: Exit) {
    let mut ended = container.shim.ended.lock().await;
    if *ended {
        return;
    }
    let reported = || ExitStatus {
        code: Some(exit.code),
        signal: None,
        oom_killed: container.shim.out_of_memory.load(Ordering::Acquire),
        at: exit.at,
    };
    // An earlier daemon may have been killed before the monitor knew it.
    let status = container.record().shim_exit.clone().unwrap_or_else(reported);
    // The shim forgets the status now.
    parts.registry.update_container_anyway(container, |record| {
        record.shim_exit = Some(status.clone());
        true
    });
    failpoint::reach("shim.exited");
    let deleted = async { task(container).await?.delete("").await.map_err(from_shim) };
    match deleted.await {
        Ok(_) => {}
        Err(error) if error.kind == ErrorKind::NotFound => {}
        Err(error) => {
            tracing::warn!(container = container.id().as_str(), "{error}");
            clean_up(parts, container).await;
        }
    }
    failpoint::reach("shim.deleted");
    finish(parts, container, &status).await;
    *ended = true;
}

/// Handles the death of the shim of a container.
pub(super) async fn died(parts: &Arc<Parts>, container: &Arc<Container>, reason: &str) {
    let mut ended = container.shim.ended.lock().await;
    if *ended {
        return;
    }
    let saved = container.record().shim_exit.clone();
    if saved.is_none() {
        tracing::warn!(container = container.id().as_str(), "the shim is lost: {reason}");
    }
    // The other containers of a shim that still works must not end with this one.
    if !shares_shim(parts, container) {
        kill_shim(container);
    }
    let known = clean_up(parts, container).await;
    let from_command = known.map(|exit| ExitStatus { code: Some(exit.code), at: exit.at, ..unknown_exit() });
    let status = saved.or(from_command).unwrap_or_else(unknown_exit);
    parts.registry.update_container_anyway(container, |record| {
        record.shim_exit = Some(status.clone());
        true
    });
    finish(parts, container, &status).await;
    *ended = true;
}

/// Gives up a container whose shim does not end it: kills the shim, and handles its death.
pub(crate) async fn give_up(parts: &Arc<Parts>, container: &Arc<Container>, reason: &str) {
    died(parts, container, reason).await;
}

/// Reports the exit of a container, and ends what does not serve it anymore. The report does not wait for the creation of
/// another container of the pod.
async fn finish(parts: &Arc<Parts>, container: &Arc<Container>, status: &ExitStatus) {
    offload::spawn(report_exit(Arc::downgrade(parts), Arc::clone(container), status.clone()));
    if let Err(error) = release(parts, container).await {
        // The removal of the container repeats it.
        tracing::warn!(container = container.id().as_str(), "{error}");
    }
}

/// Removes what is left of a container in its shim. Called after the monitor has removed its cgroup. Every step is
/// idempotent, and none fails because of the shim.
pub(crate) async fn remove(parts: &Arc<Parts>, container: &Arc<Container>) -> Result<(), Error> {
    let mut ended = container.shim.ended.lock().await;
    if !*ended {
        // It was not created completely, or an earlier daemon ended it.
        let deleted = tokio::time::timeout(DELETE_TIMEOUT, delete_by_shim(container)).await;
        if !deleted.unwrap_or(false) {
            clean_up(parts, container).await;
        }
    }
    release(parts, container).await?;
    *ended = true;
    Ok(())
}

/// Has the shim of a container kill and delete it. Returns whether it did, or does not know it.
async fn delete_by_shim(container: &Arc<Container>) -> bool {
    let Some(ShimProcess { pid, start_time, .. }) = container.record().shim.clone() else { return false };
    // Another process may have inherited the socket of a dead shim, and accepts connections forever.
    if pid != 0 && offload::in_place(|| process::find(pid, start_time)).is_none() {
        return false;
    }
    let deleted = async {
        let task = task(container).await?;
        if container.record().shim_exit.is_none() {
            let _ = task.kill("", Signal::KILL.as_raw(), true).await;
        }
        task.delete("").await.map_err(from_shim)
    };
    match deleted.await {
        Ok(_) => true,
        Err(error) => error.kind == ErrorKind::NotFound,
    }
}

/// Has the command `delete` of the shim remove a container. Returns its exit status, if the shim knows it.
async fn clean_up(parts: &Parts, container: &Arc<Container>) -> Option<Exit> {
    let found = namespace::find(parts, &container.metadata.sandbox).await;
    // Without the namespace the root is not mounted anymore; what the runtime has elsewhere is removed all the same.
    let namespace = match found {
        Ok(Some(namespace)) => Ok(namespace),
        Ok(None) => open_own(),
        Err(error) => Err(error),
    };
    let deleted = match namespace {
        Ok(namespace) => command::delete(parts, container, namespace).await,
        Err(error) => Err(error),
    };
    deleted.inspect_err(|error| tracing::warn!(container = container.id().as_str(), "{error}")).ok()
}

/// Opens the mount namespace of the node.
fn open_own() -> Result<rustix::fd::OwnedFd, Error> {
    let path = "/proc/self/ns/mnt";
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
    let opened = offload::in_place(|| rustix::fs::open(path, flags, rustix::fs::Mode::empty()));
    opened.map_err(crate::error::failed(format_args!("open {path}")))
}

/// Ends the shim if no other container uses it, and unmounts what the container had in the namespace.
async fn release(parts: &Arc<Parts>, container: &Arc<Container>) -> Result<(), Error> {
    let id = &container.metadata.sandbox;
    let sandbox = parts.registry.sandbox(id).ok();
    let _shims = match &sandbox {
        Some(sandbox) => Some(sandbox.shims.lock().await),
        None => None,
    };
    let mut undo = Undo::default();
    if !shares_shim(parts, container) {
        shut_down(parts, container).await;
    }
    let Some(namespace) = namespace::find(parts, id).await? else { return Ok(()) };
    let detach = {
        let (namespace, bundle) = (namespace.try_clone(), shim_of(container)?.bundle.clone());
        let failed = crate::error::failed("duplicate a mount namespace");
        async move {
            let namespace = namespace.map_err(failed)?;
            blocking(move || shim_mounts::detach(&namespace, Path::new(&bundle))).await
        }
    };
    undo.step("unmount its root and volumes", detach).await;
    if !namespace::has_other_users(parts, id, container.id().as_str()) {
        undo.step("end the shims of the pod", namespace::kill_all(namespace)).await;
    }
    undo.finish()
}

/// Whether another container of the pod is served by the same shim.
fn shares_shim(parts: &Parts, container: &Container) -> bool {
    let Some(ShimProcess { bootstrap, .. }) = container.record().shim.clone() else { return false };
    let others = parts.registry.containers_of(&container.metadata.sandbox);
    others.iter().filter(|other| other.id() != container.id()).any(|other| {
        let record = other.record();
        let is_same = record.shim.as_ref().is_some_and(|shim| shim.bootstrap.address == bootstrap.address);
        is_same && record.phase != ContainerPhase::Exited
    })
}

/// Has the shim of a container exit, or kills it.
async fn shut_down(parts: &Parts, container: &Arc<Container>) {
    if let Ok(task) = task(container).await {
        let shut_down = async {
            let _ = task.shutdown().await;
            task.closed().await;
        };
        if tokio::time::timeout(SHUTDOWN_TIMEOUT, shut_down).await.is_err() {
            tracing::warn!(container = container.id().as_str(), "the shim does not exit: killing it");
        }
    }
    kill_shim(container);
    container.shim.task.lock().await.take();
    remove_socket(parts, container);
}

/// Kills the shim of a container, if its process is known.
fn kill_shim(container: &Container) {
    let Some(ShimProcess { pid, start_time, .. }) = container.record().shim.clone().filter(|shim| shim.pid != 0) else {
        return;
    };
    if let Some(pidfd) = offload::in_place(|| process::find(pid, start_time)) {
        let _ = pidfd_send_signal(&pidfd, Signal::KILL);
    }
}

/// Removes the socket that a killed shim left behind.
fn remove_socket(parts: &Parts, container: &Container) {
    let record = container.record();
    let Some(path) = record.shim.as_ref().and_then(|shim| shim.bootstrap.address.path()) else { return };
    // A shim may name any socket of the node.
    let directories = [parts.node.config.state_dir.join("s"), PathBuf::from(SOCKETS)];
    if !path.parent().is_some_and(|parent| directories.iter().any(|directory| directory == parent)) {
        return;
    }
    offload::in_place(|| {
        let is_socket = std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
        if is_socket
            && let Err(error) = std::fs::remove_file(path)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::debug!("remove {}: {error}", path.display());
        }
    });
}
