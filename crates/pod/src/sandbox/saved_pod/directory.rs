//! The directory of a checkpoint. Every file is opened relative to it, without following symbolic links.

use std::{
    fmt::Display,
    fs::File,
    io::{self, Read, Write},
    os::fd::AsRawFd,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use rustix::{
    fd::OwnedFd,
    fs::{AtFlags, Dir, FileType, Mode, OFlags, fstat, fsync, openat, syncfs, unlinkat},
    io::Errno,
};

use crate::{Error, error::failed};

/// Opens a directory. The last part of its path must not be a symbolic link.
fn open_directory(field: &str, path: &Path) -> Result<OwnedFd, Error> {
    let refuse = |cause: &dyn Display| Error::invalid(format!("{field}: {}: {cause}", path.display()));
    if !path.is_absolute() {
        return Err(refuse(&"the path is not absolute"));
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| match errno {
        Errno::NOENT | Errno::NOTDIR | Errno::LOOP => refuse(&"it is not an existing directory"),
        errno => failed(format_args!("{field}: open {}", path.display()))(errno),
    })
}

/// The directory that a checkpoint is written to.
#[derive(Debug)]
pub(in crate::sandbox) struct Output {
    directory: OwnedFd,
    /// Names of the files that were created.
    files: Mutex<Vec<String>>,
}

impl Output {
    /// Opens it. Blocks.
    ///
    /// # Errors
    /// `InvalidArgument` unless it is an existing, empty directory.
    pub(in crate::sandbox) fn open(path: &Path) -> Result<Self, Error> {
        let directory = open_directory("output_path", path)?;
        let operation = format!("output_path: read {}", path.display());
        for entry in Dir::read_from(&directory).map_err(failed(&operation))? {
            let entry = entry.map_err(failed(&operation))?;
            if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
                return Err(Error::invalid(format!("output_path: {}: it is not empty", path.display())));
            }
        }
        Ok(Self { directory, files: Mutex::default() })
    }

    /// Creates a file. Blocks.
    pub(in crate::sandbox) fn create(&self, name: &str) -> Result<File, Error> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&self.directory, name, flags, Mode::RUSR | Mode::WUSR);
        let file = file.map_err(failed(format_args!("create {name} of the checkpoint")))?;
        self.record(name);
        Ok(file.into())
    }

    /// Returns the path of a file that its user creates, valid while this exists.
    pub(in crate::sandbox) fn path(&self, name: &str) -> PathBuf {
        self.record(name);
        PathBuf::from(format!("/proc/self/fd/{}", self.directory.as_raw_fd())).join(name)
    }

    fn record(&self, name: &str) {
        self.files.lock().unwrap_or_else(PoisonError::into_inner).push(name.to_owned());
    }

    /// Removes a file; succeeds if it does not exist. Blocks.
    pub(in crate::sandbox) fn remove(&self, name: &str) -> Result<(), Error> {
        match unlinkat(&self.directory, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(failed(format_args!("remove {name} of the checkpoint"))(errno)),
        }
    }

    /// Removes all files that were created. Blocks.
    pub(in crate::sandbox) fn remove_all(&self) -> Result<(), Error> {
        let files = std::mem::take(&mut *self.files.lock().unwrap_or_else(PoisonError::into_inner));
        files.iter().try_for_each(|name| self.remove(name))
    }

    /// Writes a last file, when everything else is on the disk. Blocks.
    pub(in crate::sandbox) fn complete(&self, name: &str, text: &[u8]) -> Result<(), Error> {
        let operation = format!("write {name} of the checkpoint");
        syncfs(&self.directory).map_err(failed("write the checkpoint to its disk"))?;
        let mut file = self.create(name)?;
        file.write_all(text).and_then(|()| file.sync_all()).map_err(failed(&operation))?;
        fsync(&self.directory).map_err(failed(&operation))
    }
}

/// The directory that a checkpoint is read from.
#[derive(Debug)]
pub(in crate::sandbox) struct Source(OwnedFd);

impl Source {
    /// Opens it. Blocks.
    ///
    /// # Errors
    /// `InvalidArgument` unless it is a directory.
    pub(in crate::sandbox) fn open(path: &Path) -> Result<Self, Error> {
        open_directory("checkpoint_path", path).map(Self)
    }

    /// Opens a file of it for reading. Blocks.
    ///
    /// # Errors
    /// `InvalidArgument` unless it is a regular file.
    pub(in crate::sandbox) fn file(&self, name: &str) -> Result<File, Error> {
        let incomplete = |cause: &dyn Display| {
            Error::invalid(format!("checkpoint_path: the checkpoint is incomplete: {name}: {cause}"))
        };
        // A FIFO is not waited for.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = openat(&self.0, name, flags, Mode::empty()).map_err(|errno| match errno {
            Errno::NOENT | Errno::LOOP => incomplete(&io::Error::from(errno)),
            errno => failed(format_args!("open {name} of the checkpoint"))(errno),
        })?;
        let stat = fstat(&file).map_err(failed(format_args!("stat {name} of the checkpoint")))?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Ok(file.into()),
            _ => Err(incomplete(&"it is not a regular file")),
        }
    }

    /// Reads a file of at most `maximum` bytes; `None` if it is longer. Blocks.
    pub(in crate::sandbox) fn read(&self, name: &str, maximum: u64) -> Result<Option<Vec<u8>>, Error> {
        let mut text = Vec::new();
        let read = self.file(name)?.take(maximum + 1).read_to_end(&mut text);
        let length = read.map_err(failed(format_args!("read {name} of the checkpoint")))?;
        Ok((length as u64 <= maximum).then_some(text))
    }
}
