//! A mounted tree and all accesses to its files, by paths relative to its descriptor.

use rustix::{
    fd::OwnedFd,
    fs::{AtFlags, Mode, OFlags},
    io::Errno,
};

use crate::{Error, controller::Controllers};

/// The most bytes that are read from a kernel file.
const READ_MAX: usize = 16 << 20;

/// A mounted tree.
#[derive(Debug)]
pub(crate) struct Tree {
    /// The name, for messages: `unified`, `cpu,cpuacct`, `name=systemd`.
    pub(crate) name: String,
    /// Whether it is the v2 tree.
    pub(crate) v2: bool,
    /// The controllers of the tree (v2: those at its root).
    pub(crate) controllers: Controllers,
    /// The root directory of the mount.
    pub(crate) root: OwnedFd,
}

impl Tree {
    /// Formats a path for messages: `memory:/pinion/x/memory.limit_in_bytes`.
    pub(crate) fn describe(&self, path: &str) -> String {
        format!("{}:/{path}", self.name)
    }

    pub(crate) fn mkdir(&self, path: &str) -> Result<(), Errno> {
        rustix::fs::mkdirat(&self.root, path, Mode::from_raw_mode(0o755))
    }

    pub(crate) fn rmdir(&self, path: &str) -> Result<(), Errno> {
        rustix::fs::unlinkat(&self.root, path, AtFlags::REMOVEDIR)
    }

    pub(crate) fn exists(&self, path: &str) -> bool {
        rustix::fs::accessat(&self.root, path, rustix::fs::Access::EXISTS, AtFlags::empty()).is_ok()
    }

    pub(crate) fn open(&self, path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        rustix::fs::openat(&self.root, path, flags | OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::empty())
    }

    pub(crate) fn open_dir(&self, path: &str) -> Result<OwnedFd, Errno> {
        self.open(path, OFlags::RDONLY | OFlags::DIRECTORY)
    }

    /// Writes a value with a single write(2), as the kernel requires.
    pub(crate) fn try_write(&self, path: &str, value: &str) -> Result<(), Errno> {
        let file = self.open(path, OFlags::WRONLY)?;
        write_once(&file, value)
    }

    pub(crate) fn write(&self, path: &str, value: &str) -> Result<(), Error> {
        self.try_write(path, value).map_err(|errno| self.write_failed(path, value, errno))
    }

    pub(crate) fn write_failed(&self, path: &str, value: &str, errno: Errno) -> Error {
        Error::io(format!("write {value:?} to"), self.describe(path), errno)
    }

    pub(crate) fn try_read(&self, path: &str) -> Result<String, Errno> {
        let file = self.open(path, OFlags::RDONLY)?;
        read_all(&file)
    }

    pub(crate) fn read(&self, path: &str) -> Result<String, Error> {
        self.try_read(path).map_err(|errno| Error::io("read", self.describe(path), errno))
    }

    /// Reads a file with one short value, usually with a single read(2).
    pub(crate) fn read_value(&self, path: &str) -> Result<String, Error> {
        let mut value = [0; 4096];
        let read = self.open(path, OFlags::RDONLY).and_then(|file| rustix::io::read(&file, &mut value));
        let length = read.map_err(|errno| Error::io("read", self.describe(path), errno))?;
        if length == value.len() {
            return self.read(path);
        }
        Ok(String::from_utf8_lossy(&value[..length]).into_owned())
    }

    /// Returns the names of the child groups.
    pub(crate) fn children(&self, path: &str) -> Result<Vec<String>, Errno> {
        child_names(&self.open_dir(path)?)
    }
}

/// Returns the names of the subdirectories.
pub(crate) fn child_names(dir: &OwnedFd) -> Result<Vec<String>, Errno> {
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy();
        if entry.file_type() == rustix::fs::FileType::Directory && name != "." && name != ".." {
            names.push(name.into_owned());
        }
    }
    Ok(names)
}

pub(crate) fn write_once(file: &OwnedFd, value: &str) -> Result<(), Errno> {
    loop {
        match rustix::io::write(file, value.as_bytes()) {
            Err(Errno::INTR) => {}
            Ok(n) if n < value.len() => return Err(Errno::IO),
            result => return result.map(drop),
        }
    }
}

/// Reads a file from its start to its end, so that a descriptor that stays open returns current values.
pub(crate) fn read_all(file: &OwnedFd) -> Result<String, Errno> {
    let mut data = vec![0; 4096];
    let mut filled = 0;
    loop {
        match rustix::io::pread(file, &mut data[filled..], filled as u64) {
            Err(Errno::INTR) => continue,
            Err(errno) => return Err(errno),
            Ok(0) => break,
            Ok(n) => filled += n,
        }
        if filled == data.len() {
            if filled >= READ_MAX {
                return Err(Errno::FBIG);
            }
            data.resize(filled * 2, 0);
        }
    }
    data.truncate(filled);
    Ok(String::from_utf8_lossy(&data).into_owned())
}
