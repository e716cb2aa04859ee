//! The mount namespace of the shims of a pod: a copy of the node's, in which the state directory has mounts of its own.
//!
//! ```text
//! /, /run, …          peers of the node's mounts: what a shim mounts there appears on the node
//! <state>             a slave of the node's: what is mounted there stays in this namespace, and ends with it
//! <state>/shims       an empty tmpfs whose source names the pod
//! <bundle>/rootfs     the root of a container          <bundle>/private   its volumes and namespaces
//! ```
//! It is kept as a descriptor, here and in the monitor. If both lost it, it is found by the tmpfs, which also identifies
//! the processes of a pod that no record mentions.

mod mark;

use std::{
    collections::{BTreeMap, HashSet},
    fs::{self, File},
    os::fd::{AsFd, AsRawFd},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use monitor_api::{PRIVATE, Role};
use rustix::{
    fd::OwnedFd,
    fs::{AtFlags, CWD, FileType, Mode, OFlags, StatxFlags, statat, statx},
    mount::{
        MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, mount, mount_bind,
        mount_change, move_mount, open_tree, unmount,
    },
    process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal},
    thread::{ThreadNameSpaceType, move_into_thread_name_spaces},
};
use syscall::{
    mount_attributes::MountAttributes, mount_namespace::unshare_mounts, working_directory::unshare_working_directory,
};

use crate::{Error, SandboxId, error::failed};
use mark::StateMount;

/// Directory in the state directory on which the tmpfs is mounted that identifies a namespace.
const MARK: &str = "shims";
/// Beginning of the source of that tmpfs; the id of the pod follows.
const MARK_SOURCE: &str = "pinion-pod-";
/// How often marked namespaces are looked for while two have the mark of one pod.
const SCANS: u32 = 10;
/// The time between two of these.
const SCAN_PAUSE: Duration = Duration::from_millis(50);
/// Options of the tmpfs for the volumes of a container.
const TMPFS_OPTIONS: &std::ffi::CStr = c"mode=0711,size=1m";

/// Returns the key under which the namespace of a pod is kept.
pub(crate) fn key(sandbox: &SandboxId) -> String {
    format!("shims/{sandbox}")
}

/// Creates the namespace of a pod. Blocks.
pub(crate) fn create(state_dir: &Path, sandbox: &SandboxId) -> Result<OwnedFd, Error> {
    let mark = state_dir.join(MARK);
    match fs::create_dir(&mark) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            return Err(failed(format_args!("create {}", mark.display()))(error));
        }
        _ => {}
    }
    in_thread(|| {
        let separate = separate(state_dir)?;
        unshare_mounts().map_err(failed("create the mount namespace of the pod's shims"))?;
        separate.attach(state_dir)?;
        let source = format!("{MARK_SOURCE}{sandbox}");
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        mount(source, &mark, "tmpfs", flags, c"mode=0700,size=4k")
            .map_err(failed(format_args!("mount a tmpfs on {}", mark.display())))?;
        let own = "/proc/thread-self/ns/mnt";
        rustix::fs::open(own, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            .map_err(failed(format_args!("open {own}")))
    })
}

/// How the state directory gets mounts of its own.
enum Separate {
    /// It is a mount point.
    Mount,
    /// It is in a file system that is mounted above it.
    Directory {
        /// A detached clone of the directory, a slave of the mount that it is on.
        clone: OwnedFd,
        /// The root of the mount that it is on.
        outside: OwnedFd,
        mount_point: PathBuf,
    },
}

fn separate(state_dir: &Path) -> Result<Separate, Error> {
    let mount_point = mount_point(state_dir)?;
    if mount_point == state_dir {
        return Ok(Separate::Mount);
    }
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    let clone = open_tree(CWD, state_dir, flags).map_err(failed(format_args!("clone {}", state_dir.display())))?;
    let slave = MountAttributes { propagation: Some(MountPropagationFlags::DOWNSTREAM), ..MountAttributes::default() };
    slave.apply(&clone, true).map_err(failed(format_args!("set the propagation of {}", state_dir.display())))?;
    Ok(Separate::Directory { clone, outside: open_path(&mount_point)?, mount_point })
}

