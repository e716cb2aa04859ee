//! What the containers of a pod share, as descriptors.
//!
//! IPC, UTS and `/dev/shm` are kept under the key `sandbox/<id>`, here and in the monitor, in the order of [`Shared`]. A
//! pod whose descriptors were lost by both gets them back from a container that runs, else new ones.

use std::sync::Arc;

use monitor_api::HoldingState;
use netns::{create_ipc, create_uts};
use oci::NamespaceType;
use rustix::{
    fd::OwnedFd,
    fs::{Mode, OFlags},
    mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_string, fsmount, fsopen},
};

use super::{PidMode, Sandbox, SandboxConfig, SharedMode};
use crate::{Error, engine::Inner, error::failed, process};

/// Where a kernel that cannot clone a detached mount has it attached, in the record's folder.
pub(crate) const SHM: &str = "shm";
/// As other engines have it.
const SHM_SIZE: &str = "64m";

/// One thing that is kept for a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shared {
    Uts,
    Ipc,
    Shm,
}

impl Shared {
    /// What a pod of this configuration has of its own, in the order it is kept.
    pub(crate) fn of(config: &SandboxConfig) -> Vec<Self> {
        let mut shared = Vec::with_capacity(3);
        // A pod on the node's network has the node's name.
        if config.network == SharedMode::Pod {
            shared.push(Self::Uts);
        }
        if config.ipc == SharedMode::Pod {
            shared.extend([Self::Ipc, Self::Shm]);
        }
        shared
    }

    /// The key it is kept under.
    pub(crate) fn key(sandbox: &str) -> String {
        format!("sandbox/{sandbox}")
    }

    /// The descriptor that is kept for this pod; `None` where the pod has none of its own.
    pub(crate) fn file(self, engine: &Inner, sandbox: &Sandbox) -> Result<Option<OwnedFd>, Error> {
        let Some(n) = Self::of(sandbox.config()).iter().position(|shared| *shared == self) else { return Ok(None) };
        let file = engine.monitor.custody().kept(&Self::key(sandbox.id()), n);
        match file {
            Some(file) => Ok(Some(file)),
            None => Err(Error::state(format!("pod {}: its {self:?} namespace is not held any more", sandbox.id()))),
        }
    }
}

/// Makes what the pod has of its own. Blocks for some 100 µs.
pub(crate) fn make_shared(config: &SandboxConfig, hostname: &str) -> Result<Vec<OwnedFd>, Error> {
    let make = |shared: Shared| match shared {
        Shared::Uts => {
            create_uts(hostname, None).map_err(failed(format_args!("make a UTS namespace for host name {hostname:?}")))
        }
        Shared::Ipc => create_ipc().map_err(failed("make an IPC namespace")),
        Shared::Shm => make_shm(),
    };
    Shared::of(config).into_iter().map(make).collect()
}

/// A tmpfs that is mounted nowhere.
pub(crate) fn make_shm() -> Result<OwnedFd, Error> {
    let wrap = || -> rustix::io::Result<OwnedFd> {
        let context = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
        for (key, value) in [("source", "shm"), ("size", SHM_SIZE), ("mode", "1777")] {
            fsconfig_set_string(&context, key, value)?;
        }
        fsconfig_create(&context)?;
        let attributes =
            MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOEXEC;
        fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
    };
    wrap().map_err(failed("make a tmpfs for /dev/shm"))
}

/// What a lost key had, taken from a process of the pod.
pub(crate) fn derive(config: &SandboxConfig, pid: u32) -> Result<Vec<OwnedFd>, Error> {
    let open = |path: String| {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        rustix::fs::open(&path, flags, Mode::empty()).map_err(failed(format_args!("open {path}")))
    };
    let derive = |shared: Shared| match shared {
        Shared::Uts => open(format!("/proc/{pid}/ns/uts")),
        Shared::Ipc => open(format!("/proc/{pid}/ns/ipc")),
        // The mount itself is another namespace's: later containers of this pod get a tmpfs of their own.
        Shared::Shm => make_shm(),
    };
    Shared::of(config).into_iter().map(derive).collect()
}

/// The PID namespace of a pod that shares one; its init is started when the first container asks.
pub(crate) async fn pid_namespace(engine: &Inner, sandbox: &Arc<Sandbox>) -> Result<OwnedFd, Error> {
    let mut held = sandbox.pid.lock().await;
    if let Some(namespace) = &*held {
        return namespace.try_clone().map_err(failed("duplicate a PID namespace"));
    }
    let namespace = match running_init(engine, sandbox.id()) {
        Some(namespace) => namespace,
        None => start_init(engine, sandbox).await?,
    };
    let duplicate = namespace.try_clone().map_err(failed("duplicate a PID namespace"))?;
    *held = Some(namespace);
    Ok(duplicate)
}

/// Of an init that an earlier daemon had started.
fn running_init(engine: &Inner, sandbox: &str) -> Option<OwnedFd> {
    let (pid, start_time) = engine.monitor.custody().process(sandbox, &HoldingState::PodInit)?;
    let _alive = process::find(pid, start_time)?;
    let path = format!("/proc/{pid}/ns/pid");
    rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()
}

async fn start_init(engine: &Inner, sandbox: &Sandbox) -> Result<OwnedFd, Error> {
    debug_assert_ne!(sandbox.config().pid, PidMode::Node);
    let mut namespaces = Vec::new();
    for (kind, shared) in [(NamespaceType::Uts, Shared::Uts), (NamespaceType::Ipc, Shared::Ipc)] {
        namespaces.extend(shared.file(engine, sandbox)?.map(|file| (kind, file)));
    }
    let cgroup = format!("{}/{}-init", engine.cgroup_of(sandbox), sandbox.id());
    let _turn = engine.lanes.clone_turn().await?;
    engine
        .monitor
        .pod_init(sandbox.id(), cgroup, namespaces)
        .await
        .map_err(|e| e.during(format_args!("start the init of pod {}", sandbox.id())))
}
