//! The mount that a path of the node is on, determined from the text of the path: the path itself is not accessed,
//! because a dead file server never answers.

use std::path::{Path, PathBuf};

/// A mount in this process's namespace (proc_pid_mountinfo(5)).
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mount {
    id: u64,
    point: PathBuf,
    /// Major and minor number of the file system, as text.
    device: String,
    /// Optional fields: `shared:`, `master:` and the like.
    tags: Vec<String>,
    /// Type of the file system.
    kind: String,
    /// What is mounted; for a tmpfs any text.
    source: String,
}

/// All mounts in this process's namespace at one moment.
#[derive(Debug, Default)]
pub(crate) struct MountTable(Vec<Mount>);

impl MountTable {
    /// Reads the mount table; returns an empty one on failure. Never waits for a file system.
    pub(crate) fn read() -> Self {
        Self::parse(&std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default())
    }

    fn parse(text: &str) -> Self {
        let mount = |line: &str| {
            let mut fields = line.split(' ');
            let id = fields.next()?.parse().ok()?;
            let device = fields.nth(1)?.to_owned();
            let point = PathBuf::from(unescape(fields.nth(1)?));
            let tags = fields.by_ref().skip(1).take_while(|field| *field != "-").map(str::to_owned).collect();
            let (kind, source) = (fields.next()?.to_owned(), unescape(fields.next()?));
            Some(Mount { id, point, device, tags, kind, source })
        };
        Self(text.lines().filter_map(mount).collect())
    }

    /// Returns the mount that a path is on: of the mounts with the longest matching mount point, the last one.
    fn mount_of(&self, path: &Path) -> Option<&Mount> {
        let above = self.0.iter().filter(|mount| path.starts_with(&mount.point));
        above.max_by_key(|mount| mount.point.as_os_str().len())
    }

    /// Returns the key that a path shares with the paths that hang when it does: its file system. On the root file
    /// system the path itself is the key.
    pub(crate) fn source(&self, path: &Path) -> String {
        match self.mount_of(path) {
            Some(mount) if mount.point != Path::new("/") => mount.device.clone(),
            _ => path.to_string_lossy().into_owned(),
        }
    }

    /// Returns the mount point above a path, for messages.
    pub(crate) fn point(&self, path: &Path) -> PathBuf {
        self.mount_of(path).map_or_else(|| PathBuf::from("/"), |mount| mount.point.clone())
    }

    /// Reports whether the mount with this id is a tmpfs of this source.
    pub(crate) fn is_tmpfs(&self, id: u64, source: &str) -> bool {
        self.0.iter().any(|mount| mount.id == id && mount.kind == "tmpfs" && mount.source == source)
    }

    /// Reports whether the mount that a path is on has one of these tags; true if the mount is unknown.
    pub(crate) fn has_tag(&self, path: &Path, tags: &[&str]) -> bool {
        let has = |mount: &Mount| mount.tags.iter().any(|has| tags.iter().any(|tag| has.starts_with(tag)));
        self.mount_of(path).is_none_or(has)
    }
}

/// Decodes the octal escapes of mountinfo, such as `\040` for a space.
fn unescape(field: &str) -> String {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field.as_bytes();
    while let [first, tail @ ..] = rest {
        let octal = (*first == b'\\').then(|| tail.get(..3)).flatten();
        let value = octal.and_then(|d| u8::from_str_radix(std::str::from_utf8(d).ok()?, 8).ok());
        match value {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[3..];
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "1 0 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\n\
        2 1 0:50 / /pods/a\\040b rw,relatime - nfs4 server:/x rw\n\
        3 2 0:51 / /pods/a\\040b/c rw master:7 shared:8 - tmpfs tmpfs rw\n\
        4 1 0:52 / /pods/a\\040b rw,relatime - nfs4 server:/y rw\n";

    #[test]
    fn a_path_is_on_the_last_of_the_innermost_mounts() {
        let table = MountTable::parse(TABLE);
        let source = |path: &str| table.source(Path::new(path));
        assert_eq!(source("/pods/a b/file"), "0:52");
        assert_eq!(source("/pods/a b/c"), "0:51");
        assert_eq!(source("/pods/a bc"), "/pods/a bc", "too many paths share the root file system");
        assert_eq!(table.point(Path::new("/pods/a b/c/d")), Path::new("/pods/a b/c"));
        assert!(table.has_tag(Path::new("/pods/a b/c/d"), &["master:"]));
        assert!(!table.has_tag(Path::new("/pods/a b"), &["shared:", "master:"]));
        assert!(table.has_tag(Path::new("/etc"), &["shared:"]));
        assert!(MountTable::default().has_tag(Path::new("/etc"), &["shared:"]), "an unknown mount");
    }

    #[test]
    fn escaped_mount_points_are_decoded() {
        assert_eq!(unescape("/a\\040b\\134c"), "/a b\\c");
        assert_eq!(unescape("/a\\04"), "/a\\04");
    }
}
