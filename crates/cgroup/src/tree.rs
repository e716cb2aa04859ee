//! One mounted tree, and the only place that touches its files: all by paths relative to one descriptor.

use rustix::{
    fd::OwnedFd,
    fs::{AtFlags, Mode, OFlags},
    io::Errno,
};

use crate::{Error, controller::Controllers};

/// Most bytes read of any of the kernel's files here (a list of processes may be longer: see `read_all`).
const READ_MAX: usize = 16 << 20;

/// A mounted tree.
#[derive(Debug)]
pub(crate) struct Tree {
    /// `unified`, `cpu,cpuacct`, `name=systemd`: for messages.
    pub(crate) name: String,
    /// Whether it is the v2 tree.
    pub(crate) v2: bool,
    /// The controllers it has (v2: those at its root).
    pub(crate) controllers: Controllers,
    /// Its root, as mounted.
    pub(crate) root: OwnedFd,
}

impl Tree {
    /// For messages: `memory:/pinion/x/memory.limit_in_bytes`.
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

    /// Writes a value in one write(2), as the kernel wants it.
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

    /// A file of one short value, which the kernel gives in one read.
    pub(crate) fn read_value(&self, path: &str) -> Result<String, Error> {
        let mut value = [0; 4096];
        let read = self.open(path, OFlags::RDONLY).and_then(|file| rustix::io::read(&file, &mut value));
        let length = read.map_err(|errno| Error::io("read", self.describe(path), errno))?;
        if length == value.len() {
            return self.read(path);
        }
        Ok(String::from_utf8_lossy(&value[..length]).into_owned())
    }

    /// Names of the groups right below.
    pub(crate) fn children(&self, path: &str) -> Result<Vec<String>, Errno> {
        child_names(&self.open_dir(path)?)
    }
}

/// Names of the directories in a directory.
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

/// Reads from the start of a file to its end, so that a kept descriptor gives fresh values.
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
