//! `pinion reset`: removes everything that the engine created on a node.

use std::{ffi::CString, fs, os::unix::ffi::OsStrExt, path::Path, sync::Arc, time::Duration};

use rustix::{
    fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx},
    io::Errno,
    mount::{UnmountFlags, unmount},
};
use syscall::directory_tree;

use super::units;
use crate::{
    CgroupDriver, Error,
    error::failed,
    node::{MountTable, NamespacePins},
    operation::blocking,
    parts::Parts,
    sandbox,
    store::TMPFS_SOURCE,
};

/// How long systemd may take to stop the units of pods.
const UNITS_TIMEOUT: Duration = Duration::from_secs(30);

/// Removes every pod and container, the images, the built-in network, the monitor, the state and data directories, and
/// the directory of network namespaces unless other programs have some there. With `keep_data`, the images and the data
/// directory stay.
///
/// # Errors
/// Those of [`check_reset`], before anything is removed; otherwise the first object that cannot be removed.
pub(crate) async fn reset(parts: Arc<Parts>, keep_data: bool) -> Result<(), Error> {
    check_reset(&parts.node.config.state_dir)?;
    // A plugin that was uninstalled before must not keep the rest from being removed.
    parts.node.network.skip_missing_plugins();
    for sandbox in parts.registry.sandboxes() {
        sandbox::remove::remove(&parts, sandbox.id()).await?;
    }
    let images = if keep_data { Vec::new() } else { parts.node.images.list() };
    for image in images {
        parts.node.images.remove(&image.id).await?;
    }
    units::audit(&parts).await;
    flush_units(&parts).await?;
    for driver in [CgroupDriver::Cgroupfs, CgroupDriver::Systemd] {
        sandbox::parent_cgroup::remove(&parts, driver).await;
    }
    flush_units(&parts).await?;
    parts.node.network.teardown().await.map_err(failed("remove the pods' network"))?;
    parts.monitor.shutdown().await?;
    let config = parts.node.config.clone();
    drop(parts);
    blocking(move || {
        remove_state_dir(&config.state_dir)?;
        remove_if_empty(&config.netns_dir)?;
        for directory in config.namespaces_dir.iter().flat_map(|public| NamespacePins::directories(public)) {
            remove_if_empty(&directory)?;
        }
        if keep_data { Ok(()) } else { remove_tree(&config.data_dir) }
    })
    .await
}

/// Waits until systemd has stopped the units of the removed pods: what is queued is lost with this process.
async fn flush_units(parts: &Arc<Parts>) -> Result<(), Error> {
    let parts = Arc::clone(parts);
    let is_done = blocking(move || Ok(parts.node.units.flush(UNITS_TIMEOUT))).await?;
    if !is_done {
        tracing::warn!(
            "stop the units of pods: systemd has not answered for {} s; stop those that `systemctl list-units \
             'pinion-*'` lists",
            UNITS_TIMEOUT.as_secs()
        );
    }
    Ok(())
}

/// Fails if the state directory cannot be removed: behind a symbolic link there is a directory, or a mount point, that
/// the engine did not create.
///
/// # Errors
/// `FailedPrecondition` for a symbolic link.
pub fn check_reset(state_dir: &Path) -> Result<(), Error> {
    match fs::read_link(state_dir) {
        Err(_) => Ok(()),
        Ok(target) => Err(Error::state(format!(
            "reset: state directory {} is a symbolic link to {}, and nothing was removed; remove the pods, replace the \
             link with a bind mount of that directory, and reset again",
            state_dir.display(),
            target.display()
        ))),
    }
}

/// Removes the state directory, and the tmpfs that the engine mounted on it. A mount of the administrator stays.
fn remove_state_dir(root: &Path) -> Result<(), Error> {
    let operation = format!("unmount {}", root.display());
    let found = match statx(CWD, root, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::MNT_ID) {
        Ok(found) => found,
        Err(Errno::NOENT) => return Ok(()),
        Err(errno) => return Err(failed(operation)(errno)),
    };
    let is_mount = found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT);
    if is_mount && MountTable::read().is_tmpfs(found.stx_mnt_id, TMPFS_SOURCE) {
        unmount(root, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW).map_err(failed(operation))?;
    }
    remove_tree(root)
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
