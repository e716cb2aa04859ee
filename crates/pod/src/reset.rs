//! `pinion reset`: removes everything that the engine created on a node.

use std::{ffi::CString, fs, os::unix::ffi::OsStrExt, path::Path};

use rustix::{
    fs::CWD,
    io::Errno,
    mount::{UnmountFlags, unmount},
};
use syscall::directory_tree;

use crate::{Engine, Error, engine::blocking, error::failed, reconcile};

impl Engine {
    /// Removes every pod and container, the images, the built-in network, the monitor, the state and data directories,
    /// and the directory of network namespaces unless other programs have some there. No other engine may use these
    /// directories in the meantime; this engine cannot be used afterwards.
    ///
    /// # Errors
    /// The error of the first step that failed. What was removed before stays removed, and a second call continues from
    /// there.
    pub async fn reset(self) -> Result<(), Error> {
        for sandbox in self.sandboxes() {
            self.remove_sandbox(&sandbox.id).await?;
        }
        for image in self.images().list() {
            self.images().remove(&image.id).await?;
        }
        let inner = &self.0;
        reconcile::remove_cgroup_parent(inner).await;
        inner.network.teardown().await.map_err(failed("remove the pods' network"))?;
        inner.monitor.shutdown().await?;
        let config = inner.config.clone();
        drop(self);
        blocking(move || {
            remove_state_dir(&config.state_dir)?;
            remove_if_empty(&config.netns_dir)?;
            remove_tree(&config.data_dir)
        })
        .await
    }
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
