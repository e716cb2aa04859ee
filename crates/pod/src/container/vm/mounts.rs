//! The root and the volumes of a container below the directory that the file server of its pod serves, in the mount
//! namespace of that process. They end with it.

use std::{
    fs,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use monitor_api::{PRIVATE, Role};
use rustix::{
    fd::OwnedFd,
    fs::{Mode, OFlags},
    mount::{MountFlags, mount},
};

use super::{SHARED, find_process};
use crate::{
    ContainerId, Error, VmProcess,
    error::failed,
    namespaces::shim_mounts::{self, in_namespace},
    operation::blocking,
    parts::Parts,
    process,
    store::{Container, Sandbox},
};

/// Options of the tmpfs with the mount points. The guest can write to it.
const TMPFS_OPTIONS: &std::ffi::CStr = c"mode=0755,size=1m,nr_inodes=4096";

/// Mounts the tmpfs that the file server is to serve. Called before that executes its program.
pub(crate) async fn prepare_shared(server: &Container) -> Result<(), Error> {
    let namespace = namespace(server)?;
    blocking(move || {
        in_namespace(&namespace, || {
            fs::create_dir(SHARED).map_err(failed(format_args!("create {SHARED}")))?;
            let flags = MountFlags::NOSUID | MountFlags::NODEV;
            mount("tmpfs", SHARED, "tmpfs", flags, TMPFS_OPTIONS)
                .map_err(failed(format_args!("mount a tmpfs on {SHARED}")))
        })
    })
    .await
}

/// Returns the directory of a container in the file server.
fn bundle(container: &ContainerId) -> PathBuf {
    Path::new(SHARED).join(container.as_str())
}

/// Opens the mount namespace of the process of a container.
fn namespace(container: &Container) -> Result<OwnedFd, Error> {
    let record = container.record();
    let ended = || Error::state("the file server of the pod has ended");
    offload::in_place(|| {
        let _process = process::find(record.pid, record.start_time).ok_or_else(ended)?;
        let path = format!("/proc/{}/ns/mnt", record.pid);
        let namespace = rustix::fs::open(&path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        let namespace = namespace.map_err(failed(format_args!("open {path}")))?;
        // The pid may have been reused in between.
        process::find(record.pid, record.start_time).map(|_| namespace).ok_or_else(ended)
    })
}

fn server_namespace(parts: &Parts, sandbox: &Sandbox) -> Result<OwnedFd, Error> {
    let server = find_process(parts, sandbox.id(), VmProcess::FileServer);
    namespace(&*server.ok_or_else(|| Error::state("the pod has no file server"))?)
}

/// Mounts the root and the volumes of a container.
pub(super) async fn attach(
    parts: &Parts,
    sandbox: &Sandbox,
    container: &ContainerId,
    mounts: Vec<(Role, OwnedFd)>,
) -> Result<(), Error> {
    let (namespace, bundle) = (server_namespace(parts, sandbox)?, bundle(container));
    blocking(move || {
        in_namespace(&namespace, || {
            for path in [bundle.clone(), bundle.join("rootfs"), bundle.join(PRIVATE)] {
                let created = fs::DirBuilder::new().mode(0o711).create(&path);
                created.map_err(failed(format_args!("create {}", path.display())))?;
            }
            Ok(())
        })?;
        shim_mounts::attach(&namespace, &bundle, mounts)
    })
    .await
}

/// Unmounts what [`attach`] mounted. Succeeds if it is not mounted, or the file server has ended.
pub(super) async fn detach(parts: &Parts, sandbox: &Sandbox, container: &ContainerId) -> Result<(), Error> {
    let Ok(namespace) = server_namespace(parts, sandbox) else { return Ok(()) };
    let bundle = bundle(container);
    blocking(move || {
        shim_mounts::detach(&namespace, &bundle)?;
        in_namespace(&namespace, || {
            for path in [bundle.join("rootfs"), bundle.join(PRIVATE), bundle.clone()] {
                // What the guest has put there stays until the end of the pod.
                let _ = fs::remove_dir(path);
            }
            Ok(())
        })
    })
    .await
}
