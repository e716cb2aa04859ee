//! External resources of a container: an image does not contain them, but refers to them by name.

use std::{
    ffi::CString,
    fs::File,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use oci::{Linux, Mount, NamespaceType, Spec};
use rustix::{
    fd::{AsFd, AsRawFd, OwnedFd},
    fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2, readlinkat},
    io::Errno,
};

use super::request::Options;
use crate::failure::Failure;

/// The name in an image of the file that covers a masked file.
const NULL: &str = "/dev/null";

/// Declares the external resources of a running container for a checkpoint. `pid` is its init; `v2` is whether the host
/// has only the unified cgroup hierarchy.
pub(crate) fn declare(options: &mut Options, spec: &Spec, pid: i32, v2: bool) -> Result<(), Failure> {
    let linux = spec.linux.clone().unwrap_or_default();
    for namespace in linux.namespaces.iter().filter(|namespace| is_joined(namespace)) {
        if let Some((kind, file, key)) = criu_names(namespace.kind) {
            let path = format!("/proc/{pid}/ns/{file}");
            let metadata = std::fs::metadata(&path).map_err(|error| Failure::io(format!("stat {path}"), error))?;
            options.external(&format!("{kind}[{}]:{key}", metadata.ino()));
        }
    }
    declare_mounts(options, spec, &linux, pid, v2)
}

