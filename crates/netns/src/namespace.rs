//! Network namespaces that are referred to by a descriptor.

use std::{fs::File, io, path::Path, sync::OnceLock};

use rustix::{
    fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    fs::{CWD, Mode, OFlags, fstatfs, openat},
    net::{AddressFamily, SocketFlags, SocketType},
    thread::{LinkNameSpaceType, move_into_link_name_space},
};
use syscall::{
    loopback,
    namespace::{ThreadNamespace, socket_namespace_id, unshare_thread},
};

use crate::{Error, Identity, NsId, identity, worker};

/// `NSFS_MAGIC` of linux/magic.h, the magic number of the file system of namespaces.
pub(crate) const NSFS_MAGIC: u64 = 0x6e73_6673;

/// A network namespace. It exists as long as this descriptor, a pin, a process or a socket in it.
#[derive(Debug)]
pub struct Namespace {
    fd: OwnedFd,
    /// Number of the namespace, once it was queried.
    id: OnceLock<NsId>,
}

impl Namespace {
    /// Creates a namespace with `lo` up. Runs on a helper thread, so the caller's namespace does not change. Takes
    /// about 0.4 ms.
    ///
    /// # Errors
    /// The kernel's error; `EPERM` without `CAP_SYS_ADMIN`.
    pub fn create() -> Result<Self, Error> {
        worker::run(|| {
            unshare_thread(ThreadNamespace::Network).map_err(|e| Error::kernel("create", "network namespace", e))?;
            loopback::up().map_err(|e| Error::kernel("set up", "lo in a new network namespace", e))?;
            let path = "/proc/thread-self/ns/net";
            let fd = File::open(path).map_err(|e| Error::kernel("open", path, e))?;
            Ok(Self::unchecked(fd.into()))
        })?
    }

    /// Opens a pin or a `/proc/<pid>/ns/net`. Nothing but a namespace is opened, so a FIFO or a device in its place notices
    /// nothing.
    ///
    /// # Errors
    /// When the path cannot be opened or is not a network namespace.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let fail = |e: io::Error| Error::path("open network namespace", path, e);
        let namespace = Self::unchecked(open_nsfs(path)?.ok_or_else(|| fail(not_a_network_namespace()))?);
        namespace.must_be_network().map_err(fail)?;
        Ok(namespace)
    }

    /// Converts a descriptor of a network namespace.
    ///
    /// # Errors
    /// When the descriptor refers to something else.
    pub fn from_fd(fd: OwnedFd) -> Result<Self, Error> {
        let namespace = Self::unchecked(fd);
        namespace.must_be_network().map_err(|e| Error::kernel("use", "descriptor of a network namespace", e))?;
        Ok(namespace)
    }

    /// Duplicates the descriptor.
    ///
    /// # Errors
    /// `EMFILE`.
    pub fn try_clone(&self) -> Result<Self, Error> {
        let fd = self.fd.try_clone().map_err(|e| Error::kernel("duplicate", "network namespace", e))?;
        Ok(Self { fd, id: self.id.clone() })
    }

    /// Returns the number of the namespace, which is unique until a reboot. Takes 0.3 µs by ioctl (Linux 6.18), else 25
    /// µs by means of a socket in the namespace (5.14); then it is cached.
    ///
    /// # Errors
    /// `ENOPROTOOPT` before Linux 5.14.
    pub fn id(&self) -> Result<NsId, Error> {
        if let Some(id) = self.id.get() {
            return Ok(*id);
        }
        let id = self.query_id()?;
        Ok(*self.id.get_or_init(|| id))
    }

    fn query_id(&self) -> Result<NsId, Error> {
        let fail = |e| Error::kernel("identify", "network namespace", e);
        if let Some(id) = identity::by_ioctl(&self.fd).map_err(fail)? {
            return Ok(id);
        }
        self.enter(|| {
            let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
            socket_namespace_id(socket)
        })?
        .map(NsId)
        .map_err(fail)
    }

    /// Returns the number together with the boot id, suitable for storage.
    ///
    /// # Errors
    /// See [`Namespace::id`].
    pub fn identity(&self) -> Result<Identity, Error> {
        Identity::of_this_boot(self.id()?).map_err(|e| Error::kernel("read", "/proc/sys/kernel/random/boot_id", e))
    }

    /// Runs a closure in this namespace on a helper thread, and waits for it.
    ///
    /// Only `socket()` and opening files in `/proc/net` and `/proc/sys/net` require this: what is opened in a namespace
    /// stays in it.
    ///
    /// # Errors
    /// When the namespace cannot be entered, or the closure panicked.
    pub fn enter<T: Send + 'static>(&self, f: impl FnOnce() -> T + Send + 'static) -> Result<T, Error> {
        let target = self.try_clone()?;
        worker::run(move || {
            move_into_link_name_space(target.as_fd(), Some(LinkNameSpaceType::Network))
                .map_err(|e| Error::kernel("enter", "network namespace", e))?;
            Ok(f())
        })?
    }

    fn unchecked(fd: OwnedFd) -> Self {
        Self { fd, id: OnceLock::new() }
    }

    fn must_be_network(&self) -> io::Result<()> {
        const CLONE_NEWNET: u32 = 0x4000_0000;
        let is_network = syscall::namespace::namespace_kind(&self.fd).is_ok_and(|kind| kind == CLONE_NEWNET);
        is_network.then_some(()).ok_or_else(not_a_network_namespace)
    }
}

fn not_a_network_namespace() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "not a network namespace")
}

/// Opens a file for reading if it is a namespace; returns `None` for other files, which are not opened but looked up
/// only (`O_PATH`).
pub(crate) fn open_nsfs(path: &Path) -> Result<Option<OwnedFd>, Error> {
    let fail = |e| Error::path("open network namespace", path, e);
    let found = openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).map_err(fail)?;
    if fstatfs(&found).map_err(fail)?.f_type as u64 != NSFS_MAGIC {
        return Ok(None);
    }
    let reopen = format!("/proc/thread-self/fd/{}", found.as_raw_fd());
    openat(CWD, reopen, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).map(Some).map_err(fail)
}

impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl From<Namespace> for OwnedFd {
    fn from(namespace: Namespace) -> OwnedFd {
        namespace.fd
    }
}
