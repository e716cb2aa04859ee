//! What the containers of a pod share, as descriptors.
//!
//! IPC, UTS, `/dev/shm` and the files of `/etc` ([`super::files`]) are kept under the key `sandbox/<id>`, here and in
//! the monitor, in the order of [`Shared`]. A pod whose descriptors were lost by both gets them back from a container
//! that runs, else new ones.

use std::{sync::Arc, time::Duration};

use image::{IdMap, IdRange};
use monitor_api::{HoldingState, MakeNamespaces, UserMappings};
use netns::IpcAndUts;
use oci::NamespaceType;
use rustix::{
    fd::OwnedFd,
    fs::{Mode, OFlags},
    mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_string, fsmount, fsopen},
};

use super::{PidMode, Sandbox, SandboxConfig, SharedMode, files, left_init};
use crate::{Error, ErrorKind, engine::Inner, error::failed, process};

/// Where a kernel that cannot clone a detached mount has it attached, in the record's directory.
pub(crate) const SHM: &str = "shm";
/// How long the init of a pod may take to end what else is in its PID namespace.
const INIT_END: Duration = Duration::from_secs(5);
/// As other engines have it.
const SHM_SIZE: &str = "64m";

/// Namespaces that are kept.
pub(crate) const KINDS: [(NamespaceType, Shared); 3] =
    [(NamespaceType::User, Shared::User), (NamespaceType::Uts, Shared::Uts), (NamespaceType::Ipc, Shared::Ipc)];

/// One thing that is kept for a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shared {
    User,
    Uts,
    Ipc,
    Shm,
    /// Of every pod, and the last one: pods of older versions have all but this.
    Files,
}

impl Shared {
    /// What a pod of this configuration has of its own, in the order it is kept.
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

    /// The key it is kept under.
    pub(crate) fn key(sandbox: &str) -> String {
        format!("sandbox/{sandbox}")
    }

    /// The descriptor that is kept for this pod; `None` where the pod has none of its own.
    pub(crate) fn file(self, engine: &Inner, sandbox: &Sandbox) -> Result<Option<OwnedFd>, Error> {
        let Some(n) = Self::of(sandbox.config()).iter().position(|shared| *shared == self) else { return Ok(None) };
        match engine.monitor.custody().kept(&Self::key(sandbox.id()), n) {
            Ok(Some(file)) => Ok(Some(file)),
            Err(error) => Err(failed(format_args!("duplicate the {self:?} namespace of pod {}", sandbox.id()))(error)),
            Ok(None) => Err(Error::state(format!("pod {}: its {self:?} namespace is not held any more", sandbox.id()))),
        }
    }
}

/// Namespaces of a pod with a user namespace: that one owns the others.
#[derive(Debug, Default)]
pub(crate) struct Owned {
    pub(crate) user: Option<OwnedFd>,
    pub(crate) network: Option<OwnedFd>,
    pub(crate) ipc: Option<OwnedFd>,
    pub(crate) uts: Option<OwnedFd>,
}

/// Has the monitor make what a pod with a user namespace has of its own: a threaded process cannot. `user` is the one
/// to own the others where it is there already. Nothing for a pod without.
pub(crate) async fn make_owned(
    engine: &Inner,
    config: &SandboxConfig,
    hostname: &str,
    user: Option<OwnedFd>,
) -> Result<Owned, Error> {
    let Some(mappings) = &config.user_namespace else { return Ok(Owned::default()) };
    let own_network = config.network == SharedMode::Pod;
    let wanted = MakeNamespaces {
        user: mappings.clone(),
        network: own_network && user.is_none(),
        ipc: config.ipc == SharedMode::Pod,
        hostname: own_network.then(|| hostname.to_owned()),
    };
    engine.monitor.make_namespaces(wanted, user).await
}

