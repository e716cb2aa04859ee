//! Pins: paths that keep namespaces alive without a process in them.
//!
//! A pin is a bind mount of the namespace's file in a hidden directory, the store. It is published in the public
//! directory as a symbolic link, by rename, so a program that sees the name finds a namespace that is ready. (If a file
//! is created first and mounted over later, as iproute2 does, three of four watchers see it before it is ready.)
//!
//! ```text
//! pin:    store/<name> ← empty file → bind mount     public/.<name>.new ← link → rename → public/<name>
//! unpin:  public/<name> unlinked                     store/<name> detached, then unlinked
//! ```
//! A crash can happen after each step: [`PinDir::pin`] removes leftovers of its name, and [`PinDir::unpin`] removes
//! whatever exists. A lock on the store keeps the steps of one call, of any process, apart from those of others.

mod store_lock;

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Instant,
};

use rustix::{
    fd::{AsFd, AsRawFd, BorrowedFd},
    fs::{CWD, Mode, OFlags, RenameFlags, openat, renameat_with, symlink, unlink},
    io::Errno,
    mount::{UnmountFlags, mount_bind, unmount},
};

use crate::{Error, Namespace, namespace::NSFS_MAGIC, teardown};
pub(crate) use store_lock::StoreLock;

/// A directory of pins, and the public directory that shows them.
///
/// If the store is below the public directory, the links are relative, so that they also work in a container that
/// mounts the public directory.
#[derive(Clone, Debug)]
pub struct PinDir {
    store: PathBuf,
    public: PathBuf,
    target: PathBuf,
}

impl PinDir {
    /// Creates both directories if they do not exist.
    ///
    /// # Errors
    /// When a directory cannot be created, or a path is not absolute.
    pub fn open(store: &Path, public: &Path) -> Result<Self, Error> {
        for directory in [store, public] {
            if !directory.is_absolute() {
                return Err(Error::path("open pin directory", directory, io::Error::other("the path is not absolute")));
            }
            fs::create_dir_all(directory).map_err(|e| Error::path("create pin directory", directory, e))?;
        }
        let target = store.strip_prefix(public).unwrap_or(store).to_owned();
        Ok(Self { store: store.to_owned(), public: public.to_owned(), target })
    }

    /// Pins a namespace and publishes the pin; returns the public path. Takes 15 to 30 µs. Of two calls with one name, in
    /// any processes, the first succeeds.
    ///
    /// # Errors
    /// [`Error::Exists`] if the name is in use; otherwise the kernel's error. In both cases nothing is left behind.
    /// `EWOULDBLOCK` if another process has held the lock of the store for ten seconds.
    pub fn pin(&self, name: &str, ns: &Namespace) -> Result<PathBuf, Error> {
        self.pin_namespace(name, ns.as_fd())
    }

    /// Like [`PinDir::pin`], for a namespace of any kind; [`PinDir::get`] returns network namespaces only.
    ///
    /// # Errors
    /// Those of [`PinDir::pin`]; `EINVAL` for a descriptor that is not one of a namespace.
    pub fn pin_namespace(&self, name: &str, ns: BorrowedFd<'_>) -> Result<PathBuf, Error> {
        valid(name)?;
        let _store_lock = StoreLock::acquire(&self.store)?;
        let public = self.public.join(name);
        if fs::symlink_metadata(&public).is_ok() {
            return Err(Error::Exists(name.to_owned()));
        }
        self.unpin_store(name)?;
        let hidden = self.store.join(name);
        let outcome = self.mount(&hidden, ns).and_then(|()| self.publish(name, &public));
        if outcome.is_err() {
            // The first error is the one to return.
            let _ = self.unpublish(name).and_then(|()| self.unpin_store(name));
        }
        outcome.map(|()| public)
    }

    fn mount(&self, hidden: &Path, ns: BorrowedFd<'_>) -> Result<(), Error> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        openat(CWD, hidden, flags, Mode::from_raw_mode(0o444)).map_err(|e| Error::path("create pin", hidden, e))?;
        let source = format!("/proc/thread-self/fd/{}", ns.as_raw_fd());
        mount_bind(&source, hidden).map_err(|e| Error::path("mount namespace on", hidden, e))
    }

    fn publish(&self, name: &str, public: &Path) -> Result<(), Error> {
        let temporary = self.temporary(name);
        ignore_missing(unlink(&temporary)).map_err(|e| Error::path("remove", &temporary, e))?;
        symlink(self.target.join(name), &temporary).map_err(|e| Error::path("create link", &temporary, e))?;
        // Another program, which does not know of the lock, may have created the name in the meantime.
        match renameat_with(CWD, &temporary, CWD, public, RenameFlags::NOREPLACE) {
            Err(Errno::EXIST) => Err(Error::Exists(name.to_owned())),
            renamed => renamed.map_err(|e| Error::path("publish", public, e)),
        }
    }

