//! Taking everything away again: the opposite of a node's first pod.

use std::{ffi::CString, fs, os::unix::ffi::OsStrExt, path::Path};

use rustix::{
    fs::CWD,
    io::Errno,
    mount::{UnmountFlags, unmount},
};
use syscall::directory_tree;

use crate::{Engine, Error, engine::blocking, error::failed, reconcile};

impl Engine {
    /// Removes every pod and container, the images, the built-in network, the monitor, the directories of state and
    /// data, and that of network namespaces unless others have some there. No other engine may use these directories in
    /// the meantime; this one serves nothing afterwards.
    ///
    /// # Errors
    /// The first step that failed; what was removed before stays removed, and a second call goes on from there.
    pub async fn reset(self) -> Result<(), Error> {
        for sandbox in self.sandboxes() {
            self.remove_sandbox(&sandbox.id).await?;
        }
        for image in self.images().list() {
            self.images().remove(&image.id).await?;
        }
        let inner = &self.0;
        reconcile::cgroup_parent(inner).await;
        inner.network.teardown().await.map_err(failed("remove the pods' network"))?;
        inner.monitor.shutdown().await?;
        let config = inner.config.clone();
        drop(self);
        blocking(move || {
            leave(&config.state_dir)?;
            remove_if_empty(&config.netns_dir)?;
            remove_tree(&config.data_dir)
        })
        .await
    }
}

/// Removes the directory, and the tmpfs that may have been mounted on it.
fn leave(root: &Path) -> Result<(), Error> {
    match unmount(root, UnmountFlags::DETACH) {
        // EINVAL: it was on a tmpfs before.
        Ok(()) | Err(Errno::INVAL | Errno::NOENT) => remove_tree(root),
        Err(error) => Err(failed(format_args!("unmount {}", root.display()))(error)),
    }
}

/// The directory of pins is shared: `ip netns` has its own there, and mounts it on itself.
fn remove_if_empty(directory: &Path) -> Result<(), Error> {
    match rustix::fs::rmdir(directory) {
        Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY | Errno::EXIST | Errno::BUSY) => Ok(()),
        Err(errno) => Err(failed(format_args!("remove {}", directory.display()))(errno)),
    }
}

/// A directory that is a file system of its own (a disk for images, say) is emptied, and stays.
fn remove_tree(root: &Path) -> Result<(), Error> {
    let emptied = || fs::read_dir(root).is_ok_and(|mut entries| entries.next().is_none());
    let error = failed(format!("remove {}", root.display()));
    let Ok(path) = CString::new(root.as_os_str().as_bytes()) else { return Err(error(Errno::INVAL)) };
    // Not by recursion: containers make trees of any depth.
    match directory_tree::remove(CWD, &path) {
        Ok(()) => Ok(()),
        Err(Errno::BUSY) if emptied() => Ok(()),
        Err(errno) => Err(error(errno)),
    }
}
