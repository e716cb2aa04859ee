//! What of a container is not its own, and is therefore not written into an image but only named there.

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

/// The name of a masked file's cover.
const NULL: &str = "/dev/null";

/// Names what is outside of a running container.
pub(crate) fn name_all(options: &mut Options, spec: &Spec, pid: i32, v2: bool) -> Result<(), Failure> {
    let linux = spec.linux.clone().unwrap_or_default();
    for namespace in linux.namespaces.iter().filter(|namespace| is_joined(namespace)) {
        if let Some((word, file, key)) = external(namespace.kind) {
            let path = format!("/proc/{pid}/ns/{file}");
            let found = std::fs::metadata(&path).map_err(|error| Failure::io(format!("look at {path}"), error))?;
            options.external(&format!("{word}[{}]:{key}", found.ino()));
        }
    }
    name_mounts(options, spec, &linux, pid, v2)
}

fn name_mounts(options: &mut Options, spec: &Spec, linux: &Linux, pid: i32, v2: bool) -> Result<(), Failure> {
    let path = format!("/proc/{pid}/root");
    let root = openat(CWD, path.as_str(), OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    let root = root.map_err(|errno| Failure::io("open the container's root", errno))?;
    check_cgroup_mounts(spec, linux, v2)?;
    let binds = spec.mounts.iter().filter(|mount| is_bind(mount)).map(|mount| &mount.destination);
    for place in binds.chain(linux.devices.iter().map(|device| &device.path)) {
        let place = inside(&root, place)?.map_or_else(|| place.clone(), |(place, _)| place);
        options.mount(&place, &place);
    }
    for masked in &linux.masked_paths {
        match inside(&root, masked)? {
            Some((place, false)) => options.mount(&place, NULL),
            _ => options,
        };
    }
    Ok(())
}

/// Without a cgroup namespace v1 trees are bound from the host, controller by controller, from a group of another name.
pub(crate) fn check_cgroup_mounts(spec: &Spec, linux: &Linux, v2: bool) -> Result<(), Failure> {
    let own = linux.namespaces.iter().any(|namespace| namespace.kind == NamespaceType::Cgroup);
    match spec.mounts.iter().find(|mount| mount.kind.as_deref() == Some("cgroup")) {
        Some(mount) if !own && !v2 => Err(Failure::new(format!(
            "mount {}: cgroup v1 trees cannot be checkpointed without a cgroup namespace; give the container one",
            mount.destination
        ))),
        _ => Ok(()),
    }
}

/// Where a path leads inside a root, and whether it is a directory there; `None`: nowhere.
fn inside(root: &OwnedFd, path: &str) -> Result<Option<(String, bool)>, Failure> {
    let what = || format!("find {path} in the container");
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let found = match openat2(root, path, flags, Mode::empty(), resolve) {
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
        result => result.map_err(|errno| Failure::io(what(), errno))?,
    };
    let directory = rustix::fs::fstat(&found).map_err(|errno| Failure::io(what(), errno))?;
    let directory = rustix::fs::FileType::from_raw_mode(directory.st_mode).is_dir();
    let link = format!("/proc/self/fd/{}", found.as_fd().as_raw_fd());
    let place = readlinkat(CWD, link, Vec::new()).map_err(|errno| Failure::io(what(), errno))?;
    Ok(Some((place.to_string_lossy().into_owned(), directory)))
}

/// What [`name_all`] named, as it is here; the namespaces that CRIU gets by descriptor.
pub(crate) fn find_all(options: &mut Options, spec: &Spec, rootfs: &Path) -> Result<Vec<OwnedFd>, Failure> {
    let linux = spec.linux.clone().unwrap_or_default();
    let root = openat(CWD, rootfs, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    let root = root.map_err(|errno| Failure::io(format!("open the root {rootfs:?}"), errno))?;
    let prefix = rootfs.canonicalize().map_err(|error| Failure::io(format!("find the root {rootfs:?}"), error))?;
    for mount in spec.mounts.iter().filter(|mount| is_bind(mount)) {
        let source = mount.source.as_deref().unwrap_or_default();
        let place = resolved(&root, &prefix, &mount.destination)?;
        options.mount(&place, source);
    }
    if !linux.masked_paths.is_empty() {
        options.mount(NULL, NULL);
    }
    for device in &linux.devices {
        options.mount(&device.path, &device.path);
    }
    find_namespaces(options, &linux)
}

/// Where a mount's destination leads in a root that is not entered.
fn resolved(root: &OwnedFd, prefix: &Path, destination: &str) -> Result<String, Failure> {
    let found = inside(root, destination)?.map(|(place, _)| PathBuf::from(place));
    let below = found.as_deref().and_then(|place| place.strip_prefix(prefix).ok());
    Ok(below.map_or_else(|| destination.to_owned(), |place| format!("/{}", place.to_string_lossy())))
}

fn find_namespaces(options: &mut Options, linux: &Linux) -> Result<Vec<OwnedFd>, Failure> {
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
                if let Some((_, _, key)) = external(namespace.kind) {
                    options.inherit(key, file.as_raw_fd());
                }
                descriptors.push(file.into());
                continue;
            }
            kind => {
                return Err(Failure::new(format!(
                    "restore into namespace {path}: criu joins no {kind:?} namespace; leave out its path"
                )));
            }
        };
        options.join(kind, path);
    }
    Ok(descriptors)
}

