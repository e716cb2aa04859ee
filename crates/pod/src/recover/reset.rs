//! `pinion reset`: removes everything that the engine created on a node.

use std::{ffi::CString, fs, os::unix::ffi::OsStrExt, path::Path, sync::Arc};

use rustix::{
    fs::CWD,
    io::Errno,
    mount::{UnmountFlags, unmount},
};
use syscall::directory_tree;

use crate::{Error, error::failed, operation::blocking, parts::Parts, sandbox};

/// Removes every pod and container, the images, the built-in network, the monitor, the state and data directories, and
/// the directory of network namespaces unless other programs have some there. With `keep_data`, the images and the data
/// directory stay.
pub(crate) async fn reset(parts: Arc<Parts>, keep_data: bool) -> Result<(), Error> {
    for sandbox in parts.registry.sandboxes() {
        sandbox::remove::remove(&parts, sandbox.id()).await?;
    }
    let images = if keep_data { Vec::new() } else { parts.node.images.list() };
    for image in images {
        parts.node.images.remove(&image.id).await?;
    }
    sandbox::parent_cgroup::remove(&parts).await;
    parts.node.network.teardown().await.map_err(failed("remove the pods' network"))?;
    parts.monitor.shutdown().await?;
    let config = parts.node.config.clone();
    drop(parts);
    blocking(move || {
        remove_state_dir(&config.state_dir)?;
        remove_if_empty(&config.netns_dir)?;
        if keep_data { Ok(()) } else { remove_tree(&config.data_dir) }
    })
    .await
}

/// Removes the state directory, and the tmpfs that may be mounted on it.
fn remove_state_dir(root: &Path) -> Result<(), Error> {
    match unmount(root, UnmountFlags::DETACH) {
        // EINVAL: no tmpfs was mounted, because the directory was on one already.
        Ok(()) | Err(Errno::INVAL | Errno::NOENT) => remove_tree(root),
        Err(error) => Err(failed(format_args!("unmount {}", root.display()))(error)),
    }
}

/// Removes the directory of pins unless it is in use: `ip netns` pins its namespaces there, and mounts it on itself.
fn remove_if_empty(directory: &Path) -> Result<(), Error> {
    match rustix::fs::rmdir(directory) {
        Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY | Errno::EXIST | Errno::BUSY) => Ok(()),
        Err(errno) => Err(failed(format_args!("remove {}", directory.display()))(errno)),
    }
}

/// Removes a directory tree. A directory that is a mount point (for example a disk for images) is emptied, and stays.
fn remove_tree(root: &Path) -> Result<(), Error> {
    let emptied = || fs::read_dir(root).is_ok_and(|mut entries| entries.next().is_none());
    let error = failed(format!("remove {}", root.display()));
    let Ok(path) = CString::new(root.as_os_str().as_bytes()) else { return Err(error(Errno::INVAL)) };
    // Not recursive: containers create trees of any depth.
    match directory_tree::remove(CWD, &path) {
        Ok(()) => Ok(()),
        Err(Errno::BUSY) if emptied() => Ok(()),
        Err(errno) => Err(error(errno)),
    }
}
