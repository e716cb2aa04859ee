//! The mark of a mount namespace of shims, in the mount table of a process.

use std::{fs::File, io::Read, os::unix::ffi::OsStrExt, path::Path};

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};

use super::{MARK, MARK_SOURCE};

/// Most bytes of the mount table of a process that are read.
const TABLE_MAX: u64 = 16 << 20;

/// What the state directory is in the mount tables of processes: proc_pid_mountinfo(5), as it is escaped there.
pub(super) struct StateMount {
    /// Major and minor number of its file system.
    device: Vec<u8>,
    /// Its path in the file system.
    root: Vec<u8>,
    /// Its mount point.
    path: Vec<u8>,
}

/// A line of a mount table.
struct Mount<'a> {
    id: &'a [u8],
    device: &'a [u8],
    root: &'a [u8],
    path: &'a [u8],
    source: &'a [u8],
}

impl<'a> Mount<'a> {
    fn parse(line: &'a [u8]) -> Option<Self> {
        let mut words = line.split(|byte| *byte == b' ');
        let id = words.next()?;
        let device = words.nth(1)?;
        let (root, path) = (words.next()?, words.next()?);
        // Options and optional fields follow, then the separator, the type and the source.
        words.find(|word| *word == b"-")?;
        Some(Self { id, device, root, path, source: words.nth(1)? })
    }
}

fn table(process: &str) -> Option<Vec<u8>> {
    let mut table = Vec::new();
    File::open(format!("/proc/{process}/mountinfo")).ok()?.take(TABLE_MAX).read_to_end(&mut table).ok()?;
    Some(table)
}

fn mounts(table: &[u8]) -> impl Iterator<Item = Mount<'_>> {
    table.split(|byte| *byte == b'\n').filter_map(Mount::parse)
}

/// Returns a path as it is in a mount table.
fn escaped(path: &Path) -> Vec<u8> {
    let escape = |byte: &u8| match byte {
        b' ' | b'\t' | b'\n' | b'\\' => format!("\\{byte:03o}").into_bytes(),
        byte => vec![*byte],
    };
    path.as_os_str().as_bytes().iter().flat_map(escape).collect()
}

impl StateMount {
    /// Finds the state directory in the mount table of this process. Needs `STATX_MNT_ID` (Linux 5.8).
    pub(super) fn find(state_dir: &Path) -> Option<Self> {
        let id = statx(CWD, state_dir, AtFlags::empty(), StatxFlags::MNT_ID).ok()?.stx_mnt_id.to_string();
        let table = table("thread-self")?;
        let mount = mounts(&table).find(|mount| mount.id == id.as_bytes())?;
        let path = escaped(state_dir);
        let below = path.strip_prefix(mount.path.strip_suffix(b"/").unwrap_or(mount.path))?;
        let mut root = mount.root.strip_suffix(b"/").unwrap_or(mount.root).to_vec();
        root.extend(below);
        if root.is_empty() {
            root.push(b'/');
        }
        Some(Self { device: mount.device.to_vec(), root, path })
    }

    /// Returns the pod in whose namespace a process is: the state directory is mounted by itself there, with the mark.
    pub(super) fn marked_by(&self, pid: u32) -> Option<String> {
        self.mark_in(&table(&pid.to_string())?)
    }

    fn mark_in(&self, table: &[u8]) -> Option<String> {
        let is_state =
            |mount: &Mount<'_>| mount.path == self.path && mount.device == self.device && mount.root == self.root;
        mounts(table).find(is_state)?;
        let mark = [&self.path, b"/".as_slice(), MARK.as_bytes()].concat();
        let source = mounts(table).find(|mount| mount.path == mark && mount.source.starts_with(MARK_SOURCE.as_bytes()));
        String::from_utf8(source?.source[MARK_SOURCE.len()..].to_vec()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[u8] = b"21 1 8:1 / / rw - ext4 /dev/sda1 rw
40 21 0:30 /a/pinion /run/pinion rw master:5 - tmpfs tmpfs rw
41 40 0:55 / /run/pinion/shims rw - tmpfs pinion-pod-0123 rw
42 21 0:60 / /mnt/\xff rw shared:1 - tmpfs tmpfs rw\n";

    fn state_mount(device: &str, root: &str) -> StateMount {
        StateMount { device: device.into(), root: root.into(), path: "/run/pinion".into() }
    }

    #[test]
    fn a_mark_counts_only_below_this_state_directory() {
        assert_eq!(state_mount("0:30", "/a/pinion").mark_in(TABLE).as_deref(), Some("0123"));
        assert_eq!(state_mount("0:31", "/a/pinion").mark_in(TABLE), None, "another file system, as in a container");
        assert_eq!(state_mount("0:30", "/b/pinion").mark_in(TABLE), None, "another directory of the file system");
    }

    #[test]
    fn the_state_directory_is_found_and_its_path_escaped() {
        let directory = tempfile::tempdir().expect("directory");
        let state_dir = directory.path().join("with space");
        std::fs::create_dir(&state_dir).expect("create");
        let found = StateMount::find(&state_dir).expect("found");
        assert!(found.root.ends_with(b"/with\\040space"), "{:?}", String::from_utf8_lossy(&found.root));
        assert!(found.path.ends_with(b"/with\\040space"));
    }
}
