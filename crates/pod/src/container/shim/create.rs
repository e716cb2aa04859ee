//! Creates a container with its shim.

use std::{path::Path, sync::Arc};

use monitor_api::{Attachments, Create, Role};
use rustix::{fd::OwnedFd, process::Pid};
use shim::{Bootstrap, CreateTask, Streams};

use super::{
    command::{self, from_shim},
    connection::task,
    log, namespace, shim_of,
    watch::watch,
};
use crate::{
    Error,
    error::failed,
    monitor::{CreateOutcome, CreatedProcess},
    namespaces::shim_mounts,
    operation::{blocking, failpoint},
    parts::Parts,
    process,
    store::{Container, Sandbox, ShimProcess},
};

/// Creates a container with its shim. If it fails, the caller removes what was created.
pub(crate) async fn create(
    parts: &Arc<Parts>,
    sandbox: &Sandbox,
    container: &Arc<Container>,
    create: Create,
    (send, keep): (Attachments, Attachments),
) -> Result<CreateOutcome, Error> {
    let (mounts, streams) = split(send);
    // One at a time in a pod: a shim that groups containers may be started by the first one.
    let _shims = sandbox.shims.lock().await;
    let namespace = namespace::find_or_create(parts, container).await?;
    let bundle = shim_of(container)?.bundle.clone();
    let duplicate = || namespace.try_clone().map_err(failed("duplicate a mount namespace"));
    let attach = {
        let namespace = duplicate()?;
        move || shim_mounts::attach(&namespace, Path::new(&bundle), mounts)
    };
    blocking(attach).await?;
    parts.monitor.create(Create { external: true, ..create }, streams, keep).await?;
    failpoint::reach("shim.output");
    log::follow(parts, container)?;
    let bootstrap = command::start(parts, container, duplicate()?).await?;
    failpoint::reach("shim.started");
    record_shim(parts, container, bootstrap, 0)?;
    let pid = create_task(parts, container, &namespace).await?;
    failpoint::reach("shim.created");
    watch(parts, container);
    let start_time = offload::in_place(|| process::start_time(pid)).unwrap_or(0);
    Ok(CreateOutcome::Created(CreatedProcess { pid, start_time, warnings: Vec::new() }))
}

/// Separates the mounts and namespaces of the container from what the monitor gets.
fn split(send: Attachments) -> (Vec<(Role, OwnedFd)>, Attachments) {
    let (mut mounts, mut streams) = (Vec::new(), Attachments::new());
    for (role, file) in send {
        match role {
            Role::Rootfs | Role::Mount(_) | Role::Namespace(_) => mounts.push((role, file)),
            Role::Seccomp => drop(file),
            role => streams.push(role, file),
        }
    }
    (mounts, streams)
}

fn record_shim(parts: &Parts, container: &Container, bootstrap: Bootstrap, pid: u32) -> Result<(), Error> {
    let start_time = offload::in_place(|| process::start_time(pid)).unwrap_or(0);
    parts.registry.update_container(container, |record| {
        record.shim = Some(ShimProcess { bootstrap: bootstrap.clone(), pid, start_time });
        true
    })
}

/// Requests `Create`. Returns the pid of the container; 0 if it has no process on the node.
async fn create_task(parts: &Parts, container: &Arc<Container>, namespace: &OwnedFd) -> Result<u32, Error> {
    let shim = shim_of(container)?;
    let task = task(container).await?;
    let create =
        CreateTask { bundle: &shim.bundle, streams: streams(parts, container)?, options: shim.options.as_ref() };
    let pid = task.create(&create).await.map_err(from_shim)?;
    // Neither pid is trusted: one is to be killed later, the other is reported.
    let shim_pid = task.shim_pid().await.unwrap_or(0);
    let shim_pid = if offload::in_place(|| shim_mounts::contains(namespace, shim_pid)) { shim_pid } else { 0 };
    if let Some(ShimProcess { bootstrap, .. }) = container.record().shim.clone() {
        record_shim(parts, container, bootstrap, shim_pid)?;
    }
    let Some(process) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return Ok(0) };
    // gVisor does not use the v2 tree of hybrid cgroups.
    let (trees, container) = (parts.node.trees.clone(), Arc::clone(container));
    let is_own = blocking(move || Ok(container.group(&trees)?.complete(process).unwrap_or(false))).await?;
    Ok(if is_own { pid } else { 0 })
}

/// Returns the paths of the FIFOs of a container.
fn streams(parts: &Parts, container: &Container) -> Result<Streams, Error> {
    let (directory, config) = (parts.registry.records.directory(container.id()), container.config());
    let path = |name: &str, exists: bool| match exists {
        false => Ok(String::new()),
        true => {
            let path = directory.join(name);
            path.to_str().map(str::to_owned).ok_or_else(|| Error::internal("the state directory is not valid UTF-8"))
        }
    };
    Ok(Streams {
        terminal: config.tty,
        stdin: path(crate::store::STDIN, config.stdin)?,
        stdout: path("stdout", true)?,
        stderr: path("stderr", !config.tty)?,
    })
}
