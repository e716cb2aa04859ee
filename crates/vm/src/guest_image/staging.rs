//! Replaces a directory as a whole.
//!
//! ```text
//! create    TARGET.new is made, which removes that of a killed build; the parent directory is locked until the end
//! file      files are written to TARGET.new, and synced
//! publish   TARGET.new becomes TARGET: renameat2 with RENAME_NOREPLACE, or RENAME_EXCHANGE and removal of the old one
//! drop      TARGET.new is removed, unless it was published
//! ```
//! Only directories that contain nothing but files of an image are replaced or removed.

use std::{
    fs::{self, File},
    io::{self, BufWriter, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{CWD, FlockOperation, RenameFlags, flock, renameat_with},
    io::Errno,
};
use sha2::{Digest, Sha256};

use super::error::{Error, ErrorKind};

pub(super) const KERNEL: &str = "kernel";
pub(super) const INITRAMFS: &str = "initramfs";
pub(super) const AGENT: &str = "agent";
pub(super) const DESCRIPTION: &str = "image.json";
/// Names of the files of an image.
const FILES: [&str; 4] = [KERNEL, INITRAMFS, AGENT, DESCRIPTION];

/// A directory that is being written, next to the one it replaces.
pub(super) struct Staging {
    target: PathBuf,
    directory: PathBuf,
    /// The parent of both, locked.
    parent: File,
}

impl Staging {
    /// # Errors
    /// `Busy` if the same parent directory is locked by another build; `Invalid` if the target is not an image.
    pub(super) fn create(target: &Path) -> Result<Self, Error> {
        const OPERATION: &str = "create image";
        let invalid = |cause| Error::invalid(OPERATION, target, cause);
        let name = target.file_name().ok_or_else(|| invalid("the path has no file name"))?;
        let parent_path = target.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        fs::create_dir_all(parent_path).map_err(Error::io("create directory", parent_path))?;
        let parent = File::open(parent_path).map_err(Error::io("open directory", parent_path))?;
        flock(&parent, FlockOperation::NonBlockingLockExclusive).map_err(|errno| match errno {
            Errno::WOULDBLOCK => Error::new(ErrorKind::Busy, OPERATION, target, "another build holds the lock")
                .with_remedy(format!("wait for the process that has {} locked (lslocks)", parent_path.display())),
            _ => Error::io("lock directory", parent_path)(errno),
        })?;
        let target = parent_path.join(name);
        let mut new_name = name.to_owned();
        new_name.push(".new");
        let directory = parent_path.join(new_name);
        check_replaceable(&target)?;
        remove(&directory)?;
        fs::create_dir(&directory).map_err(Error::io("create directory", &directory))?;
        Ok(Self { target, directory, parent })
    }

    /// Returns the path of one of its files.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Creates a file, whose content is also added to `hasher`.
    pub(super) fn file<'a>(&self, name: &str, hasher: &'a mut Sha256) -> Result<Output<'a>, Error> {
        let path = self.path(name);
        let file = File::create_new(&path).map_err(Error::io("create", &path))?;
        Ok(Output { path, file: BufWriter::with_capacity(1 << 17, file), hasher, size: 0 })
    }

    /// Creates a file that is a program.
    pub(super) fn program<'a>(&self, name: &str, hasher: &'a mut Sha256) -> Result<Output<'a>, Error> {
        let output = self.file(name, hasher)?;
        let mode = fs::Permissions::from_mode(0o755);
        output.file.get_ref().set_permissions(mode).map_err(Error::io("change the mode of", &output.path))?;
        Ok(output)
    }

    /// Puts it in the place of the target. Its files are on the disk before that, and its name afterwards.
    pub(super) fn publish(self) -> Result<(), Error> {
        let directory = File::open(&self.directory).map_err(Error::io("open directory", &self.directory))?;
        directory.sync_all().map_err(Error::io("sync directory", &self.directory))?;
        let rename = |flags| renameat_with(CWD, &self.directory, CWD, &self.target, flags);
        match rename(RenameFlags::NOREPLACE) {
            Err(Errno::EXIST) => rename(RenameFlags::EXCHANGE),
            other => other,
        }
        .map_err(Error::io("publish", &self.target))?;
        self.parent.sync_all().map_err(Error::io("sync directory of", &self.target))
        // Dropping `self` removes the old image, which has the name TARGET.new since the exchange.
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.directory) {
            tracing::warn!(%error, "directory of an image build is left over; the next build removes it");
        }
    }
}

/// A file that is being written and hashed.
pub(super) struct Output<'a> {
    path: PathBuf,
    file: BufWriter<File>,
    hasher: &'a mut Sha256,
    size: u64,
}

impl Output<'_> {
    /// Syncs the file, and returns its size in bytes.
    pub(super) fn finish(self) -> Result<u64, Error> {
        let Self { path, file, size, .. } = self;
        let file = file.into_inner().map_err(|error| Error::io("write", &path)(error.into_error()))?;
        file.sync_all().map_err(Error::io("sync", &path))?;
        Ok(size)
    }
}

impl Write for Output<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.hasher.update(&bytes[..written]);
        self.size += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// # Errors
/// `Invalid` if it is not a directory, or contains files that are not of an image.
fn check_replaceable(directory: &Path) -> Result<(), Error> {
    const OPERATION: &str = "replace image";
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(Error::io("read directory", directory))?,
    };
    for entry in entries {
        let name = entry.map_err(Error::io("read directory", directory))?.file_name();
        if !FILES.iter().any(|file| name == *file) {
            let cause = format!("the directory contains {}, which is not of an image", name.display());
            return Err(
                Error::invalid(OPERATION, directory, cause).with_remedy("use a directory that does not exist yet")
            );
        }
    }
    Ok(())
}

/// Removes the directory of an image, which need not exist.
fn remove(directory: &Path) -> Result<(), Error> {
    check_replaceable(directory)?;
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::io("remove", directory)(error)),
        _ => Ok(()),
    }
}
