//! File systems: type, space, inodes, permissions.

use std::os::unix::fs::PermissionsExt;

use crate::{Node, Outcome, finding::Verdict, mounts, probe::Space};

/// File systems that data_dir must not be on, and why.
const REFUSED: [(&str, &str); 9] = [
    ("overlay", "an overlay cannot be the upper layer of an overlay"),
    ("nfs", "it has no extended attributes of the kind that overlays need"),
    ("nfs4", "it has no extended attributes of the kind that overlays need"),
    ("cifs", "it has no extended attributes of the kind that overlays need"),
    ("smb3", "it has no extended attributes of the kind that overlays need"),
    ("vfat", "it has no owners and no extended attributes"),
    ("exfat", "it has no owners and no extended attributes"),
    ("squashfs", "it is read-only"),
    ("iso9660", "it is read-only"),
];

pub(super) fn file_system(node: &Node) -> Vec<Verdict> {
    let path = &node.settings.data_dir;
    let Some(mount) = mounts::of_path(&node.mounts, path) else {
        return vec![Verdict::notice(format!("the file system of {} is not known", path.display()))];
    };
    let fix = "set data_dir to a directory on ext4, XFS or Btrfs";
    let kind = mount.kind.as_str();
    if let Some((_, reason)) = REFUSED.iter().find(|(name, _)| *name == kind) {
        return vec![Verdict::problem(format!("{} is on {kind}: {reason}", path.display())).fix(fix)];
    }
    if let Outcome::Fails(_) = node.probes.file_types {
        let text = format!("{kind} of {} returns no types of files (XFS: ftype=0)", path.display());
        return vec![Verdict::problem(text).fix("create the file system again: mkfs.xfs -n ftype=1 DEVICE")];
    }
    vec![match kind {
        "tmpfs" | "ramfs" => {
            Verdict::warning(format!("{} is on {kind}: images use memory and are lost at reboot", path.display()))
                .fix(fix)
        }
        _ if kind.starts_with("fuse") => {
            Verdict::warning(format!("{} is on {kind}, which is slow", path.display())).fix(fix)
        }
        _ => Verdict::ok(format!("{} is on {kind}", path.display())),
    }]
}

/// Compares what is free, in percent, with two limits.
fn free(space: &Space, part: (u64, u64), limits: (u64, u64), unit: &str) -> Verdict {
    let (all, free) = part;
    let percent = free.saturating_mul(100).checked_div(all).unwrap_or(100);
    let text = format!("{percent} % of the {unit} for {} are free", space.path.display());
    let fix = "remove unused images: pinion rmi IMAGE…, crictl rmi --prune; or enlarge the file system";
    match percent {
        percent if percent < limits.0 => Verdict::problem(text).fix(fix),
        percent if percent < limits.1 => Verdict::warning(text).fix(fix),
        _ => Verdict::ok(text),
    }
}

pub(super) fn space(node: &Node) -> Vec<Verdict> {
    node.space.iter().map(|space| free(space, (space.bytes, space.bytes_free), (10, 15), "bytes")).collect()
}

pub(super) fn inodes(node: &Node) -> Vec<Verdict> {
    node.space.iter().map(|space| free(space, (space.inodes, space.inodes_free), (5, 10), "inodes")).collect()
}

pub(super) fn permissions(node: &Node) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    let parents = node.settings.data_dir.ancestors().skip(1);
    for path in parents.filter(|path| !path.as_os_str().is_empty()) {
        let mode = node.host.path(path).metadata().map(|metadata| metadata.permissions().mode());
        if mode.is_ok_and(|mode| mode & 0o001 == 0) {
            let text = format!("other users cannot traverse {}", path.display());
            verdicts.push(Verdict::warning(text).fix(format!("chmod o+x {}", path.display())));
        }
    }
    if verdicts.is_empty() {
        vec![Verdict::ok("every parent of the data directory can be traversed")]
    } else {
        verdicts
    }
}

pub(super) fn state(node: &Node) -> Vec<Verdict> {
    let path = &node.settings.state_dir;
    let kind = mounts::of_path(&node.mounts, path).map(|mount| mount.kind.as_str());
    vec![match kind {
        Some("tmpfs" | "ramfs") => Verdict::ok(format!("{} is on a tmpfs", path.display())),
        _ => Verdict::ok(format!("{} is not on a tmpfs; the daemon mounts one", path.display())),
    }]
}
