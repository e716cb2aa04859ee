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
    mount::{MountFlags, mount},
};

use super::{
    SHARED,
    process::{find_process, namespace},
};
use crate::{
    ContainerId, Error, VmProcess,
    error::failed,
    namespaces::shim_mounts::{self, in_namespace},
    operation::blocking,
    parts::Parts,
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
