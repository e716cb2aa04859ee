//! Resources that the containers of a pod share, as descriptors.
//!
//! IPC, UTS, `/dev/shm` and the files of `/etc` ([`super::files`]) are kept under the key `sandbox/<id>`, here and in
//! the monitor, in the order of [`SharedResource`]. If both lost the descriptors, they are derived from a running
//! container of the pod, else created again.

use std::{sync::Arc, time::Duration};

use image::IdMap;
use monitor_api::{HoldingState, MakeNamespaces, UserMappings};
use netns::IpcAndUts;
use oci::NamespaceType;
use rustix::{
    fd::OwnedFd,
    fs::{Mode, OFlags},
    mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_string, fsmount, fsopen},
};

use super::{PidMode, Sandbox, SandboxConfig, SharedMode, files, leftover_init};
use crate::{Error, ErrorKind, engine::Inner, error::failed, process};

/// Mount point in the record's directory on kernels that cannot clone a detached mount.
pub(crate) const SHM: &str = "shm";
/// How long the init of a pod may take to kill the other processes in its PID namespace.
const INIT_END: Duration = Duration::from_secs(5);
/// Size of `/dev/shm`, as in other engines.
const SHM_SIZE: &str = "64m";

/// The namespaces among the shared resources.
pub(crate) const KINDS: [(NamespaceType, SharedResource); 3] = [
    (NamespaceType::User, SharedResource::User),
    (NamespaceType::Uts, SharedResource::Uts),
    (NamespaceType::Ipc, SharedResource::Ipc),
];

/// A resource that is kept for a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SharedResource {
    User,
    Uts,
    Ipc,
    Shm,
    /// Every pod has it, as the last one; pods of older versions lack it.
    Files,
}

impl SharedResource {
    /// Returns the resources of a pod with this configuration, in the order in which they are kept.
    pub(crate) fn of(config: &SandboxConfig) -> Vec<Self> {
        let mut shared = Vec::with_capacity(5);
        if config.user_namespace.is_some() {
            shared.push(Self::User);
        }
        // A pod on the node's network has the node's name.
        if config.network == SharedMode::Pod {
            shared.push(Self::Uts);
        }
        if config.ipc == SharedMode::Pod {
            shared.extend([Self::Ipc, Self::Shm]);
        }
        shared.push(Self::Files);
        shared
    }

    /// Returns the key under which the resources are kept.
    pub(crate) fn key(sandbox: &str) -> String {
        format!("sandbox/{sandbox}")
    }

    /// Returns a duplicate of the resource; `None` if the pod does not have it.
    pub(crate) fn file(self, engine: &Inner, sandbox: &Sandbox) -> Result<Option<OwnedFd>, Error> {
        let Some(n) = Self::of(sandbox.config()).iter().position(|shared| *shared == self) else { return Ok(None) };
        match engine.monitor.custody().key_file(&Self::key(sandbox.id()), n) {
            Ok(Some(file)) => Ok(Some(file)),
            Err(error) => Err(failed(format_args!("duplicate the {self:?} namespace of pod {}", sandbox.id()))(error)),
            Ok(None) => Err(Error::state(format!("pod {}: its {self:?} namespace is not held anymore", sandbox.id()))),
        }
    }
}

/// Namespaces of a pod with a user namespace, which owns the others.
#[derive(Debug, Default)]
pub(crate) struct OwnedNamespaces {
    pub(crate) user: Option<OwnedFd>,
    pub(crate) network: Option<OwnedFd>,
    pub(crate) ipc: Option<OwnedFd>,
    pub(crate) uts: Option<OwnedFd>,
}

/// Has the monitor create the namespaces of a pod with a user namespace, because a threaded process cannot. `user` is
/// the user namespace if it exists already. Returns no namespaces for a pod without one.
pub(crate) async fn make_owned(
    engine: &Inner,
    config: &SandboxConfig,
    hostname: &str,
    user: Option<OwnedFd>,
) -> Result<OwnedNamespaces, Error> {
    let Some(mappings) = &config.user_namespace else { return Ok(OwnedNamespaces::default()) };
    let own_network = config.network == SharedMode::Pod;
    let request = MakeNamespaces {
        user: mappings.clone(),
        network: own_network && user.is_none(),
        ipc: config.ipc == SharedMode::Pod,
        hostname: own_network.then(|| hostname.to_owned()),
    };
    engine.monitor.make_namespaces(request, user).await
}

