//! The processes of a virtual machine, which are containers of their own.

use std::sync::Arc;

use rustix::{
    fd::OwnedFd,
    fs::{Mode, OFlags},
};

use crate::{Error, SandboxId, VmProcess, error::failed, parts::Parts, process, store::Container};

/// Returns the container of a process of the virtual machine of a pod.
pub(crate) fn find_process(parts: &Parts, sandbox: &SandboxId, process: VmProcess) -> Option<Arc<Container>> {
    let mut containers = parts.registry.containers_of(sandbox).into_iter();
    containers.find(|container| container.config().vm_process == Some(process))
}

/// Opens the mount namespace of the process of a container.
pub(super) fn namespace(container: &Container) -> Result<OwnedFd, Error> {
    let record = container.record();
    let ended = || Error::state("the process of the virtual machine has ended");
    offload::in_place(|| {
        let _process = process::find(record.pid, record.start_time).ok_or_else(ended)?;
        let path = format!("/proc/{}/ns/mnt", record.pid);
        let namespace = rustix::fs::open(&path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        let namespace = namespace.map_err(failed(format_args!("open {path}")))?;
        // The pid may have been reused in between.
        process::find(record.pid, record.start_time).map(|_| namespace).ok_or_else(ended)
    })
}
