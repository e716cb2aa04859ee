//! The record of the container that a runtime writes for later calls.

use std::io;

use rustix::{
    fd::OwnedFd,
    fs::{AtFlags, CWD, Mode, OFlags, mkdirat, openat, renameat, unlinkat},
};

const ROOT: &str = "/run/pinion-floor";
/// The length of the record, as that of a runtime for the benchmark's container.
const LENGTH: usize = 1500;

/// The state directory, with a record and a seccomp filter.
pub(crate) struct Record {
    root: OwnedFd,
    directory: OwnedFd,
    name: String,
}

impl Record {
    pub(crate) fn create(name: &str, filter: &[u8]) -> io::Result<Self> {
        match mkdirat(CWD, ROOT, Mode::from_raw_mode(0o700)) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = openat(CWD, ROOT, flags, Mode::empty())?;
        mkdirat(&root, name, Mode::from_raw_mode(0o700))?;
        let directory = openat(&root, name, flags, Mode::empty())?;
        let record = Self { root, directory, name: name.to_owned() };
        record.put("seccomp.bpf", filter)?;
        Ok(record)
    }

    pub(crate) fn write(&self, pid: i32) -> io::Result<()> {
        let mut text = format!("{{\"pid\":{pid}}}").into_bytes();
        text.resize(LENGTH, b' ');
        self.put(".state.json", &text)?;
        Ok(renameat(&self.directory, ".state.json", &self.directory, "state.json")?)
    }

    fn put(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
        rustix::io::write(openat(&self.directory, name, flags, Mode::from_raw_mode(0o600))?, bytes)?;
        Ok(())
    }

    pub(crate) fn remove(&self) -> io::Result<()> {
        for name in ["state.json", "seccomp.bpf"] {
            unlinkat(&self.directory, name, AtFlags::empty())?;
        }
        unlinkat(&self.root, self.name.as_str(), AtFlags::REMOVEDIR)?;
        Ok(())
    }
}
