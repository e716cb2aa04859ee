//! The state that all operations share.

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

use crate::user_namespaces::ProbeResult;
use crate::{
    Config, Error, Name,
    concurrency::ConcurrencyLimits,
    container::Container,
    error::failed,
    failures::Failures,
    filter::Filters,
    health::Health,
    host_files::HostFiles,
    identifier, leftovers,
    monitor::Monitor,
    name_registry::NameRegistry,
    pulls::Pulls,
    sandbox::{Sandbox, pod_limits},
    session::PipeRecord,
    single_flight::SingleFlight,
    state::Records,
    stats::Sampler,
};

/// Sandbox id, name and attempt of a container.
pub(crate) type ContainerName = (String, String, u32);

/// State that all operations of the engine share.
pub(crate) struct Inner {
    pub(crate) config: Config,
    pub(crate) images: image::Store,
    pub(crate) network: network::Network,
    pub(crate) pool: netns::Pool,
    pub(crate) pins: netns::PinDir,
    pub(crate) trees: Hierarchies,
    pub(crate) filters: Filters,
    pub(crate) cdi: cdi::Registry,
    pub(crate) user_namespaces: ProbeResult,
    pub(crate) health: Health,
    pub(crate) monitor: Monitor,
    pub(crate) metrics: crate::Metrics,
    pub(crate) records: Records,
    /// Lock on the state directory: while it is open no other daemon uses the directory.
    pub(crate) _state_lock: OwnedFd,
    /// RLIMIT_NOFILE as it was when this process started.
    pub(crate) nofile: Rlimit,
    pub(crate) sandbox_names: NameRegistry<Name>,
    pub(crate) container_names: NameRegistry<ContainerName>,
    pub(crate) single_flight: SingleFlight,
    pub(crate) concurrency: ConcurrencyLimits,
    pub(crate) host_files: HostFiles,
    pub(crate) failures: Failures,
    pub(crate) pulls: Pulls,
    pub(crate) stats: Sampler,
    /// Inode numbers of the pipes of exec'd processes.
    pub(crate) pipes: Arc<PipeRecord>,
    /// Set if the removal of an object failed; the reconciler retries soon.
    pub(crate) cleanup_pending: AtomicBool,
    /// Set while the disk removes unowned writable layers.
    pub(crate) layer_sweep_running: AtomicBool,
    /// Held for reading by operations that create objects, for writing while the parent cgroup of all pods is removed.
    pub(crate) creation_lock: RwLock<()>,
    pub(crate) sandboxes: Mutex<BTreeMap<String, Arc<Sandbox>>>,
    pub(crate) containers: Mutex<BTreeMap<String, Arc<Container>>>,
}

impl Inner {
    /// Returns the runtime handlers that a pod may name; the empty name is the default handler.
    pub(crate) fn handlers(&self) -> Vec<String> {
        let default = &self.config.default_runtime_handler;
        std::iter::once(String::new()).chain(Some(default.clone()).filter(|name| !name.is_empty())).collect()
    }

    /// Finds a sandbox by its id or an unambiguous prefix of it.
    pub(crate) fn sandbox(&self, id: &str) -> Result<Arc<Sandbox>, Error> {
        let all = self.sandboxes.lock().unwrap_or_else(PoisonError::into_inner);
        identifier::find(&all, "pod", id).cloned()
    }

    /// Finds a container by its id or an unambiguous prefix of it.
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

    /// Removes a sandbox from the lists and releases its name: the last step of its removal.
    pub(crate) fn forget_sandbox(&self, sandbox: &Sandbox) {
        self.sandboxes.lock().unwrap_or_else(PoisonError::into_inner).remove(sandbox.id());
        self.sandbox_names.release(&sandbox.config().name, sandbox.id());
        self.stats.forget(sandbox.id());
        self.records.events().sandbox_gone(sandbox);
    }

    /// Removes a container from the lists and releases its name: the last step of its removal.
    pub(crate) fn forget_container(&self, container: &Container) {
        self.containers.lock().unwrap_or_else(PoisonError::into_inner).remove(container.id());
        self.container_names.release(&name_of(container), container.id());
        self.stats.forget(container.id());
        self.records.events().container_gone(container);
    }

    /// Returns the path of the parent cgroup of a pod's containers.
    pub(crate) fn cgroup_of(&self, sandbox: &Sandbox) -> String {
        match &sandbox.config().cgroup_parent {
            Some(parent) => format!("/{}", parent.trim_matches('/')),
            None => format!("/{}/{}", self.config.default_cgroup_parent.trim_matches('/'), sandbox.id()),
        }
    }

    /// Creates the cgroup of a pod that does not use a caller's cgroup and has limits. Without limits the pod's first
    /// container creates it.
    pub(crate) fn make_pod_cgroup(&self, sandbox: &Sandbox) -> Result<(), Error> {
        let config = sandbox.config();
        let limits = pod_limits(config.resources.as_ref(), config.overhead.as_ref())?;
        let (None, Some(limits)) = (&config.cgroup_parent, limits) else { return Ok(()) };
        let path = self.cgroup_of(sandbox);
        let operation = format!("create cgroup {path}");
        let path = GroupPath::parse(&path).map_err(failed(&operation))?;
        Group::create(&self.trees, &path, &limits).map(drop).map_err(failed(operation))
    }

    /// Removes the cgroup of a pod that does not use a caller's cgroup; succeeds if it does not exist.
    pub(crate) async fn remove_pod_cgroup(self: &Arc<Self>, sandbox: &Arc<Sandbox>) -> Result<(), Error> {
        if sandbox.config().cgroup_parent.is_some() {
            return Ok(());
        }
        leftovers::remove_group(self, self.cgroup_of(sandbox), sandbox.id()).await
    }
}

pub(crate) fn name_of(container: &Container) -> ContainerName {
    (container.metadata.sandbox.clone(), container.config().name.clone(), container.config().attempt)
}

/// Runs blocking work (files, mounts, namespaces) off the workers of the async runtime.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let span = tracing::Span::current();
    let outcome = offload::blocking(move || span.in_scope(work)).await;
    outcome.unwrap_or_else(|e| Err(Error::internal(format!("a bug: {e}"))))
}

/// Runs an operation as a task of its own, so that it completes even if its caller is cancelled.
pub(crate) async fn detached<T: Send + 'static>(
    operation: impl Future<Output = Result<T, Error>> + Send + 'static,
) -> Result<T, Error> {
    tokio::spawn(operation.in_current_span()).await.unwrap_or_else(|e| Err(Error::internal(format!("a bug: {e}"))))
}
