//! The runtime's own procfs, opened before the container's root is entered, and checked to be a procfs.
//!
//! All writes below /proc for a container go through this descriptor and never through the container's `/proc`, which
//! an image or a racing container may have covered (CVE-2025-52881).

use std::mem::ManuallyDrop;

use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{CWD, Mode, OFlags, PROC_SUPER_MAGIC, ResolveFlags, fstat, fstatfs, openat, openat2},
    io::Errno,
};

use crate::{Error, error::During};

/// Inode number of the root of every procfs.
const PROC_ROOT_INO: u64 = 1;

/// The root of a checked procfs. Dropping it does not close it (see [`crate::descriptors::leave`]).
pub(crate) struct Procfs {
    root: ManuallyDrop<OwnedFd>,
}

impl Procfs {
    /// Opens `/proc` of the current root.
    pub(crate) fn open() -> Result<Self, Error> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let root = openat(CWD, c"/proc", flags, Mode::empty()).during(|| "open /proc")?;
        let kind = fstatfs(&root).during(|| "stat /proc")?.f_type;
        let inode = fstat(&root).during(|| "stat /proc")?.st_ino;
        if kind != PROC_SUPER_MAGIC || inode != PROC_ROOT_INO {
            return Err(Error::system("check /proc: it is not a procfs", Errno::NODEV));
        }
        Ok(Self { root: ManuallyDrop::new(root) })
    }

    /// Writes a file of the procfs with a single write. Fails if another mount is on the path.
    pub(crate) fn write(&self, path: &str, value: &str) -> Result<(), Errno> {
        let file = self.open_file(path, OFlags::WRONLY)?;
        match rustix::io::write(&file, value.as_bytes())? {
            n if n == value.len() => Ok(()),
            _ => Err(Errno::IO),
        }
    }

    /// Opens a file of the procfs. Fails if another mount is on the path.
    pub(crate) fn open_file(&self, path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_XDEV | ResolveFlags::NO_MAGICLINKS;
        openat2(self.root.as_fd(), path, flags | OFlags::CLOEXEC, Mode::empty(), resolve)
    }

    /// Opens the file behind an `O_PATH` descriptor.
    pub(crate) fn reopen(&self, fd: BorrowedFd<'_>, flags: OFlags) -> Result<OwnedFd, Errno> {
        use rustix::fd::AsRawFd;
        let link = format!("self/fd/{}", fd.as_raw_fd());
        openat2(self.root.as_fd(), link.as_str(), flags | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::empty())
    }
}

impl AsFd for Procfs {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }
}
