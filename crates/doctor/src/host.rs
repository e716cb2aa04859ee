//! The files of a node, below a root directory: `/`, or a directory that a test has filled.

use std::{
    fs::{self, OpenOptions},
    io::{self, Read},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use rustix::fs::OFlags;

/// The largest file that is read, in bytes. Larger files are cut.
const SIZE_MAX: u64 = 4 << 20;
/// The maximum number of entries that are listed of a directory.
const ENTRIES_MAX: usize = 65_536;

/// The files of a node.
#[derive(Clone, Debug)]
pub struct Host {
    root: PathBuf,
}

impl Host {
    /// The machine that this process runs on.
    #[must_use]
    pub fn real() -> Self {
        Self { root: PathBuf::from("/") }
    }

    /// The files below a directory.
    #[must_use]
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Whether this is the machine that the process runs on, so that its kernel and programs can be used.
    #[must_use]
    pub fn is_real(&self) -> bool {
        self.root == Path::new("/")
    }

    /// Returns the path of a file of the node.
    #[must_use]
    pub fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// Reads a file; `None` if it does not exist or cannot be read.
    #[must_use]
    pub fn read(&self, path: impl AsRef<Path>) -> Option<String> {
        self.try_read(path).ok()
    }

    /// Reads at most the first 4 MiB of a regular file. Bytes that are not UTF-8 are replaced.
    ///
    /// # Errors
    /// The file does not exist, cannot be read, or is not a regular file.
    pub fn try_read(&self, path: impl AsRef<Path>) -> io::Result<String> {
        let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits();
        let file = OpenOptions::new().read(true).custom_flags(flags.cast_signed()).open(self.path(path))?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        let mut bytes = Vec::new();
        file.take(SIZE_MAX).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Reads a file with a single value, without white space around it.
    #[must_use]
    pub fn value(&self, path: impl AsRef<Path>) -> Option<String> {
        self.read(path).map(|text| text.trim().to_owned())
    }

    /// Reads a sysctl such as `net.ipv4.ip_forward`.
    #[must_use]
    pub fn sysctl(&self, name: &str) -> Option<String> {
        self.value(Path::new("/proc/sys").join(name.replace('.', "/")))
    }

    /// Reads a sysctl that is a number.
    #[must_use]
    pub fn sysctl_number(&self, name: &str) -> Option<u64> {
        self.sysctl(name)?.parse().ok()
    }

    /// Whether a file of any type exists. A symbolic link exists, too, if its target does not.
    #[must_use]
    pub fn exists(&self, path: impl AsRef<Path>) -> bool {
        self.path(path).symlink_metadata().is_ok()
    }

    /// Lists the names in a directory, sorted; none if it does not exist.
    #[must_use]
    pub fn list(&self, path: impl AsRef<Path>) -> Vec<String> {
        let entries = fs::read_dir(self.path(path)).into_iter().flatten().flatten().take(ENTRIES_MAX);
        let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    /// Returns the target of a symbolic link.
    #[must_use]
    pub fn link(&self, path: impl AsRef<Path>) -> Option<PathBuf> {
        fs::read_link(self.path(path)).ok()
    }

    /// Finds a program in the usual directories.
    #[must_use]
    pub fn program(&self, name: &str) -> Option<PathBuf> {
        let directories = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];
        directories.iter().map(|directory| Path::new(directory).join(name)).find(|path| self.path(path).is_file())
    }
}

#[cfg(test)]
impl Host {
    /// Writes a file of a test, and the directories that contain it.
    pub(crate) fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        fs::write(path, text).expect("written");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_bounded_and_regular() {
        let dir = tempfile::tempdir().expect("a directory");
        let host = Host::at(dir.path());
        fs::create_dir_all(dir.path().join("proc/sys/net")).expect("made");
        fs::write(dir.path().join("proc/sys/net/x"), "12\n").expect("written");
        fs::write(dir.path().join("large"), vec![b'x'; (SIZE_MAX + 10) as usize]).expect("written");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            dir.path().join("pipe"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        )
        .expect("made");
        assert_eq!(host.sysctl_number("net.x"), Some(12));
        assert_eq!(host.read("/large").map(|text| text.len() as u64), Some(SIZE_MAX));
        assert!(host.try_read("/pipe").is_err(), "a FIFO does not block");
        assert_eq!(host.read("/not/there"), None);
        assert_eq!(host.list("/proc/sys"), ["net"]);
        assert!(!host.is_real() && Host::real().is_real());
    }
}