    /// Removes a pin; succeeds if the name is not pinned.
    ///
    /// # Errors
    /// The kernel's error, when a mount or file could not be removed. `EWOULDBLOCK` if another process has held the lock of
    /// the store for ten seconds.
    pub fn unpin(&self, name: &str) -> Result<(), Error> {
        valid(name)?;
        let _store_lock = StoreLock::acquire(&self.store)?;
        self.unpublish(name)?;
        self.unpin_store(name)
    }

    /// Removes the public link of a pin, and leftovers of its publication.
    pub(crate) fn unpublish(&self, name: &str) -> Result<(), Error> {
        for path in [self.public.join(name), self.temporary(name)] {
            // Only remove links of ours: another program may have created a file with this name.
            if self.is_ours(&path, name).map_err(|e| Error::path("read link", &path, e))? {
                ignore_missing(unlink(&path)).map_err(|e| Error::path("remove", &path, e))?;
            }
        }
        Ok(())
    }

    /// Returns the path of a link that is not published yet. Stores with one public directory have different ones.
    fn temporary(&self, name: &str) -> PathBuf {
        // FNV-1a.
        let step = |hash: u32, byte: &u8| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
        let store = self.target.as_os_str().as_encoded_bytes().iter().fold(0x811c_9dc5, step);
        self.public.join(format!(".{name}.{store:08x}.new"))
    }

    pub(crate) fn store(&self) -> &Path {
        &self.store
    }

    pub(crate) fn public(&self) -> &Path {
        &self.public
    }

    /// Reports whether a path is a link to the pin of this name.
    fn is_ours(&self, path: &Path, name: &str) -> io::Result<bool> {
        match fs::read_link(path) {
            Ok(target) => Ok(target == self.target.join(name)),
            // The path does not exist, or is not a link.
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::InvalidInput) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn unpin_store(&self, name: &str) -> Result<(), Error> {
        let hidden = self.store.join(name);
        loop {
            match unmount(&hidden, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
                Ok(()) => teardown::note(Instant::now()),
                // EINVAL: the path is not a mount point (any longer).
                Err(Errno::INVAL | Errno::NOENT) => break,
                Err(e) => return Err(Error::path("unmount", &hidden, e)),
            }
        }
        ignore_missing(unlink(&hidden)).map_err(|e| Error::path("remove", &hidden, e))
    }

    /// Returns all names in the store, including those that were not published because of a crash.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn list(&self) -> Result<Vec<String>, Error> {
        let fail = |e| Error::path("read", &self.store, e);
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.store).map_err(fail)? {
            if let Ok(name) = entry.map_err(fail)?.file_name().into_string() {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    /// Opens a pinned namespace.
    ///
    /// # Errors
    /// [`Error::NotFound`] if the name is not pinned.
    pub fn get(&self, name: &str) -> Result<Namespace, Error> {
        valid(name)?;
        let hidden = self.store.join(name);
        if !hidden.exists() {
            return Err(Error::NotFound(name.to_owned()));
        }
        Namespace::open(&hidden)
    }

    /// Reports whether a namespace is mounted on the pin of this name. Takes one statfs(2) and opens nothing.
    ///
    /// # Errors
    /// When the name is not valid, or statfs(2) fails.
    pub fn is_pinned(&self, name: &str) -> Result<bool, Error> {
        valid(name)?;
        let path = self.store.join(name);
        match rustix::fs::statfs(&path) {
            Ok(stat) => Ok(stat.f_type as u64 == NSFS_MAGIC),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(Error::path("statfs", &path, errno)),
        }
    }

    /// Returns the public path of a name, which need not be pinned.
    ///
    /// # Errors
    /// When the name is not valid.
    pub fn path(&self, name: &str) -> Result<PathBuf, Error> {
        valid(name)?;
        Ok(self.public.join(name))
    }
}

fn valid(name: &str) -> Result<(), Error> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    let fits = (1..=200).contains(&name.len()) && !name.starts_with('.') && name.bytes().all(plain);
    if fits { Ok(()) } else { Err(Error::Name(name.to_owned())) }
}

fn ignore_missing(result: rustix::io::Result<()>) -> rustix::io::Result<()> {
    match result {
        Err(Errno::NOENT) => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::valid;

    #[test]
    fn a_name_is_one_plain_path_component() {
        for good in ["a", "cni-0b5f", "pod_1.x", &"x".repeat(200)] {
            assert!(valid(good).is_ok(), "{good:?}");
        }
        for bad in ["", ".", "..", ".hidden", "a/b", "../a", "a b", "a\0", &"x".repeat(201)] {
            assert!(valid(bad).is_err(), "{bad:?}");
        }
    }
}