impl Separate {
    /// In the new namespace.
    fn attach(self, state_dir: &Path) -> Result<(), Error> {
        let operation = format!("set the propagation of {}", state_dir.display());
        let Self::Directory { clone, outside, mount_point } = self else {
            let flags = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
            return mount_change(state_dir, flags).map_err(failed(operation));
        };
        let inside = open_path(&mount_point)?;
        // What is mounted below a shared mount appears on the node.
        mount_change(&mount_point, MountPropagationFlags::PRIVATE).map_err(failed(operation))?;
        move_mount(clone, "", CWD, state_dir, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
            .map_err(failed(format_args!("mount {}", state_dir.display())))?;
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH
            | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH
            | MoveMountFlags::MOVE_MOUNT_SET_GROUP;
        // Linux 5.15. Without it, what a shim mounts elsewhere below this mount point stays in the namespace, as it does if
        // the mount of the node is private (EINVAL).
        if let Err(errno) = move_mount(outside, "", inside, "", flags) {
            tracing::debug!("mounts that shims make below {} do not propagate: {errno}", mount_point.display());
        }
        Ok(())
    }
}

/// Returns the mount point of the mount that a path is on.
fn mount_point(path: &Path) -> Result<PathBuf, Error> {
    let mount_id = |path: &Path| {
        let attributes = statx(CWD, path, AtFlags::empty(), StatxFlags::MNT_ID);
        attributes.map(|attributes| attributes.stx_mnt_id).map_err(failed(format_args!("stat {}", path.display())))
    };
    let own = mount_id(path)?;
    let mut point = path;
    while let Some(parent) = point.parent() {
        if mount_id(parent)? != own {
            break;
        }
        point = parent;
    }
    Ok(point.to_owned())
}

fn open_path(path: &Path) -> Result<OwnedFd, Error> {
    rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
        .map_err(failed(format_args!("open {}", path.display())))
}

/// Mounts the root, the volumes and the namespaces of a container in its bundle. Blocks.
pub(crate) fn attach(namespace: &OwnedFd, bundle: &Path, files: Vec<(Role, OwnedFd)>) -> Result<(), Error> {
    in_namespace(namespace, || {
        let private = bundle.join(PRIVATE);
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        mount("tmpfs", &private, "tmpfs", flags, TMPFS_OPTIONS)
            .map_err(failed(format_args!("mount a tmpfs on {}", private.display())))?;
        for (role, file) in &files {
            match role {
                Role::Rootfs => attach_at(file, &bundle.join("rootfs"))?,
                Role::Mount(index) => {
                    let target = private.join(format!("mount-{index}"));
                    create_like(file, &target)?;
                    attach_at(file, &target)?;
                }
                Role::Namespace(kind) => {
                    let target = private.join(format!("namespace-{}", kind.name()));
                    let operation = format!("bind namespace {}", target.display());
                    File::create_new(&target).map_err(failed(&operation))?;
                    let source = format!("/proc/thread-self/fd/{}", file.as_raw_fd());
                    mount_bind(source, &target).map_err(failed(&operation))?;
                }
                _ => {}
            }
        }
        Ok(())
    })
}

fn attach_at(mount: &OwnedFd, target: &Path) -> Result<(), Error> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    move_mount(mount, "", CWD, target, flags).map_err(failed(format_args!("mount {}", target.display())))
}

/// Creates an empty directory or file as the mount point for a mount whose root is a directory or a file.
fn create_like(mount: &OwnedFd, target: &Path) -> Result<(), Error> {
    let operation = format!("create {}", target.display());
    let stat = statat(mount, "", AtFlags::EMPTY_PATH).map_err(failed(&operation))?;
    let created = match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => fs::create_dir(target),
        _ => File::create_new(target).map(drop),
    };
    created.map_err(failed(&operation))
}

