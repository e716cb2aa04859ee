//! What every operation works with.

use std::{
    collections::BTreeMap,
    future::Future,
    sync::{Arc, Mutex, PoisonError, atomic::AtomicBool},
};

use cgroup::{Group, GroupPath, Hierarchies};
use oci::Rlimit;
use rustix::fd::OwnedFd;
use tokio::sync::RwLock;
use tracing::Instrument;

use crate::user_namespaces::Tried;
use crate::{
    Config, Error, Name,
    container::Container,
    error::failed,
    failures::Failures,
    filter::Filters,
    health::Health,
    host_files::HostFiles,
    identifier,
    joined::Joined,
    lanes::Lanes,
    monitor::Monitor,
    names::Names,
    pulls::Pulls,
    remains,
    sandbox::{Sandbox, pod_limits},
    session::PipeRecord,
    state::Records,
    stats::Sampler,
};

/// Sandbox id, name, attempt.
pub(crate) type ContainerName = (String, String, u32);

/// See the module.
pub(crate) struct Inner {
    pub(crate) config: Config,
    pub(crate) images: image::Store,
    pub(crate) network: network::Network,
    pub(crate) pool: netns::Pool,
    pub(crate) pins: netns::PinDir,
    pub(crate) trees: Hierarchies,
    pub(crate) filters: Filters,
    pub(crate) cdi: cdi::Registry,
    pub(crate) user_namespaces: Tried,
    pub(crate) health: Health,
    pub(crate) monitor: Monitor,
    pub(crate) figures: crate::Figures,
    pub(crate) records: Records,
    /// While it lives no other daemon works on this state directory.
    pub(crate) _alone: OwnedFd,
    /// RLIMIT_NOFILE as it was when this process started.
    pub(crate) nofile: Rlimit,
    pub(crate) sandbox_names: Names<Name>,
    pub(crate) container_names: Names<ContainerName>,
    pub(crate) joined: Joined,
    pub(crate) lanes: Lanes,
    pub(crate) host_files: HostFiles,
    pub(crate) failures: Failures,
    pub(crate) pulls: Pulls,
    pub(crate) stats: Sampler,
    /// Pipes of commands.
    pub(crate) pipes: Arc<PipeRecord>,
    /// Something that was made could not be removed again; the reconciler retries soon.
    pub(crate) unfinished: AtomicBool,
    /// The disk is removing writable layers that nobody owns.
    pub(crate) sweeps: AtomicBool,
    /// Read by whoever makes something, written by who removes the group above all pods.
    pub(crate) making: RwLock<()>,
    pub(crate) sandboxes: Mutex<BTreeMap<String, Arc<Sandbox>>>,
    pub(crate) containers: Mutex<BTreeMap<String, Arc<Container>>>,
}

impl Inner {
    /// The runtime handlers that a pod may name; the empty name is the default one.
    pub(crate) fn handlers(&self) -> Vec<String> {
        let default = &self.config.default_runtime_handler;
        std::iter::once(String::new()).chain(Some(default.clone()).filter(|name| !name.is_empty())).collect()
    }

    /// By id or unambiguous prefix.
    pub(crate) fn sandbox(&self, id: &str) -> Result<Arc<Sandbox>, Error> {
        let all = self.sandboxes.lock().unwrap_or_else(PoisonError::into_inner);
        identifier::find(&all, "pod", id).cloned()
    }

    /// By id or unambiguous prefix.
    pub(crate) fn container(&self, id: &str) -> Result<Arc<Container>, Error> {
        let all = self.containers.lock().unwrap_or_else(PoisonError::into_inner);
        identifier::find(&all, "container", id).cloned()
    }

    pub(crate) fn sandboxes(&self) -> Vec<Arc<Sandbox>> {
        self.sandboxes.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    pub(crate) fn containers(&self) -> Vec<Arc<Container>> {
        self.containers.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    pub(crate) fn containers_of(&self, sandbox: &str) -> Vec<Arc<Container>> {
        let mut all = self.containers();
        all.retain(|container| container.metadata.sandbox == sandbox);
        all
    }

    pub(crate) fn insert_sandbox(&self, sandbox: Arc<Sandbox>) {
        let mut all = self.sandboxes.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(sandbox.id().to_owned(), sandbox);
        self.records.events().changed();
    }

    pub(crate) fn insert_container(&self, container: Arc<Container>) {
        let mut all = self.containers.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(container.id().to_owned(), container);
        self.records.events().changed();
    }

    /// The last step of its removal: its name is free.
    pub(crate) fn forget_sandbox(&self, sandbox: &Sandbox) {
        self.sandboxes.lock().unwrap_or_else(PoisonError::into_inner).remove(sandbox.id());
        self.sandbox_names.free_of(&sandbox.config().name, sandbox.id());
        self.stats.forget(sandbox.id());
        self.records.events().sandbox_gone(sandbox);
    }

    /// The last step of its removal: its name is free.
    pub(crate) fn forget_container(&self, container: &Container) {
        self.containers.lock().unwrap_or_else(PoisonError::into_inner).remove(container.id());
        self.container_names.free_of(&name_of(container), container.id());
        self.stats.forget(container.id());
        self.records.events().container_gone(container);
    }

    /// The cgroup above a pod's containers.
    pub(crate) fn cgroup_of(&self, sandbox: &Sandbox) -> String {
        match &sandbox.config().cgroup_parent {
            Some(parent) => format!("/{}", parent.trim_matches('/')),
            None => format!("/{}/{}", self.config.default_cgroup_parent.trim_matches('/'), sandbox.id()),
        }
    }

    /// Of a pod that has one of its own and limits; else its first container makes it.
    pub(crate) fn make_pod_cgroup(&self, sandbox: &Sandbox) -> Result<(), Error> {
        let config = sandbox.config();
        let limits = pod_limits(config.resources.as_ref(), config.overhead.as_ref())?;
        let (None, Some(limits)) = (&config.cgroup_parent, limits) else { return Ok(()) };
        let path = self.cgroup_of(sandbox);
        let told = format!("make cgroup {path}");
        let path = GroupPath::parse(&path).map_err(failed(&told))?;
        Group::create(&self.trees, &path, &limits).map(drop).map_err(failed(told))
    }

    /// Of a pod that has one of its own; one that is not there is fine.
    pub(crate) async fn remove_pod_cgroup(self: &Arc<Self>, sandbox: &Arc<Sandbox>) -> Result<(), Error> {
        if sandbox.config().cgroup_parent.is_some() {
            return Ok(());
        }
        remains::end_group(self, self.cgroup_of(sandbox), sandbox.id()).await
    }
}

pub(crate) fn name_of(container: &Container) -> ContainerName {
    (container.metadata.sandbox.clone(), container.config().name.clone(), container.config().attempt)
}

/// Runs what blocks (files, mounts, namespaces) off the async threads.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let span = tracing::Span::current();
    let done = offload::blocking(move || span.in_scope(work)).await;
    done.unwrap_or_else(|e| Err(Error::internal(format!("a bug: {e}"))))
}

/// Runs an operation as a task of its own: it comes to its end also when its caller is gone.
pub(crate) async fn detached<T: Send + 'static>(
    operation: impl Future<Output = Result<T, Error>> + Send + 'static,
) -> Result<T, Error> {
    tokio::spawn(operation.in_current_span()).await.unwrap_or_else(|e| Err(Error::internal(format!("a bug: {e}"))))
}
