//! mount_setattr(2): flags and propagation of mounts, attached or not. Linux 5.12.

use std::{ffi::CStr, io};

use rustix::{
    fd::{AsFd, AsRawFd},
    mount::{MountAttrFlags, MountPropagationFlags},
};

/// What to change.
#[derive(Clone, Copy, Debug)]
pub struct MountAttributes {
    /// Attributes to set. To set one of the atime kinds, `clear` must have `MOUNT_ATTR__ATIME`.
    pub set: MountAttrFlags,
    /// Attributes to clear.
    pub clear: MountAttrFlags,
    /// New propagation.
    pub propagation: Option<MountPropagationFlags>,
}

impl Default for MountAttributes {
    fn default() -> Self {
        Self { set: MountAttrFlags::empty(), clear: MountAttrFlags::empty(), propagation: None }
    }
}

impl MountAttributes {
    /// Whether there is nothing to change.
    pub fn is_empty(&self) -> bool {
        self.set.is_empty() && self.clear.is_empty() && self.propagation.is_none()
    }

    /// Changes a mount given by a descriptor of its root; with `recursive`, all below it too.
    ///
    /// # Errors
    /// `EINVAL`: not the root of a mount, or a wrong set of flags; `EPERM`: a flag that is locked, or no right to.
    pub fn apply(&self, mount: impl AsFd, recursive: bool) -> io::Result<()> {
        self.apply_at(mount, c"", recursive)
    }

    /// Changes the mount whose root `path` is, from directory `at`.
    ///
    /// # Errors
    /// As [`MountAttributes::apply`].
    pub fn apply_at(&self, at: impl AsFd, path: &CStr, recursive: bool) -> io::Result<()> {
        let attributes = libc::mount_attr {
            attr_set: u64::from(self.set.bits()),
            attr_clr: u64::from(self.clear.bits()),
            propagation: self.propagation.map_or(0, |p| u64::from(p.bits())),
            userns_fd: 0,
        };
        let flags = libc::AT_EMPTY_PATH | if recursive { libc::AT_RECURSIVE } else { 0 };
        // SAFETY: `path` is a C string, `attributes` outlives the call and its true size is given.
        let done = unsafe {
            libc::syscall(
                libc::SYS_mount_setattr,
                at.as_fd().as_raw_fd(),
                path.as_ptr(),
                flags,
                &raw const attributes,
                size_of::<libc::mount_attr>(),
            )
        };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}