/// Unmounts what [`attach`] mounted. Succeeds if it is not mounted. Blocks.
pub(crate) fn detach(namespace: &OwnedFd, bundle: &Path) -> Result<(), Error> {
    use rustix::io::Errno;
    in_namespace(namespace, || {
        for name in ["rootfs", PRIVATE] {
            let path = bundle.join(name);
            match unmount(&path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
                Ok(()) | Err(Errno::INVAL | Errno::NOENT) => {}
                Err(errno) => return Err(failed(format_args!("unmount {}", path.display()))(errno)),
            }
        }
        Ok(())
    })
}

/// Runs `work` on a thread of its own in the namespace.
pub(crate) fn in_namespace<T: Send>(
    namespace: &OwnedFd,
    work: impl FnOnce() -> Result<T, Error> + Send,
) -> Result<T, Error> {
    in_thread(|| {
        move_into_thread_name_spaces(namespace.as_fd(), ThreadNameSpaceType::MOUNT)
            .map_err(failed("enter the mount namespace of the pod's shims"))?;
        work()
    })
}

/// Runs `work` on a thread that shares no root and working directory with others, and ends then.
fn in_thread<T: Send>(work: impl FnOnce() -> Result<T, Error> + Send) -> Result<T, Error> {
    thread::scope(|scope| {
        let work = || {
            unshare_working_directory().map_err(failed("unshare the working directory"))?;
            work()
        };
        let started = thread::Builder::new().name("shim-mounts".to_owned()).spawn_scoped(scope, work);
        let ended = started.map_err(failed("start a thread"))?.join();
        ended.unwrap_or_else(|_| Err(Error::internal("a bug: a thread that mounts panicked")))
    })
}

/// Device and inode of a namespace, which identify it while it exists.
type Identity = (u64, u64);

fn identity(namespace: &OwnedFd) -> Result<Identity, Error> {
    let stat = rustix::fs::fstat(namespace).map_err(failed("stat a mount namespace"))?;
    Ok((stat.st_dev, stat.st_ino))
}

/// Returns the identity of a namespace of a process; `kind` is its name in `/proc/<pid>/ns`.
fn identity_of(pid: u32, kind: &str) -> Option<Identity> {
    let file = fs::metadata(format!("/proc/{pid}/ns/{kind}")).ok()?;
    Some((file.dev(), file.ino()))
}

fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Whether a process is in the namespace.
pub(crate) fn contains(namespace: &OwnedFd, pid: u32) -> bool {
    pid > 0 && identity(namespace).is_ok_and(|identity| identity_of(pid, "mnt") == Some(identity))
}

/// Kills all processes in the namespace. Returns how many were found. Blocks.
pub(crate) fn kill_members(namespace: &OwnedFd) -> Result<usize, Error> {
    let identity = identity(namespace)?;
    let members = processes().filter(|pid| identity_of(*pid, "mnt") == Some(identity));
    Ok(members.filter(|pid| kill_if(*pid, identity)).count())
}

/// Kills a process that is in the namespace with this identity. Its pid may have been reused since it was looked up.
fn kill_if(pid: u32, expected: Identity) -> bool {
    let raw = i32::try_from(pid).ok().filter(|pid| *pid > 1).and_then(Pid::from_raw);
    let Some(pidfd) = raw.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()) else { return false };
    identity_of(pid, "mnt") == Some(expected) && pidfd_send_signal(&pidfd, Signal::KILL).is_ok()
}

