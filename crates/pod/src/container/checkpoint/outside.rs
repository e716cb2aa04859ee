//! What of a container is not its own, and is therefore not written into an image but only named there.
//!
//! The keys are those that runc uses, so that what reads its images can read ours.

use std::{
    collections::HashSet,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use oci::{NamespaceType, Spec};
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};

use crate::{Error, error::failed};

/// Most open files that are looked at.
const FILES_MAX: usize = 1 << 20;

/// Words for `--external`.
pub(super) fn externals(spec: &Spec, pid: u32) -> Result<Vec<String>, Error> {
    let mut externals = namespaces(pid)?;
    let binds = spec.mounts.iter().filter(|mount| mount.kind.as_deref() == Some("bind"));
    externals.extend(binds.map(|mount| format!("mnt[{0}]:{0}", mount.destination)));
    externals.extend(files(pid)?);
    Ok(externals)
}

/// The pod's: those of network and processes that its first process did not bring.
fn namespaces(pid: u32) -> Result<Vec<String>, Error> {
    let mut externals = Vec::new();
    for (kind, file, key) in
        [(NamespaceType::Network, "net", "extRootNetNS"), (NamespaceType::Pid, "pid", "extRootPidNS")]
    {
        let inode = |pid: &str| {
            let path = format!("/proc/{pid}/ns/{file}");
            fs::metadata(&path).map(|about| about.ino()).map_err(failed(format_args!("look at {path}")))
        };
        let (its, ours) = (inode(&pid.to_string())?, inode("self")?);
        // The first process of its own namespace brings it along; nobody ever joins the node's for itself.
        let own = kind == NamespaceType::Pid && is_first(pid);
        if its != ours && !own {
            externals.push(format!("{file}[{its}]:{key}"));
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

/// Open files on mounts that the container does not have: its standard streams are FIFOs on the node.
fn files(pid: u32) -> Result<Vec<String>, Error> {
    let table = fs::read_to_string(format!("/proc/{pid}/mountinfo")).map_err(failed("read its mounts"))?;
    let inside: HashSet<&str> = table.lines().filter_map(|line| line.split(' ').next()).collect();
    let mut externals: Vec<String> = Vec::new();
    let directory = format!("/proc/{pid}/fd");
    for entry in fs::read_dir(&directory).map_err(failed(format_args!("list {directory}")))?.flatten().take(FILES_MAX) {
        let path = entry.path();
        // The link's text only: what it leads to may be a file that never answers.
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

/// Before Linux 5.14 fdinfo has no inode number: what the kernel knows of the file, without a question to its file
/// system.
fn cached_inode(path: &Path) -> Option<u64> {
    let about = statx(CWD, path, AtFlags::STATX_DONT_SYNC, StatxFlags::INO).ok()?;
    Some(about.stx_ino)
}

/// The directory by which CRIU stops everything in a group at once; without one it stops process by process.
pub(super) fn freezer(group: &str) -> Option<PathBuf> {
    let below = |tree: &str| Path::new(tree).join(group.trim_start_matches('/'));
    let v2 = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(below);
    let v1 = below("/sys/fs/cgroup/freezer");
    let v2 = v2.into_iter().find(|directory| directory.join("cgroup.freeze").exists());
    v2.or_else(|| v1.join("freezer.state").exists().then_some(v1))
}
