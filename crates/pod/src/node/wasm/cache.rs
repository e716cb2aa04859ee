//! Compiled code: a directory for each version of the program.
//!
//! ```text
//! <version>/<digest of the module>.cwasm
//! <version>/<digest of the module>.<digest of an image that contains it>     empty
//! <version>/<digest of the module>.new                                       being compiled
//! ```
//! A process that can write code controls those that run it: the directory is writable by this process only, and
//! containers get descriptors on a read-only mount.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

use image::Digest;
use rustix::{
    fd::OwnedFd,
    fs::{Mode, OFlags, openat},
    io::Errno,
};

use super::read_only::read_only_clone;
use crate::{Error, error::failed};

/// Extension of compiled code.
const CODE: &str = "cwasm";
/// Extension of a file that is being written.
const NEW: &str = "new";

/// The code of one version.
#[derive(Clone)]
pub(super) struct Cache {
    directory: PathBuf,
    /// The directory on a read-only mount.
    read_only: Arc<OwnedFd>,
}

/// A file that is being written. It is removed if it is not published.
pub(super) struct NewFile {
    path: PathBuf,
    published: PathBuf,
    file: File,
}

impl Cache {
    /// Opens or creates the directory. Blocks.
    ///
    /// # Errors
    /// `FailedPrecondition` if another user may write to it, or to its parent.
    pub(super) fn open(directory: PathBuf) -> Result<Self, Error> {
        let created = DirBuilder::new().recursive(true).mode(0o700).create(&directory);
        created.map_err(failed(format_args!("create {}", directory.display())))?;
        directory.parent().into_iter().chain([directory.as_path()]).try_for_each(require_private)?;
        let read_only = Arc::new(read_only_clone(&directory)?);
        Ok(Self { directory, read_only })
    }

    /// Opens the code of a module; `None` if there is none.
    pub(super) fn find(&self, module: &Digest) -> Result<Option<OwnedFd>, Error> {
        let name = format!("{}.{CODE}", module.hex());
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match openat(&*self.read_only, &name, flags, Mode::empty()) {
            Ok(code) => Ok(Some(code)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(failed(format_args!("open {}", self.directory.join(name).display()))(errno)),
        }
    }

    /// Records that an image contains a module, and reports whether there is code of the module. Blocks.
    pub(super) fn mark(&self, module: &Digest, image: &str) -> Result<bool, Error> {
        let image = image.strip_prefix("sha256:").unwrap_or(image);
        let path = self.directory.join(format!("{}.{image}", module.hex()));
        File::create(&path).map_err(failed(format_args!("create {}", path.display())))?;
        Ok(self.find(module)?.is_some())
    }

    /// Creates the file for the code of a module. Blocks.
    pub(super) fn new_file(&self, module: &Digest) -> Result<NewFile, Error> {
        let path = self.directory.join(format!("{}.{NEW}", module.hex()));
        let error = || format!("create {}", path.display());
        // A killed daemon leaves it.
        match fs::remove_file(&path) {
            Err(cause) if cause.kind() != io::ErrorKind::NotFound => return Err(failed(error())(cause)),
            _ => {}
        }
        let file = OpenOptions::new().write(true).create_new(true).mode(0o444).open(&path).map_err(failed(error()))?;
        Ok(NewFile { published: path.with_extension(CODE), path, file })
    }

    /// Removes the oldest code until the rest has this size in bytes at most. Containers that run it keep it. Blocks.
    pub(super) fn evict(&self, size_max: u64) -> Result<(), Error> {
        let mut all: Vec<(SystemTime, u64, PathBuf)> = Vec::new();
        for path in list(&self.directory)?.into_iter().filter(|path| has_extension(path, CODE)) {
            if let Ok(file) = fs::metadata(&path) {
                all.push((file.modified().unwrap_or(SystemTime::UNIX_EPOCH), file.len(), path));
            }
        }
        all.sort();
        let mut total: u64 = all.iter().map(|(_, size, _)| size).sum();
        // The newest one is needed now, however large it is.
        all.pop();
        for (_, size, path) in all {
            if total <= size_max {
                break;
            }
            remove(&path)?;
            total -= size;
        }
        Ok(())
    }

    /// Removes what belongs to no image, and what an earlier compilation left over. Blocks.
    pub(super) fn remove_unowned(&self, exists: impl Fn(&str) -> bool) -> Result<(), Error> {
        let files = list(&self.directory)?;
        let is_marker = |path: &PathBuf| !has_extension(path, CODE) && !has_extension(path, NEW);
        let (markers, others): (Vec<PathBuf>, Vec<PathBuf>) = files.into_iter().partition(is_marker);
        let mut owned = std::collections::HashSet::new();
        for marker in markers {
            let image = marker.extension().and_then(|image| image.to_str()).unwrap_or_default();
            match exists(&format!("sha256:{image}")) {
                true => {
                    owned.insert(marker.with_extension(""));
                }
                false => remove(&marker)?,
            }
        }
        let unowned =
            others.iter().filter(|path| has_extension(path, NEW) || !owned.contains(&path.with_extension("")));
        unowned.map(PathBuf::as_path).try_for_each(remove)
    }
}

impl NewFile {
    /// Returns a descriptor to write to.
    pub(super) fn writer(&self) -> Result<File, Error> {
        self.file.try_clone().map_err(failed("duplicate a descriptor"))
    }