/// Creates the resources of a pod, except for those in `owned`. Blocks for about 100 µs.
pub(crate) fn make_shared(
    config: &SandboxConfig,
    hostname: &str,
    owned: OwnedNamespaces,
) -> Result<Vec<OwnedFd>, Error> {
    let OwnedNamespaces { mut user, mut ipc, mut uts, .. } = owned;
    let resources = SharedResource::of(config);
    let context = || failed("create IPC and UTS namespaces");
    let new_uts = (resources.contains(&SharedResource::Uts) && uts.is_none()).then_some(hostname);
    let pending =
        IpcAndUts::begin(resources.contains(&SharedResource::Ipc) && ipc.is_none(), new_uts).map_err(context())?;
    // Overlaps with the creation of the namespaces.
    let mut shm = resources.contains(&SharedResource::Shm).then(|| make_shm(root_of(config))).transpose()?;
    let mut files = resources.contains(&SharedResource::Files).then(files::make).transpose()?;
    let new = pending.finish().map_err(context())?;
    (ipc, uts) = (ipc.or(new.0), uts.or(new.1));
    let mut made = |shared: SharedResource| match shared {
        SharedResource::User => user.take().ok_or_else(|| Error::internal("the monitor made no user namespace")),
        SharedResource::Uts => uts.take().ok_or_else(|| Error::internal("no UTS namespace")),
        SharedResource::Ipc => ipc.take().ok_or_else(|| Error::internal("no IPC namespace")),
        SharedResource::Shm => shm.take().ok_or_else(|| Error::internal("no tmpfs for /dev/shm")),
        SharedResource::Files => files.take().ok_or_else(|| Error::internal("no tmpfs for files")),
    };
    resources.into_iter().map(&mut made).collect()
}

/// Returns the user and group on the node that root of the pod is mapped to.
pub(crate) fn root_of(config: &SandboxConfig) -> (u32, u32) {
    let root = |map: &[oci::IdMapping]| map.iter().find(|line| line.container_id == 0).map_or(0, |line| line.host_id);
    config.user_namespace.as_ref().map_or((0, 0), |maps| (root(&maps.uids), root(&maps.gids)))
}

/// Returns the id mapping for image mounts of the pod; `None` if the pod has no user namespace.
pub(crate) fn id_map(engine: &Inner, sandbox: &Sandbox) -> Result<Option<IdMap>, Error> {
    let Some(user_namespace) = SharedResource::User.file(engine, sandbox)? else { return Ok(None) };
    let maps = sandbox.config().user_namespace.as_ref();
    Ok(maps.map(|maps| id_map_of(maps, user_namespace)))
}

/// Combines id mappings with a user namespace that has them.
pub(crate) fn id_map_of(maps: &UserMappings, user_namespace: OwnedFd) -> IdMap {
    IdMap { user_namespace, uids: maps.uids.clone(), gids: maps.gids.clone() }
}

/// Creates the pod's `/dev/shm`, owned by this user and group.
pub(crate) fn make_shm((uid, gid): (u32, u32)) -> Result<OwnedFd, Error> {
    let (uid, gid) = (uid.to_string(), gid.to_string());
    make_tmpfs(&[("source", "shm"), ("size", SHM_SIZE), ("mode", "1777"), ("uid", &uid), ("gid", &gid)])
        .map_err(failed("create a tmpfs for /dev/shm"))
}

