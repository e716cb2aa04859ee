//! Attributes and propagation of attached and detached mounts: mount_setattr(2). Linux 5.12.

use std::{ffi::CStr, io};

use rustix::{
    fd::{AsFd, AsRawFd},
    mount::{MountAttrFlags, MountPropagationFlags},
};

/// The attributes to change.
#[derive(Clone, Copy, Debug)]
pub struct MountAttributes {
    /// Attributes to set. To set an atime attribute, `clear` must contain `MOUNT_ATTR__ATIME`.
    pub set: MountAttrFlags,
    /// Attributes to clear.
    pub clear: MountAttrFlags,
    /// The new propagation.
    pub propagation: Option<MountPropagationFlags>,
}

impl Default for MountAttributes {
    fn default() -> Self {
        Self { set: MountAttrFlags::empty(), clear: MountAttrFlags::empty(), propagation: None }
    }
}

impl MountAttributes {
    /// Reports whether there is nothing to change.
    pub fn is_empty(&self) -> bool {
        self.set.is_empty() && self.clear.is_empty() && self.propagation.is_none()
    }

    /// Changes a mount given by a descriptor of its root; with `recursive`, also the mounts below it.
    ///
    /// # Errors
    /// `EINVAL`: not the root of a mount, or an invalid combination of flags; `EPERM`: a flag is locked, or the caller
    /// is not privileged.
    pub fn apply(&self, mount: impl AsFd, recursive: bool) -> io::Result<()> {
        self.apply_at(mount, c"", recursive)
    }

    /// Changes the mount whose root is `path`, relative to the directory `at`.
    ///
    /// # Errors
    /// Those of [`MountAttributes::apply`].
    pub fn apply_at(&self, at: impl AsFd, path: &CStr, recursive: bool) -> io::Result<()> {
        let attributes = libc::mount_attr {
            attr_set: u64::from(self.set.bits()),
            attr_clr: u64::from(self.clear.bits()),
            propagation: self.propagation.map_or(0, |p| u64::from(p.bits())),
            userns_fd: 0,
        };
        let flags = libc::AT_EMPTY_PATH | if recursive { libc::AT_RECURSIVE } else { 0 };
        // SAFETY: `path` is a C string, `attributes` outlives the call and its true size is given.
        let result = unsafe {
            libc::syscall(
                libc::SYS_mount_setattr,
                at.as_fd().as_raw_fd(),
                path.as_ptr(),
                flags,
                &raw const attributes,
                size_of::<libc::mount_attr>(),
            )
        };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}