/// The mountpoints that CRIU does not make: what is mounted must find its place in the root, or in what is bound there.
pub(crate) fn make_mountpoints(spec: &Spec, rootfs: &Path) -> Result<(), Failure> {
    let below = |mount: &Mount, over: &Mount| {
        Path::new(&mount.destination).strip_prefix(&over.destination).is_ok_and(|rest| rest != Path::new(""))
    };
    for (at, mount) in spec.mounts.iter().enumerate() {
        let over = spec.mounts[..at].iter().rev().find(|over| below(mount, over));
        let (root, place) = match over {
            // What is in a file system of the container's own is in the image.
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
        let what = || format!("make the mountpoint {}", mount.destination);
        let root = openat(CWD, &root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        let root = root.map_err(|errno| Failure::io(what(), errno))?;
        let place = CString::new(place.to_string_lossy().as_bytes()).map_err(|_| Failure::new(what()))?;
        container::mount_point::find_or_make(root.as_fd(), &place, directory)?;
    }
    Ok(())
}

fn is_bind(mount: &Mount) -> bool {
    mount.kind.as_deref() == Some("bind") || mount.options.iter().any(|word| word == "bind" || word == "rbind")
}

fn is_joined(namespace: &oci::Namespace) -> bool {
    namespace.path.as_ref().is_some_and(|path| !path.is_empty())
}

/// CRIU's word for a kind that it leaves outside, the file in `/proc/<pid>/ns`, and the key in the image.
fn external(kind: NamespaceType) -> Option<(&'static str, &'static str, &'static str)> {
    match kind {
        NamespaceType::Network => Some(("net", "net", "extRootNetNS")),
        NamespaceType::Pid => Some(("pid", "pid", "extRootPidNS")),
        _ => None,
    }
}

/// 0, 1 and 2 of a process, as the kernel names them.
pub(crate) fn descriptors(pid: i32) -> Vec<String> {
    let name =
        |fd| std::fs::read_link(format!("/proc/{pid}/fd/{fd}")).unwrap_or_default().to_string_lossy().into_owned();
    (0..3).map(name).collect()
}

/// The pipes among them are this process's now.
pub(crate) fn inherit_pipes(options: &mut Options, descriptors: &[String]) {
    for (number, name) in (0..).zip(descriptors.iter().take(3)) {
        if name.starts_with("pipe:") {
            options.inherit(name, number);
        }
    }
}

/// The directory by which CRIU stops everything in a group at once; without one it stops process by process.
pub(crate) fn freezer(group: &str) -> Option<PathBuf> {
    let below = |tree: &str| Path::new(tree).join(group.trim_start_matches('/'));
    let (v2, v1) = (below("/sys/fs/cgroup"), below("/sys/fs/cgroup/freezer"));
    if v2.join("cgroup.freeze").exists() {
        return Some(v2);
    }
    v1.join("freezer.state").exists().then_some(v1)
}