/// Creates a tmpfs with these options that is not mounted anywhere.
pub(super) fn make_tmpfs(options: &[(&str, &str)]) -> rustix::io::Result<OwnedFd> {
    let context = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in options {
        fsconfig_set_string(&context, *key, *value)?;
    }
    fsconfig_create(&context)?;
    let attributes =
        MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

/// Derives lost resources from a process of the pod.
pub(crate) fn derive(config: &SandboxConfig, pid: u32) -> Result<Vec<OwnedFd>, Error> {
    let open = |path: String| {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        rustix::fs::open(&path, flags, Mode::empty()).map_err(failed(format_args!("open {path}")))
    };
    let derive = |shared: SharedResource| match shared {
        SharedResource::User => open(format!("/proc/{pid}/ns/user")),
        SharedResource::Uts => open(format!("/proc/{pid}/ns/uts")),
        SharedResource::Ipc => open(format!("/proc/{pid}/ns/ipc")),
        // The mount itself is in the mount namespace of the process: later containers of this pod get a new tmpfs.
        SharedResource::Shm => make_shm(root_of(config)),
        SharedResource::Files => files::make(),
    };
    SharedResource::of(config).into_iter().map(derive).collect()
}

/// Returns the PID namespace of a pod that shares one. Its init is started at the first request.
pub(crate) async fn pid_namespace(engine: &Arc<Inner>, sandbox: &Arc<Sandbox>) -> Result<OwnedFd, Error> {
    let mut held = sandbox.pid.lock().await;
    forget_ended_init(engine, sandbox, &mut held).await?;
    if let Some(namespace) = &*held {
        return namespace.try_clone().map_err(failed("duplicate a PID namespace"));
    }
    let namespace = match running_init(engine, sandbox.id()) {
        Some(namespace) => namespace,
        None => match leftover_init::take_over(engine, sandbox).await? {
            Some(namespace) => namespace,
            None => start_init(engine, sandbox).await?,
        },
    };
    let duplicate = namespace.try_clone().map_err(failed("duplicate a PID namespace"))?;
    *held = Some(namespace);
    Ok(duplicate)
}

/// Gives up the PID namespace if its init has exited, because nothing can be cloned into it anymore, and removes the
/// init from the monitor. The caller must hold the lock that protects `held`.
pub(crate) async fn forget_ended_init(
    engine: &Inner,
    sandbox: &Sandbox,
    held: &mut Option<OwnedFd>,
) -> Result<(), Error> {
    if !init_has_exited(engine, sandbox.id()).await? {
        return Ok(());
    }
    tracing::warn!("the init of pod {} has exited; the next container that needs one starts another", sandbox.id());
    held.take();
    engine.monitor.delete(sandbox.id()).await
}

/// Reports whether the PID namespace with this inode number does not belong to the pod any longer, because its init has
/// exited. False if that is not known.
pub(crate) async fn has_lost_init(engine: &Inner, sandbox: &Sandbox, namespace: u64) -> bool {
    let mut held = sandbox.pid.lock().await;
    if let Err(error) = forget_ended_init(engine, sandbox, &mut held).await {
        tracing::warn!("remove the init of pod {}: {error}", sandbox.id());
        return false;
    }
    let current = held.as_ref().and_then(|file| rustix::fs::fstat(file).ok());
    current.is_none_or(|stat| stat.st_ino != namespace)
}

/// Reports whether the init in custody has exited. Waits for an init that is exiting.
async fn init_has_exited(engine: &Inner, sandbox: &str) -> Result<bool, Error> {
    let custody = engine.monitor.custody();
    let Some((pid, _)) = custody.process(sandbox, &HoldingState::PodInit) else {
        // There is none, or an earlier daemon was not notified of its exit.
        return Ok(custody.holds(sandbox));
    };
    let Some(pidfd) = custody.with_pidfd(sandbox, OwnedFd::try_clone) else { return Ok(false) };
    let pidfd = pidfd.map_err(failed("duplicate a pidfd"))?;
    if !process::has_ended(&pidfd) {
        if !offload::in_place(|| process::is_ending(pid)) {
            return Ok(false);
        }
        let ended = tokio::time::timeout(INIT_END, process::ended(&pidfd)).await;
        ended.map_err(|_| Error::state(format!("the init of pod {sandbox} is exiting; try again")))??;
    }
    Ok(true)
}

/// Returns the PID namespace of an init that an earlier daemon started.
fn running_init(engine: &Inner, sandbox: &str) -> Option<OwnedFd> {
    let (pid, start_time) = engine.monitor.custody().process(sandbox, &HoldingState::PodInit)?;
    offload::in_place(|| {
        let _alive = process::find(pid, start_time)?;
        let path = format!("/proc/{pid}/ns/pid");
        rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()
    })
}

/// Returns the path of the cgroup of the pod's init.
pub(super) fn init_group(engine: &Inner, sandbox: &Sandbox) -> String {
    format!("{}/{}-init", engine.cgroup_of(sandbox), sandbox.id())
}

async fn start_init(engine: &Inner, sandbox: &Sandbox) -> Result<OwnedFd, Error> {
    debug_assert_ne!(sandbox.config().pid, PidMode::Node);
    let _permit = engine.concurrency.clone_process().await?;
    let started = match request_init(engine, sandbox).await {
        // An init of an earlier request whose response was lost, and that has been killed since: its PID namespace is
        // empty.
        Err(error) if error.kind == ErrorKind::AlreadyExists => match engine.monitor.delete(sandbox.id()).await {
            Ok(()) => request_init(engine, sandbox).await,
            Err(error) => Err(error),
        },
        started => started,
    };
    started.map_err(|e| e.during(format_args!("start the init of pod {}", sandbox.id())))
}

async fn request_init(engine: &Inner, sandbox: &Sandbox) -> Result<OwnedFd, Error> {
    let mut namespaces = Vec::new();
    for (kind, shared) in KINDS {
        namespaces.extend(shared.file(engine, sandbox)?.map(|file| (kind, file)));
    }
    let user = sandbox.config().user_namespace.clone();
    engine.monitor.pod_init(sandbox.id(), init_group(engine, sandbox), user, namespaces).await
}
