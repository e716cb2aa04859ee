//! Resources that the containers of a pod share, as descriptors.
//!
//! IPC, UTS, `/dev/shm` and the files of `/etc` ([`super::files`]) are kept under the key `sandbox/<id>`, here and in
//! the monitor, in the order of [`SharedResource`]. If both lost the descriptors, they are derived from a running
//! container of the pod, else created again.

use image::IdMap;
use monitor_api::MakeNamespaces;
use netns::IpcAndUts;
use oci::NamespaceType;
use rustix::{
    fd::{AsFd, OwnedFd},
    fs::{Mode, OFlags},
};

use super::{
    files,
    id_map::{id_map_of, root_of},
    tmpfs::make_shm,
};
use crate::{
    Error, SandboxConfig, SandboxId, SharedMode,
    error::failed,
    monitor::{Monitor, OwnedNamespaces},
    node::{NamespacePins, PinnedKind},
    store::Sandbox,
};

/// Mount point in the record's directory on kernels that cannot clone a detached mount.
pub(crate) const SHM: &str = "shm";

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
    pub(crate) fn key(sandbox: &SandboxId) -> String {
        format!("sandbox/{sandbox}")
    }

    /// Returns a duplicate of the resource; `None` if the pod does not have it.
    pub(crate) fn file(self, monitor: &Monitor, sandbox: &Sandbox) -> Result<Option<OwnedFd>, Error> {
        let Some(n) = Self::of(sandbox.config()).iter().position(|shared| *shared == self) else { return Ok(None) };
        match monitor.custody().key_file(&Self::key(sandbox.id()), n) {
            Ok(Some(file)) => Ok(Some(file)),
            Err(error) => Err(failed(format_args!("duplicate the {self:?} namespace of pod {}", sandbox.id()))(error)),
            Ok(None) => Err(Error::state(format!("pod {}: its {self:?} namespace is not held anymore", sandbox.id()))),
        }
    }
}

/// Has the monitor create the namespaces of a pod with a user namespace, because a threaded process cannot. `user` is
/// the user namespace if it exists already. Returns no namespaces for a pod without one.
pub(crate) async fn make_owned(
    monitor: &Monitor,
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
    monitor.make_namespaces(request, user).await
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

/// Pins the namespaces among the resources of a pod, in place of others that are pinned.
pub(crate) fn pin_shared(pins: &NamespacePins, sandbox: &Sandbox, shared: &[OwnedFd]) {
    for (resource, file) in SharedResource::of(sandbox.config()).into_iter().zip(shared) {
        let kind = match resource {
            SharedResource::Ipc => PinnedKind::Ipc,
            SharedResource::Uts => PinnedKind::Uts,
            SharedResource::User => PinnedKind::User,
            SharedResource::Shm | SharedResource::Files => continue,
        };
        pins.pin(kind, sandbox.id().as_str(), file.as_fd());
    }
}

/// Returns the id mapping for image mounts of the pod; `None` if the pod has no user namespace.
pub(crate) fn id_map(monitor: &Monitor, sandbox: &Sandbox) -> Result<Option<IdMap>, Error> {
    let Some(user_namespace) = SharedResource::User.file(monitor, sandbox)? else { return Ok(None) };
    let maps = sandbox.config().user_namespace.as_ref();
    Ok(maps.map(|maps| id_map_of(maps, user_namespace)))
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