/// Makes what the pod has of its own, but for what its user namespace owns. Blocks for some 100 µs.
pub(crate) fn make_shared(config: &SandboxConfig, hostname: &str, owned: Owned) -> Result<Vec<OwnedFd>, Error> {
    let Owned { mut user, mut ipc, mut uts, .. } = owned;
    let wanted = Shared::of(config);
    let told = || failed("make IPC and UTS namespaces");
    let new_uts = (wanted.contains(&Shared::Uts) && uts.is_none()).then_some(hostname);
    let begun = IpcAndUts::begin(wanted.contains(&Shared::Ipc) && ipc.is_none(), new_uts).map_err(told())?;
    // Meanwhile.
    let mut shm = wanted.contains(&Shared::Shm).then(|| make_shm(root_of(config))).transpose()?;
    let mut files = wanted.contains(&Shared::Files).then(files::make).transpose()?;
    let new = begun.finish().map_err(told())?;
    (ipc, uts) = (ipc.or(new.0), uts.or(new.1));
    let mut made = |shared: Shared| match shared {
        Shared::User => user.take().ok_or_else(|| Error::internal("the monitor made no user namespace")),
        Shared::Uts => uts.take().ok_or_else(|| Error::internal("no UTS namespace")),
        Shared::Ipc => ipc.take().ok_or_else(|| Error::internal("no IPC namespace")),
        Shared::Shm => shm.take().ok_or_else(|| Error::internal("no tmpfs for /dev/shm")),
        Shared::Files => files.take().ok_or_else(|| Error::internal("no tmpfs for files")),
    };
    wanted.into_iter().map(&mut made).collect()
}

/// What root of the pod is on the node: user and group.
pub(crate) fn root_of(config: &SandboxConfig) -> (u32, u32) {
    let root = |map: &[oci::IdMapping]| map.iter().find(|line| line.container_id == 0).map_or(0, |line| line.host_id);
    config.user_namespace.as_ref().map_or((0, 0), |maps| (root(&maps.uids), root(&maps.gids)))
}

/// How images are to be shown in the pod; `None`: as they are.
pub(crate) fn id_map(engine: &Inner, sandbox: &Sandbox) -> Result<Option<IdMap>, Error> {
    let Some(user_namespace) = Shared::User.file(engine, sandbox)? else { return Ok(None) };
    let maps = sandbox.config().user_namespace.as_ref();
    Ok(maps.map(|maps| id_map_of(maps, user_namespace)))
}

/// A map with a user namespace that has it.
pub(crate) fn id_map_of(maps: &UserMappings, user_namespace: OwnedFd) -> IdMap {
    let ranges = |map: &[oci::IdMapping]| {
        let range =
            |line: &oci::IdMapping| IdRange { inside: line.container_id, outside: line.host_id, length: line.size };
        map.iter().map(range).collect()
    };
    IdMap { user_namespace, uids: ranges(&maps.uids), gids: ranges(&maps.gids) }
}

/// The pod's `/dev/shm`, of this user and group.
pub(crate) fn make_shm((uid, gid): (u32, u32)) -> Result<OwnedFd, Error> {
    let (uid, gid) = (uid.to_string(), gid.to_string());
    make_tmpfs(&[("source", "shm"), ("size", SHM_SIZE), ("mode", "1777"), ("uid", &uid), ("gid", &gid)])
        .map_err(failed("make a tmpfs for /dev/shm"))
}

/// A tmpfs with these options that is mounted nowhere.
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

/// What a lost key had, taken from a process of the pod.
pub(crate) fn derive(config: &SandboxConfig, pid: u32) -> Result<Vec<OwnedFd>, Error> {
    let open = |path: String| {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        rustix::fs::open(&path, flags, Mode::empty()).map_err(failed(format_args!("open {path}")))
    };
    let derive = |shared: Shared| match shared {
        Shared::User => open(format!("/proc/{pid}/ns/user")),
        Shared::Uts => open(format!("/proc/{pid}/ns/uts")),
        Shared::Ipc => open(format!("/proc/{pid}/ns/ipc")),
        // The mount itself is another namespace's: later containers of this pod get a tmpfs of their own.
        Shared::Shm => make_shm(root_of(config)),
        Shared::Files => files::make(),
    };
    Shared::of(config).into_iter().map(derive).collect()
}

