//! The mounts of a node, from `/proc/self/mountinfo` (proc_pid_mountinfo(5)).

use std::path::{Path, PathBuf};

use crate::Host;

/// A mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    pub(crate) point: PathBuf,
    /// The type of the file system, such as `ext4`.
    pub(crate) kind: String,
    /// The options of the file system.
    pub(crate) options: String,
}

/// Lists all mounts; those that are mounted later, on top of others, come later.
pub(crate) fn list(host: &Host) -> Vec<Mount> {
    let text = host.read("/proc/self/mountinfo").unwrap_or_default();
    text.lines().filter_map(parse).collect()
}

fn parse(line: &str) -> Option<Mount> {
    let (mount, file_system) = line.split_once(" - ")?;
    let point = unescape(mount.split(' ').nth(4)?);
    let mut fields = file_system.split(' ');
    Some(Mount {
        point: PathBuf::from(point),
        kind: fields.next()?.to_owned(),
        options: fields.nth(1).unwrap_or_default().to_owned(),
    })
}

/// Replaces the escapes of blanks and line ends: `\040` is a space.
fn unescape(text: &str) -> String {
    ["\\040 ", "\\011\t", "\\012\n", "\\134\\"]
        .iter()
        .fold(text.to_owned(), |text, escape| text.replace(&escape[..4], &escape[4..]))
}

/// Returns the mount that a path is on.
pub(crate) fn of_path<'a>(mounts: &'a [Mount], path: &Path) -> Option<&'a Mount> {
    // The last of several mounts on one point is the visible one.
    mounts.iter().filter(|mount| path.starts_with(&mount.point)).max_by_key(|mount| mount.point.components().count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_on_the_innermost_and_last_mount() {
        let text = "1 0 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\n2 1 0:2 / /a\\040b rw - tmpfs none rw,size=1k\n\
                    3 1 0:3 / /var rw - xfs /dev/x rw\n4 1 0:4 / /var rw - btrfs /dev/y rw\nnonsense\n";
        let mounts: Vec<Mount> = text.lines().filter_map(parse).collect();
        let kind = |path: &str| of_path(&mounts, Path::new(path)).map(|mount| mount.kind.as_str());
        assert_eq!(
            [kind("/x"), kind("/a b/c"), kind("/var/lib"), kind("/various")],
            [Some("ext4"), Some("tmpfs"), Some("btrfs"), Some("ext4")]
        );
        assert_eq!(mounts[1].options, "rw,size=1k");
    }
}