/// Finds the namespaces of all pods of this state directory that processes are in, by pod. Blocks: it reads the mount
/// table of one process of each mount namespace of the node, unless there never was a pod with shims.
///
/// A process that may mount in a user namespace of its own can make the same mark, so only processes in the user namespace
/// of the node count; and another Pinion, in a container, has the same paths, so the mark counts only where the state
/// directory is this one. A runtime that creates a container has a copy of the mark until it changes the root. If two
/// namespaces have the mark of one pod for longer, one is a forgery: neither is returned.
pub(crate) fn find_all(state_dir: &Path) -> BTreeMap<String, OwnedFd> {
    if !state_dir.join(MARK).is_dir() {
        return BTreeMap::new();
    }
    let mut found = scan(state_dir);
    for _ in 1..SCANS {
        if found.values().all(Option::is_some) {
            break;
        }
        thread::sleep(SCAN_PAUSE);
        found = scan(state_dir);
    }
    for (sandbox, _) in found.iter().filter(|(_, namespace)| namespace.is_none()) {
        tracing::warn!("two mount namespaces have the mark of pod {sandbox}: neither is used");
    }
    found.into_iter().filter_map(|(sandbox, namespace)| Some((sandbox, namespace?))).collect()
}

/// Looks for marked namespaces once. `None` is a pod whose mark two of them have.
fn scan(state_dir: &Path) -> BTreeMap<String, Option<OwnedFd>> {
    let own = std::process::id();
    let users = identity_of(own, "user");
    let mut seen: HashSet<Identity> = identity_of(own, "mnt").into_iter().collect();
    let mut found: BTreeMap<String, Option<OwnedFd>> = BTreeMap::new();
    let Some(state_mount) = StateMount::find(state_dir) else { return found };
    for pid in processes().filter(|pid| users.is_some() && identity_of(*pid, "user") == users) {
        let Some(identity) = identity_of(pid, "mnt").filter(|identity| seen.insert(*identity)) else { continue };
        let Some(sandbox) = state_mount.marked_by(pid) else { continue };
        let path = format!("/proc/{pid}/ns/mnt");
        let Ok(namespace) = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) else { continue };
        if self::identity(&namespace).ok() == Some(identity) {
            let is_first = !found.contains_key(&sandbox);
            found.insert(sandbox, is_first.then_some(namespace));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_mounted_in_the_state_directory_stays_in_the_namespace() {
        // Tests run as root, and this thread's namespace ends with it.
        let outcome = thread::spawn(|| {
            unshare_mounts().expect("unshare");
            let directory = tempfile::tempdir().expect("a directory");
            let (node, state) = (directory.path(), directory.path().join("state"));
            mount("tmpfs", node, "tmpfs", MountFlags::empty(), c"").expect("tmpfs");
            mount_change(node, MountPropagationFlags::SHARED).expect("shared");
            let bundle = state.join("web");
            for path in [state.clone(), bundle.clone(), bundle.join("rootfs"), bundle.join(PRIVATE), node.join("other")]
            {
                fs::create_dir(path).expect("create");
            }
            let sandbox = SandboxId::generate().expect("an id");
            let namespace = create(&state, &sandbox).expect("a namespace");
            let root = crate::namespaces::make_shm((0, 0)).expect("a tmpfs");
            attach(&namespace, &bundle, vec![(Role::Rootfs, root)]).expect("attached");
            in_namespace(&namespace, || {
                File::create(bundle.join("rootfs/inside")).map_err(failed("create"))?;
                let other = node.join("other");
                mount("tmpfs", &other, "tmpfs", MountFlags::empty(), c"").map_err(failed("mount"))?;
                File::create(other.join("file")).map(drop).map_err(failed("create"))
            })
            .expect("in the namespace");
            assert!(!bundle.join("rootfs/inside").exists(), "the root is not mounted on the node");
            assert!(node.join("other/file").exists(), "other mounts propagate");
            detach(&namespace, &bundle).expect("detached");
            detach(&namespace, &bundle).expect("detached twice");
            unmount(node.join("other"), UnmountFlags::DETACH).expect("unmount");
            unmount(node, UnmountFlags::DETACH).expect("unmount");
        });
        outcome.join().expect("the thread's assertions hold");
    }
}