/// The PID namespace of a pod that shares one; its init is started when the first container asks.
pub(crate) async fn pid_namespace(engine: &Arc<Inner>, sandbox: &Arc<Sandbox>) -> Result<OwnedFd, Error> {
    let mut held = sandbox.pid.lock().await;
    forget_ended_init(engine, sandbox, &mut held).await?;
    if let Some(namespace) = &*held {
        return namespace.try_clone().map_err(failed("duplicate a PID namespace"));
    }
    let namespace = match running_init(engine, sandbox.id()) {
        Some(namespace) => namespace,
        None => match left_init::take_over(engine, sandbox).await? {
            Some(namespace) => namespace,
            None => start_init(engine, sandbox).await?,
        },
    };
    let duplicate = namespace.try_clone().map_err(failed("duplicate a PID namespace"))?;
    *held = Some(namespace);
    Ok(duplicate)
}

/// Nothing can be cloned into a PID namespace whose init has ended: it is given up, with what the monitor knows of the
/// init. The caller has the lock that `held` is behind.
pub(crate) async fn forget_ended_init(
    engine: &Inner,
    sandbox: &Sandbox,
    held: &mut Option<OwnedFd>,
) -> Result<(), Error> {
    if !init_has_ended(engine, sandbox.id()).await? {
        return Ok(());
    }
    tracing::warn!("the init of pod {} has ended; the next container that needs one starts another", sandbox.id());
    held.take();
    engine.monitor.delete(sandbox.id()).await
}

/// Whether this PID namespace, by its inode number, is the pod's no longer, because its init has ended. False where
/// that is not known.
pub(crate) async fn has_lost_init(engine: &Inner, sandbox: &Sandbox, namespace: u64) -> bool {
    let mut held = sandbox.pid.lock().await;
    if let Err(error) = forget_ended_init(engine, sandbox, &mut held).await {
        tracing::warn!("remove the init of pod {}: {error}", sandbox.id());
        return false;
    }
    let current = held.as_ref().and_then(|file| rustix::fs::fstat(file).ok());
    current.is_none_or(|stat| stat.st_ino != namespace)
}

/// Whether the init that is in custody has ended; one that is about to is waited for.
async fn init_has_ended(engine: &Inner, sandbox: &str) -> Result<bool, Error> {
    let custody = engine.monitor.custody();
    let Some((pid, _)) = custody.process(sandbox, &HoldingState::PodInit) else {
        // None, or one that an earlier daemon did not hear the end of.
        return Ok(custody.holds(sandbox));
    };
    let Some(pidfd) = custody.of_pidfd(sandbox, OwnedFd::try_clone) else { return Ok(false) };
    let pidfd = pidfd.map_err(failed("duplicate a pidfd"))?;
    if !process::has_ended(&pidfd) {
        if !offload::here(|| process::is_ending(pid)) {
            return Ok(false);
        }
        let ended = tokio::time::timeout(INIT_END, process::ended(&pidfd)).await;
        ended.map_err(|_| Error::state(format!("the init of pod {sandbox} is ending; try again")))??;
    }
    Ok(true)
}

/// Of an init that an earlier daemon had started.
fn running_init(engine: &Inner, sandbox: &str) -> Option<OwnedFd> {
    let (pid, start_time) = engine.monitor.custody().process(sandbox, &HoldingState::PodInit)?;
    offload::here(|| {
        let _alive = process::find(pid, start_time)?;
        let path = format!("/proc/{pid}/ns/pid");
        rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()
    })
}

/// The cgroup of the pod's init.
pub(super) fn init_group(engine: &Inner, sandbox: &Sandbox) -> String {
    format!("{}/{}-init", engine.cgroup_of(sandbox), sandbox.id())
}

async fn start_init(engine: &Inner, sandbox: &Sandbox) -> Result<OwnedFd, Error> {
    debug_assert_ne!(sandbox.config().pid, PidMode::Node);
    let _turn = engine.lanes.clone_turn().await?;
    let started = match request_init(engine, sandbox).await {
        // One that was begun for a request whose answer was lost, and that was ended since: nothing is in its PID
        // namespace.
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
