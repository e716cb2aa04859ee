//! Resources that a container uses but that lie outside it. CRIU does not dump them; the image only names them.
//!
//! The keys are those of runc, so that tools that read its images can read ours.

use std::{
    collections::HashSet,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use oci::{NamespaceType, Spec};
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};

use crate::{Error, error::failed};

/// Most open files that are examined.
const FILES_MAX: usize = 1 << 20;

/// Returns the arguments of `--external`.
pub(super) fn externals(spec: &Spec, pid: u32) -> Result<Vec<String>, Error> {
    let mut externals = namespaces(pid)?;
    let binds = spec.mounts.iter().filter(|mount| mount.kind.as_deref() == Some("bind"));
    externals.extend(binds.map(|mount| format!("mnt[{0}]:{0}", mount.destination)));
    externals.extend(files(pid)?);
    Ok(externals)
}

/// Returns the network and PID namespaces of the pod that the container's init process joined.
fn namespaces(pid: u32) -> Result<Vec<String>, Error> {
    let mut externals = Vec::new();
    for (kind, file, key) in
        [(NamespaceType::Network, "net", "extRootNetNS"), (NamespaceType::Pid, "pid", "extRootPidNS")]
    {
        let inode = |pid: &str| {
            let path = format!("/proc/{pid}/ns/{file}");
            fs::metadata(&path).map(|metadata| metadata.ino()).map_err(failed(format_args!("stat {path}")))
        };
        let (containers, ours) = (inode(&pid.to_string())?, inode("self")?);
        // The init process of a PID namespace is dumped with its namespace. The node's namespace is not external.
        let is_dumped = kind == NamespaceType::Pid && is_first(pid);
        if containers != ours && !is_dumped {
            externals.push(format!("{file}[{containers}]:{key}"));
        }
    }
    Ok(externals)
}

/// Whether it is process 1 of its PID namespace.
fn is_first(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    line.and_then(|numbers| numbers.split_whitespace().last()).is_some_and(|last| last == "1")
}

/// Returns the open files on mounts that the container does not have: its stdio streams are FIFOs on the node.
fn files(pid: u32) -> Result<Vec<String>, Error> {
    let table = fs::read_to_string(format!("/proc/{pid}/mountinfo")).map_err(failed("read its mounts"))?;
    let inside: HashSet<&str> = table.lines().filter_map(|line| line.split(' ').next()).collect();
    let mut externals: Vec<String> = Vec::new();
    let directory = format!("/proc/{pid}/fd");
    for entry in fs::read_dir(&directory).map_err(failed(format_args!("list {directory}")))?.flatten().take(FILES_MAX) {
        let path = entry.path();
        // Reads only the link itself: its target may be on a file system that hangs.
        let on_disk = fs::read_link(&path).is_ok_and(|target| target.is_absolute());
        let info = fs::read_to_string(format!("/proc/{pid}/fdinfo/{}", entry.file_name().to_string_lossy()));
        let info = info.unwrap_or_default();
        let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let Some(mount) = field("mnt_id:").filter(|mount| on_disk && !inside.contains(mount)) else { continue };
        let inode = field("ino:").and_then(|inode| inode.parse().ok()).or_else(|| cached_inode(&path));
        let (Ok(number), Some(inode)) = (mount.parse::<u32>(), inode) else { continue };
        let external = format!("file[{number:x}:{inode:x}]");
        if !externals.contains(&external) {
            externals.push(external);
        }
    }
    Ok(externals)
}

/// Returns the inode number that the kernel has cached, without a request to the file system. Before Linux 5.14 fdinfo
/// does not contain the inode number.
fn cached_inode(path: &Path) -> Option<u64> {
    let stat = statx(CWD, path, AtFlags::STATX_DONT_SYNC, StatxFlags::INO).ok()?;
    Some(stat.stx_ino)
}

/// Returns the cgroup directory by which CRIU freezes all processes at once. Without one it stops them one by one.
pub(super) fn freezer(group: &str) -> Option<PathBuf> {
    let below = |tree: &str| Path::new(tree).join(group.trim_start_matches('/'));
    let v2 = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(below);
    let v1 = below("/sys/fs/cgroup/freezer");
    let v2 = v2.into_iter().find(|directory| directory.join("cgroup.freeze").exists());
    v2.or_else(|| v1.join("freezer.state").exists().then_some(v1))
}
