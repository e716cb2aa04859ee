//! Directories of `/proc/sys/net` of a namespace, used from anywhere.

use std::{
    fs::File,
    io::{self, Read, Write},
    path::{Component, Path},
};

use rustix::{
    fd::OwnedFd,
    fs::{Mode, OFlags, ResolveFlags, openat2},
};

use crate::{Error, Namespace, sysctl_file};

/// Longest value that is read, in bytes.
const VALUE_MAX: u64 = 64 * 1024;

/// A directory of sysctls of one namespace, such as `ipv4/conf`.
///
/// Its values are read and written from any thread, without a switch. It is in a proc file system of this process, which up
/// to 16 of them share, so that opening it takes as long with 1000 namespaces as with one. It does not keep the namespace alive; afterwards
/// nothing is found in it.
#[derive(Debug)]
pub struct SysctlDir {
    directory: OwnedFd,
    path: String,
}

impl SysctlDir {
    /// Opens a directory below `/proc/sys/net` in a namespace: `ipv4`, `ipv6/conf`, `core`.
    ///
    /// `/proc/sys/net` itself cannot be opened: it is one directory for all namespaces, and the thread that looks into it
    /// decides what it finds. The directories below belong to a namespace each.
    ///
    /// # Errors
    /// [`Error::Sysctl`] for a path that is not below `/proc/sys/net`, `ENOENT` if the namespace does not have it.
    pub fn open(namespace: &Namespace, path: &str) -> Result<Self, Error> {
        check(path)?;
        let full = format!("/proc/sys/net/{path}");
        let key = format!("net/{path}");
        let opened = namespace.enter(move || sysctl_file::open(&key, OFlags::PATH | OFlags::DIRECTORY))?;
        Ok(Self { directory: opened.map_err(|e| Error::kernel("open", &full, e))?, path: full })
    }

    /// Returns a value without the line's end.
    ///
    /// # Errors
    /// `ENOENT` if the value does not exist, or the namespace is gone.
    pub fn read(&self, name: &str) -> Result<String, Error> {
        let fail = |e: io::Error| Error::kernel("read", format!("{}/{name}", self.path), e);
        let mut text = String::new();
        self.file(name, OFlags::RDONLY)?.take(VALUE_MAX).read_to_string(&mut text).map_err(fail)?;
        text.truncate(text.trim_end_matches('\n').len());
        Ok(text)
    }

    /// Writes a value.
    ///
    /// # Errors
    /// `ENOENT` if the value does not exist, or the namespace is gone; `EINVAL` if the kernel refuses the value.
    pub fn write(&self, name: &str, value: &str) -> Result<(), Error> {
        let fail = |e: io::Error| Error::kernel("write", format!("{}/{name}", self.path), e);
        // The kernel takes a value from one call only.
        let mut file = self.file(name, OFlags::WRONLY)?;
        let written = file.write(value.as_bytes()).map_err(fail)?;
        if written == value.len() { Ok(()) } else { Err(fail(io::ErrorKind::WriteZero.into())) }
    }

    fn file(&self, name: &str, access: OFlags) -> Result<File, Error> {
        check(name)?;
        let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let opened = openat2(&self.directory, name, access | OFlags::CLOEXEC, Mode::empty(), beneath);
        let opened = opened.map_err(|e| Error::kernel("open", format!("{}/{name}", self.path), e))?;
        Ok(File::from(opened))
    }
}

/// Accepts a relative path without `.` and `..`.
fn check(path: &str) -> Result<(), Error> {
    let plain = !path.is_empty()
        && !path.contains('\0')
        && Path::new(path).components().all(|part| matches!(part, Component::Normal(_)));
    let reason = || "not a path below /proc/sys/net".to_owned();
    if plain { Ok(()) } else { Err(Error::Sysctl { key: path.to_owned(), reason: reason() }) }
}