fn declare_mounts(options: &mut Options, spec: &Spec, linux: &Linux, pid: i32, v2: bool) -> Result<(), Failure> {
    let path = format!("/proc/{pid}/root");
    let root = openat(CWD, path.as_str(), OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    let root = root.map_err(|errno| Failure::io("open the container's root", errno))?;
    check_cgroup_mounts(spec, linux, v2)?;
    let binds = spec.mounts.iter().filter(|mount| is_bind(mount)).map(|mount| &mount.destination);
    for path in binds.chain(linux.devices.iter().map(|device| &device.path)) {
        let resolved = resolve_in_root(&root, path)?.map_or_else(|| path.clone(), |(resolved, _)| resolved);
        options.mount(&resolved, &resolved);
    }
    for masked in &linux.masked_paths {
        match resolve_in_root(&root, masked)? {
            Some((resolved, false)) => options.mount(&resolved, NULL),
            _ => options,
        };
    }
    Ok(())
}

/// Refuses cgroup v1 mounts without a cgroup namespace: they are bind mounts of the host's v1 trees, one per
/// controller, from a cgroup that has another path after a restore.
pub(crate) fn check_cgroup_mounts(spec: &Spec, linux: &Linux, v2: bool) -> Result<(), Failure> {
    let has_cgroup_namespace = linux.namespaces.iter().any(|namespace| namespace.kind == NamespaceType::Cgroup);
    match spec.mounts.iter().find(|mount| mount.kind.as_deref() == Some("cgroup")) {
        Some(mount) if !has_cgroup_namespace && !v2 => Err(Failure::new(format!(
            "mount {}: cgroup v1 mounts cannot be checkpointed without a cgroup namespace; add one to the spec",
            mount.destination
        ))),
        _ => Ok(()),
    }
}

/// Resolves a path inside a root. Returns the resolved path and whether it is a directory, or `None` if the path does
/// not exist.
fn resolve_in_root(root: &OwnedFd, path: &str) -> Result<Option<(String, bool)>, Failure> {
    let operation = || format!("resolve {path} in the container");
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let file = match openat2(root, path, flags, Mode::empty(), resolve) {
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
        result => result.map_err(|errno| Failure::io(operation(), errno))?,
    };
    let stat = rustix::fs::fstat(&file).map_err(|errno| Failure::io(operation(), errno))?;
    let is_directory = rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir();
    let link = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    let resolved = readlinkat(CWD, link, Vec::new()).map_err(|errno| Failure::io(operation(), errno))?;
    Ok(Some((resolved.to_string_lossy().into_owned(), is_directory)))
}

/// Supplies the external resources that [`declare`] declared for a restore. Returns the namespaces that CRIU inherits
/// by descriptor.
pub(crate) fn supply(options: &mut Options, spec: &Spec, rootfs: &Path) -> Result<Vec<OwnedFd>, Failure> {
    let linux = spec.linux.clone().unwrap_or_default();
    let root = openat(CWD, rootfs, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    let root = root.map_err(|errno| Failure::io(format!("open the root {rootfs:?}"), errno))?;
    #[expect(clippy::disallowed_methods, reason = "CRIU takes paths; only the caller can replace the root")]
    let prefix = rootfs.canonicalize().map_err(|error| Failure::io(format!("resolve the root {rootfs:?}"), error))?;
    for mount in spec.mounts.iter().filter(|mount| is_bind(mount)) {
        let source = mount.source.as_deref().unwrap_or_default();
        let destination = resolve_destination(&root, &prefix, &mount.destination)?;
        options.mount(&destination, source);
    }
    if !linux.masked_paths.is_empty() {
        options.mount(NULL, NULL);
    }
    for device in &linux.devices {
        options.mount(&device.path, &device.path);
    }
    supply_namespaces(options, &linux)
}

/// Resolves a mount's destination in a root that this process has not entered, to a path inside that root.
fn resolve_destination(root: &OwnedFd, prefix: &Path, destination: &str) -> Result<String, Failure> {
    let resolved = resolve_in_root(root, destination)?.map(|(path, _)| PathBuf::from(path));
    let below = resolved.as_deref().and_then(|path| path.strip_prefix(prefix).ok());
    Ok(below.map_or_else(|| destination.to_owned(), |path| format!("/{}", path.to_string_lossy())))
}

fn supply_namespaces(options: &mut Options, linux: &Linux) -> Result<Vec<OwnedFd>, Failure> {
    let mut descriptors = Vec::new();
    for namespace in linux.namespaces.iter().filter(|namespace| is_joined(namespace)) {
        let path = namespace.path.as_deref().unwrap_or_default();
        let kind = match namespace.kind {
            NamespaceType::Ipc => "ipc",
            NamespaceType::Uts => "uts",
            NamespaceType::User => "user",
            NamespaceType::Time => "time",
            NamespaceType::Network | NamespaceType::Pid => {
                let file =
                    File::open(path).map_err(|error| Failure::io(format!("open the namespace {path}"), error))?;
                if let Some((_, _, key)) = criu_names(namespace.kind) {
                    options.inherit(key, file.as_raw_fd());
                }
                descriptors.push(file.into());
                continue;
            }
            kind => {
                return Err(Failure::new(format!(
                    "restore into namespace {path}: criu cannot join a {kind:?} namespace; remove its path from the spec"
                )));
            }
        };
        options.join(kind, path);
    }
    Ok(descriptors)
}

/// Creates the mountpoints that CRIU does not create: those in the root and in bind mounts.
pub(crate) fn make_mountpoints(spec: &Spec, rootfs: &Path) -> Result<(), Failure> {
    let below = |mount: &Mount, over: &Mount| {
        Path::new(&mount.destination).strip_prefix(&over.destination).is_ok_and(|rest| rest != Path::new(""))
    };
    for (at, mount) in spec.mounts.iter().enumerate() {
        let over = spec.mounts[..at].iter().rev().find(|over| below(mount, over));
        let (root, path) = match over {
            // The contents of a file system of the container are in the image.
            Some(over) if !is_bind(over) => continue,
            Some(over) => {
                let rest = Path::new(&mount.destination).strip_prefix(&over.destination).unwrap_or(Path::new(""));
                (PathBuf::from(over.source.as_deref().unwrap_or_default()), rest.to_path_buf())
            }
            None => (rootfs.to_path_buf(), PathBuf::from(&mount.destination)),
        };
        if mount.kind.as_deref() == Some("cgroup") {
            continue;
        }
        let directory = !is_bind(mount) || mount.source.as_ref().is_some_and(|source| Path::new(source).is_dir());
        let operation = || format!("create the mountpoint {}", mount.destination);
        let root = openat(CWD, &root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        let root = root.map_err(|errno| Failure::io(operation(), errno))?;
        let path = CString::new(path.to_string_lossy().as_bytes()).map_err(|_| Failure::new(operation()))?;
        container::mount_point::ensure(root.as_fd(), &path, directory)?;
    }
    Ok(())
}

fn is_bind(mount: &Mount) -> bool {
    mount.kind.as_deref() == Some("bind") || mount.options.iter().any(|word| word == "bind" || word == "rbind")
}

fn is_joined(namespace: &oci::Namespace) -> bool {
    namespace.path.as_ref().is_some_and(|path| !path.is_empty())
}

/// Returns CRIU's name of an external namespace kind, the file in `/proc/<pid>/ns`, and the key in the image.
fn criu_names(kind: NamespaceType) -> Option<(&'static str, &'static str, &'static str)> {
    match kind {
        NamespaceType::Network => Some(("net", "net", "extRootNetNS")),
        NamespaceType::Pid => Some(("pid", "pid", "extRootPidNS")),
        _ => None,
    }
}

/// Returns the targets of descriptors 0, 1 and 2 of a process, as in `/proc/<pid>/fd`.
pub(crate) fn descriptors(pid: i32) -> Vec<String> {
    let name =
        |fd| std::fs::read_link(format!("/proc/{pid}/fd/{fd}")).unwrap_or_default().to_string_lossy().into_owned();
    (0..3).map(name).collect()
}

/// Replaces the pipes among those descriptors by this process's stdio.
pub(crate) fn inherit_pipes(options: &mut Options, descriptors: &[String]) {
    for (number, name) in (0..).zip(descriptors.iter().take(3)) {
        if name.starts_with("pipe:") {
            options.inherit(name, number);
        }
    }
}

/// Returns the cgroup directory through which CRIU freezes all processes at once. Without one it stops them one by one.
pub(crate) fn freezer(group: &str) -> Option<PathBuf> {
    let below = |tree: &str| Path::new(tree).join(group.trim_start_matches('/'));
    let (v2, v1) = (below("/sys/fs/cgroup"), below("/sys/fs/cgroup/freezer"));
    if v2.join("cgroup.freeze").exists() {
        return Some(v2);
    }
    v1.join("freezer.state").exists().then_some(v1)
}
