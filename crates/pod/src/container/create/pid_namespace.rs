//! The PID namespace that a container joins.

use std::sync::Arc;

use rustix::{
    fd::OwnedFd,
    fs::{Mode, OFlags},
};

use crate::{
    ContainerConfig, Error, PidMode, error::failed, namespaces::pid_namespace, parts::Parts, process, store::Sandbox,
};

/// Opens the PID namespace to join: that of the pod, or of the target container. `None` if the container joins none.
pub(super) async fn pid_namespace_of(
    parts: &Arc<Parts>,
    sandbox: &Arc<Sandbox>,
    config: &ContainerConfig,
) -> Result<Option<OwnedFd>, Error> {
    if let Some(target) = &config.security.target {
        let target = parts.registry.container(target)?;
        if target.metadata.sandbox != *sandbox.id() {
            let id = target.id();
            return Err(Error::invalid(format!("namespace_options.target_id: container {id} belongs to another pod")));
        }
        let record = target.record();
        let refuse = || Error::state(format!("namespace_options.target_id: container {} is not running", target.id()));
        let _pidfd = offload::in_place(|| process::find(record.pid, record.start_time)).ok_or_else(refuse)?;
        let path = format!("/proc/{}/ns/pid", record.pid);
        let open = || rustix::fs::open(&path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        return offload::in_place(open).map(Some).map_err(failed(format_args!("open {path}")));
    }
    match config.security.pid {
        PidMode::Pod => pid_namespace(parts, sandbox).await.map(Some),
        PidMode::Container | PidMode::Node => Ok(None),
    }
}
