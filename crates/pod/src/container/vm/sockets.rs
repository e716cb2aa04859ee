//! The sockets of the processes of a virtual machine. Each process has a small tmpfs for its socket, which is mounted in its
//! mount namespace only and ends with it: a process that escaped into it can fill nothing else, and nothing of it is mounted
//! on the node. This process opens the directory in that namespace.

use std::{
    fs,
    os::fd::AsRawFd,
    path::{Path, PathBuf},
};

use rustix::{
    fd::OwnedFd,
    fs::{Mode, OFlags},
    mount::{MountFlags, mount},
};

use super::{SOCKETS, process::namespace};
use crate::{
    Error, SandboxId, error::failed, namespaces::shim_mounts::in_namespace, operation::blocking, parts::Parts,
    store::Container,
};

/// Size of the tmpfs and number of its inodes. A socket takes an inode and no block.
const LIMITS: &str = "size=64k,nr_inodes=16";

/// Returns the directory with the logs of the virtual machine of a pod.
pub(crate) fn log_directory(parts: &Parts, sandbox: &SandboxId) -> PathBuf {
    parts.registry.records.directory(sandbox).join("vm")
}

/// Mounts the tmpfs for the socket of a process, which runs as this user. Called before it executes its program.
pub(crate) async fn prepare_sockets(container: &Container, user: u32) -> Result<(), Error> {
    let namespace = namespace(container)?;
    blocking(move || {
        in_namespace(&namespace, || {
            fs::create_dir_all(SOCKETS).map_err(failed(format_args!("create {SOCKETS}")))?;
            let options = format!("mode=0700,uid={user},gid={user},{LIMITS}\0");
            let options = std::ffi::CStr::from_bytes_with_nul(options.as_bytes()).map_err(failed("mount a tmpfs"))?;
            let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
            mount("tmpfs", SOCKETS, "tmpfs", flags, options).map_err(failed(format_args!("mount a tmpfs on {SOCKETS}")))
        })
    })
    .await
}

/// The directory of the socket of a process of a virtual machine, open.
pub(crate) struct SocketDirectory(OwnedFd);

impl SocketDirectory {
    /// Opens that of a running process.
    ///
    /// # Errors
    /// `FailedPrecondition` if the process has ended.
    pub(crate) async fn open(container: &Container) -> Result<Self, Error> {
        let namespace = namespace(container)?;
        // Not through the root of the process, which virtiofsd changes. No process in there can replace a part of this path.
        let open = || {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let directory = rustix::fs::open(SOCKETS, flags, Mode::empty());
            directory.map(Self).map_err(failed(format_args!("open {SOCKETS} of a process of the virtual machine")))
        };
        blocking(move || in_namespace(&namespace, open)).await
    }

    /// Returns the path of a socket in it, valid while this exists.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        Path::new(&format!("/proc/self/fd/{}", self.0.as_raw_fd())).join(name)
    }
}