    /// Gives the file its name, when all of it is on disk: a part of it would not be valid code. Blocks.
    pub(super) fn publish(self) -> Result<(), Error> {
        let error = |operation: &str| format!("{operation} {}", self.path.display());
        self.file.sync_all().map_err(failed(error("sync")))?;
        fs::rename(&self.path, &self.published).map_err(failed(error("rename")))
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        // It does not exist anymore if it was published; otherwise the reconciler removes it.
        let _ = fs::remove_file(&self.path);
    }
}

/// Removes the directories of other versions. Containers that run their code keep it. Blocks.
pub(super) fn remove_other_versions(directory: &Path, version: &str) -> Result<(), Error> {
    for path in list(directory)?.into_iter().filter(|path| path.file_name().is_some_and(|name| name != version)) {
        fs::remove_dir_all(&path).map_err(failed(format_args!("remove {}", path.display())))?;
    }
    Ok(())
}

fn require_private(directory: &Path) -> Result<(), Error> {
    let metadata = fs::symlink_metadata(directory).map_err(failed(format_args!("stat {}", directory.display())))?;
    let is_own = metadata.is_dir() && metadata.uid() == rustix::process::geteuid().as_raw();
    match is_own && metadata.mode() & 0o022 == 0 {
        true => Ok(()),
        false => Err(Error::state(format!(
            "open the cache of compiled code: another user may write to {}, and so control containers; give the directory \
             to root with mode 0700, or choose another one as cache of the handler",
            directory.display()
        ))),
    }
}

fn list(directory: &Path) -> Result<Vec<PathBuf>, Error> {
    let entries = fs::read_dir(directory).and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect());
    entries.map_err(failed(format_args!("list {}", directory.display())))
}

fn has_extension(path: &Path, extension: &str) -> bool {
    path.extension().is_some_and(|other| other == extension)
}

fn remove(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        Err(cause) if cause.kind() != io::ErrorKind::NotFound => {
            Err(failed(format_args!("remove {}", path.display()))(cause))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn write(cache: &Cache, module: &Digest, image: &str, bytes: usize) {
        assert!(!cache.mark(module, image).expect("mark"));
        let file = cache.new_file(module).expect("new file");
        file.writer().expect("writer").write_all(&vec![0; bytes]).expect("write");
        file.publish().expect("publish");
    }

    #[test]
    fn code_belongs_to_images_and_is_bounded() {
        let directory = tempfile::tempdir().expect("a directory");
        let cache = Cache::open(directory.path().join("1")).expect("open");
        let modules = [b"a", b"b", b"c"].map(|name| Digest::of(name));
        write(&cache, &modules[0], "sha256:one", 100);
        write(&cache, &modules[1], "sha256:two", 100);
        assert!(cache.mark(&modules[1], "sha256:three").expect("mark"), "the code exists");
        drop(cache.new_file(&modules[2]).expect("new file"));
        let exist = || modules.each_ref().map(|module| cache.find(module).expect("open").is_some());
        assert_eq!(exist(), [true, true, false]);
        cache.remove_unowned(|image| image == "sha256:three").expect("remove");
        assert_eq!(exist(), [false, true, false]);
        std::thread::sleep(std::time::Duration::from_millis(20));
        write(&cache, &modules[2], "sha256:three", 100);
        cache.evict(150).expect("evict");
        assert_eq!(exist(), [false, false, true]);
        remove_other_versions(directory.path(), "2").expect("remove");
        assert!(cache.find(&modules[2]).expect("open").is_none());
    }

    #[test]
    fn a_directory_that_others_may_write_to_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().expect("a directory");
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o1777)).expect("chmod");
        let error = Cache::open(directory.path().join("1")).err().expect("refused");
        assert!(error.message.contains("another user may write to"), "{error}");
    }

    #[test]
    fn a_container_cannot_open_code_for_writing() {
        let directory = tempfile::tempdir().expect("a directory");
        let cache = Cache::open(directory.path().join("1")).expect("open");
        let module = Digest::of(b"a");
        write(&cache, &module, "sha256:one", 1);
        let code = cache.find(&module).expect("open").expect("code");
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&code));
        let opened = OpenOptions::new().write(true).open(path);
        assert_eq!(opened.err().and_then(|error| error.raw_os_error()), Some(Errno::ROFS.raw_os_error()));
    }
}
