//! References to namespaces that do not keep them alive.

use std::{
    io,
    path::{Path, PathBuf},
};

use rustix::io::Errno;
use syscall::file_handle::{FileHandle, file_handle, open_namespace_by_handle};

use crate::{Error, Namespace, NsId};

/// A reference to a namespace that does not keep it alive. If the namespace is gone, [`WeakNamespace::upgrade`] is an
/// error; it never returns another namespace, whatever has the old one's name, path or inode number now.
#[derive(Clone, Debug)]
pub struct WeakNamespace {
    id: NsId,
    source: Source,
}

/// What the namespace can be opened by.
#[derive(Clone, Debug)]
enum Source {
    Handle(FileHandle),
    /// A path that may show another namespace by now.
    Path(PathBuf),
}

impl Namespace {
    /// Returns a reference that does not keep this namespace alive. Linux 6.18.
    ///
    /// # Errors
    /// `EOPNOTSUPP` on an older kernel: use [`Namespace::downgrade_at`] there.
    pub fn downgrade(&self) -> Result<WeakNamespace, Error> {
        let handle = file_handle(self).map_err(|e| Error::kernel("get the handle of", "network namespace", e))?;
        Ok(WeakNamespace { id: self.id()?, source: Source::Handle(handle) })
    }

    /// Returns a reference that does not keep this namespace alive, and that is upgraded by opening a path, such as a pin
    /// or `/proc/<pid>/ns/net`. It is upgraded only while that path leads to this namespace. Linux 5.14.
    ///
    /// # Errors
    /// See [`Namespace::id`].
    pub fn downgrade_at(&self, path: &Path) -> Result<WeakNamespace, Error> {
        Ok(WeakNamespace { id: self.id()?, source: Source::Path(path.to_owned()) })
    }
}

impl WeakNamespace {
    /// Returns the number of the namespace, which may be gone.
    #[must_use]
    pub fn id(&self) -> NsId {
        self.id
    }

    /// Opens the namespace. Takes 2 µs by handle.
    ///
    /// # Errors
    /// [`Error::Gone`] if it does not exist anymore, or no longer at the path of [`Namespace::downgrade_at`].
    pub fn upgrade(&self) -> Result<Namespace, Error> {
        let namespace = match &self.source {
            Source::Handle(handle) => match open_namespace_by_handle(handle) {
                Ok(fd) => Namespace::from_fd(fd)?,
                Err(error) if has_errno(&error, Errno::STALE) => return Err(Error::Gone(self.id)),
                Err(error) => return Err(Error::kernel("open by handle", "network namespace", error)),
            },
            Source::Path(path) => match Namespace::open(path) {
                Ok(namespace) => namespace,
                Err(error) if is_missing(&error) => return Err(Error::Gone(self.id)),
                Err(error) => return Err(error),
            },
        };
        if namespace.id()? == self.id { Ok(namespace) } else { Err(Error::Gone(self.id)) }
    }

    /// Runs a closure in the namespace; see [`Namespace::enter`].
    ///
    /// # Errors
    /// [`Error::Gone`], or those of [`Namespace::enter`].
    pub fn enter<T: Send + 'static>(&self, f: impl FnOnce() -> T + Send + 'static) -> Result<T, Error> {
        self.upgrade()?.enter(f)
    }
}

fn has_errno(error: &io::Error, errno: Errno) -> bool {
    error.raw_os_error() == Some(errno.raw_os_error())
}

/// Reports whether nothing, or something other than a network namespace, is at the path.
fn is_missing(error: &Error) -> bool {
    let Error::Kernel { cause, .. } = error else { return false };
    // A process that is gone: ESRCH. Another file: InvalidInput.
    matches!(cause.kind(), io::ErrorKind::NotFound | io::ErrorKind::InvalidInput) || has_errno(cause, Errno::SRCH)
}
