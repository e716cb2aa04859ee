//! `RunPodSandbox`: [`Reserved`] → [`Networked`] → ready. Each phase is consumed by the next; a failure rolls
//! everything back.

use std::{
    future::Future,
    path::PathBuf,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use network::{Attachment, PodRef};
use nri::Event;
use rustix::fd::OwnedFd;
use tokio::sync::OwnedRwLockWriteGuard;
use tracing::{Instrument, debug_span};

use super::{
    after_exit,
    capability_args::{capability_args, primary_network},
    check_handler::check_handler,
    sysctls,
    teardown::teardown,
    vm,
};
use crate::{
    Error, ErrorKind, Name, SandboxConfig, SandboxId, SharedMode, annotation, clock,
    error::failed,
    namespaces::{SharedResource, files, hostname, make_owned, make_shared, pin_shared, root_of},
    node::cgroup_names,
    operation::{CreationGuard, blocking, failpoint, with_undo},
    parts::Parts,
    plugins,
    store::{Sandbox, SandboxMetadata, SandboxPhase, SandboxRecord},
};

/// Creates a sandbox. If one of the same name is being created, waits for it; if one is ready, returns its id. A
/// stopped sandbox of that name stays until it is removed, alongside the new one.
pub(crate) async fn run(parts: &Arc<Parts>, config: SandboxConfig) -> Result<SandboxId, Error> {
    check_handler(parts, &config).await?;
    parts.require_user_namespaces(&config).await?;
    let name = config.name.clone();
    if let Some(id) = ready(parts, &name) {
        return Ok(id);
    }
    let required = plugins::require(parts, &config, "").await?;
    let work = {
        let parts = Arc::clone(parts);
        || async move {
            // Another request may have completed since.
            match ready(&parts, &config.name) {
                Some(id) => Ok(id),
                None => make(&parts, Arc::new(config), &required).await,
            }
        }
    };
    parts.flights.run_sandbox.run(name, work).await
}

/// Returns the id of the ready sandbox that has a name.
pub(super) fn ready(parts: &Parts, name: &Name) -> Option<SandboxId> {
    let id = parts.registry.sandbox_names.owner(name)?;
    parts.registry.sandbox(&id).is_ok_and(|sandbox| sandbox.is_ready()).then_some(id)
}

async fn make(parts: &Arc<Parts>, config: Arc<SandboxConfig>, required: &[String]) -> Result<SandboxId, Error> {
    let (name, operation) = (config.name.clone(), format!("run pod {}/{}", config.name.namespace, config.name.name));
    // The parent cgroup of all pods must not be removed while something is created in it.
    let _creation_lock = parts.creation_lock.read().await;
    let created = async {
        let config = with_cgroup_parent(parts, config)?;
        let reserved = Reserved::new(parts, config, false)?;
        let networked = reserved.network().instrument(debug_span!("network")).await?;
        let networked = networked.boot().instrument(debug_span!("boot")).await?;
        let announced = networked.announce(required).instrument(debug_span!("plugins")).await?;
        announced.publish().instrument(debug_span!("publish")).await
    };
    let id = created.instrument(debug_span!("run_sandbox")).await.map_err(|e| e.during(operation))?;
    parts.registry.sandbox_names.assign(name, id.clone());
    Ok(id)
}

/// Replaces the parent cgroup of the request by its path, or refuses it.
pub(super) fn with_cgroup_parent(parts: &Parts, config: Arc<SandboxConfig>) -> Result<Arc<SandboxConfig>, Error> {
    let Some(parent) = &config.cgroup_parent else { return Ok(config) };
    let path = cgroup_names::parent(parts.node.driver, parent)?;
    match path == *parent {
        true => Ok(config),
        false => Ok(Arc::new(SandboxConfig { cgroup_parent: Some(path), ..SandboxConfig::clone(&config) })),
    }
}

/// A network namespace and the path under which it is visible.
type Pinned = (netns::Namespace, PathBuf);

/// Phase 1: the sandbox is on record, nothing has been created.
pub(super) struct Reserved<'a> {
    parts: &'a Arc<Parts>,
    sandbox: Arc<Sandbox>,
    hostname: String,
    /// Makes stop and remove wait until the sandbox is ready or gone.
    _gate: OwnedRwLockWriteGuard<()>,
    _creation: CreationGuard,
}

/// Phase 2: namespaces, files and network exist.
pub(super) struct Networked<'a>(Reserved<'a>);

impl<'a> Reserved<'a> {
    /// `restored`: its containers and its virtual machine are those of a checkpoint.
    pub(super) fn new(parts: &'a Arc<Parts>, config: Arc<SandboxConfig>, restored: bool) -> Result<Self, Error> {
        let metadata = SandboxMetadata {
            id: SandboxId::generate()?,
            config,
            created_at: clock::now(),
            cgroup_driver: parts.node.driver,
            cgroup_names: parts.node.config.cgroup_names,
            restored,
        };
        let record = SandboxRecord::reserved();
        parts.registry.records.create(&metadata.id, &metadata)?;
        let hostname = hostname(&metadata.config);
        let sandbox = Arc::new(Sandbox::new(metadata, record));
        let gate = Arc::clone(&sandbox.gate).try_write_owned().map_err(failed("lock a new sandbox"))?;
        let creation = sandbox.creation.begin();
        parts.registry.insert_sandbox(Arc::clone(&sandbox));
        failpoint::reach("sandbox.reserved");
        Ok(Self { parts, sandbox, hostname, _gate: gate, _creation: creation })
    }

    pub(super) fn sandbox(&self) -> &Arc<Sandbox> {
        &self.sandbox
    }

    pub(super) async fn network(self) -> Result<Networked<'a>, Error> {
        match self.try_network().await {
            Ok(()) => Ok(Networked(self)),
            Err(error) => Err(self.roll_back(error).await),
        }
    }

    async fn try_network(&self) -> Result<(), Error> {
        let (parts, sandbox) = (self.parts, &self.sandbox);
        let (netns, shared) = self.make_namespaces().await?;
        failpoint::reach("sandbox.pinned");
        self.sandbox.check_cancelled()?;
        sandbox.stage("attach to the network");
        let (keep_result, cgroup_result, attachment) =
            tokio::join!(self.keep(shared), self.make_empty_cgroup(), self.attach(netns.as_ref()));
        keep_result?;
        cgroup_result?;
        let attachment = attachment?;
        failpoint::reach("sandbox.attached");
        if let Some((namespace, _)) = netns.as_ref().filter(|_| sandbox.has_resolver()) {
            parts.serve_names(sandbox, namespace)?;
        }
        let attachment = self.write_files(attachment).await?;
        self.write_sysctls(netns.as_ref().map(|(namespace, _)| namespace))?;
        parts.registry.update_sandbox(sandbox, |record| {
            record.phase = SandboxPhase::Networked;
            record.netns = netns.map(|(_, path)| path);
            record.attachment = attachment;
        })?;
        failpoint::reach("sandbox.networked");
        self.sandbox.check_cancelled()
    }

    /// Pins the network namespace and creates the other namespaces.
    async fn make_namespaces(&self) -> Result<(Option<Pinned>, Vec<OwnedFd>), Error> {
        let (parts, sandbox) = (self.parts, &self.sandbox);
        sandbox.stage("make namespaces");
        let mut owned = make_owned(&parts.monitor, sandbox.config(), &self.hostname, None).await?;
        let permit = parts.concurrency.pod().await?;
        let make = {
            let (parts, sandbox, hostname) = (Arc::clone(parts), Arc::clone(sandbox), self.hostname.clone());
            move || {
                let _permit = permit;
                parts.node.make_pod_cgroup(&sandbox)?;
                let network = owned.network.take();
                let shared = make_shared(sandbox.config(), &hostname, owned)?;
                if let Some(pins) = &parts.node.namespace_pins {
                    pin_shared(pins, &sandbox, &shared);
                }
                if sandbox.config().network == SharedMode::Node {
                    return Ok((None, shared));
                }
                let namespace = match network {
                    Some(namespace) => netns::Namespace::from_fd(namespace),
                    None => parts.node.pool.take(),
                };
                let namespace = namespace.map_err(failed("create a network namespace"))?;
                let path = parts
                    .node
                    .pins
                    .pin(sandbox.id().as_str(), &namespace)
                    .map_err(failed("pin the network namespace"))?;
                Ok((Some((namespace, path)), shared))
            }
        };
        blocking(make).instrument(debug_span!("namespaces")).await
    }

    /// Has the shared resources kept by the monitor, too.
    async fn keep(&self, shared: Vec<OwnedFd>) -> Result<(), Error> {
        let keep = self.parts.monitor.keep(SharedResource::key(self.sandbox.id()), shared);
        keep.instrument(debug_span!("keep")).await
    }

    /// Creates the empty cgroup of the pod, if it has one.
    async fn make_empty_cgroup(&self) -> Result<(), Error> {
        if self.parts.node.empty_cgroup_of(&self.sandbox).is_none() {
            return Ok(());
        }
        let (parts, sandbox) = (Arc::clone(self.parts), Arc::clone(&self.sandbox));
        blocking(move || parts.node.make_empty_cgroup(&sandbox)).instrument(debug_span!("cgroup")).await
    }

    async fn attach(&self, netns: Option<&Pinned>) -> Result<Option<Attachment>, Error> {
        let Some((namespace, path)) = netns else { return Ok(None) };
        let pod = pod_ref(&self.sandbox)?;
        let attached = self.parts.node.network.attach(&pod, namespace, path, &self.sandbox.config().ports);
        let attached = self.unless_cancelled(attached.instrument(debug_span!("attach"))).await;
        self.sandbox.add_plugin_calls(&self.parts.node.network);
        attached.map(Some).map_err(|error| match error {
            // A cancelled plugin may report any error: the cause is the cancellation.
            error if self.sandbox.is_cancelled() => {
                Error::state(format!("it was stopped while it was being created: attach to the network: {error}"))
            }
            network::Error::PortTaken { .. }
            | network::Error::PortInUse { .. }
            | network::Error::AddressTaken(_)
            | network::Error::Cancelled(_) => Error::state(format!("attach to the network: {error}")),
            network::Error::NetworkMissing(_) => {
                Error::new(ErrorKind::NotFound, format!("attach to the network: {error}"))
            }
            error if error.kind() == network::ErrorKind::Exhausted => {
                Error::new(ErrorKind::ResourceExhausted, format!("attach to the network: {error}"))
            }
            network::Error::Selection { .. } => Error::invalid(format!("attach to the network: {error}")),
            error => failed("attach to the network")(error),
        })
    }

    /// Waits for an attachment. A cancelled attachment is waited for, too: what it did is undone.
    async fn unless_cancelled<T>(&self, attach: impl Future<Output = T>) -> T {
        /// The attachment may not have begun when it is cancelled for the first time.
        const RETRY: Duration = Duration::from_millis(50);
        tokio::pin!(attach);
        tokio::select! {
            attached = &mut attach => return attached,
            () = self.sandbox.cancelled() => {}
        }
        self.sandbox.stage("rolling back: it was stopped while it was being created");
        loop {
            self.parts.node.network.cancel(self.sandbox.id().as_str());
            if let Ok(attached) = tokio::time::timeout(RETRY, &mut attach).await {
                return attached;
            }
        }
    }

    async fn write_files(&self, attachment: Option<Attachment>) -> Result<Option<Attachment>, Error> {
        let (parts, sandbox, hostname) = (Arc::clone(self.parts), Arc::clone(&self.sandbox), self.hostname.clone());
        let write = move || {
            if let Some(tmpfs) = SharedResource::Files.file(&parts.monitor, &sandbox)? {
                files::write(tmpfs, sandbox.config(), &hostname, attachment.as_ref(), sandbox.has_resolver())?;
            }
            Ok(attachment)
        };
        blocking(write).instrument(debug_span!("files")).await
    }

    fn write_sysctls(&self, netns: Option<&netns::Namespace>) -> Result<(), Error> {
        let config = self.sandbox.config();
        let sysctls = sysctls::of_pod(config, &self.parts.node.config.defaults, netns.is_some());
        if sysctls.is_empty() {
            return Ok(());
        }
        let namespaces = netns::PodNamespaces {
            net: netns.map(netns::Namespace::try_clone).transpose().map_err(failed("duplicate a namespace"))?,
            ipc: SharedResource::Ipc.file(&self.parts.monitor, &self.sandbox)?,
            uts: SharedResource::Uts.file(&self.parts.monitor, &self.sandbox)?,
            root: config.user_namespace.as_ref().map(|_| rustix::fs::Uid::from_raw(root_of(config).0)),
        };
        offload::in_place(|| namespaces.write_sysctls(&sysctls))
            .map_err(|e| Error::invalid(format!("set sysctls of the pod: {e}")))
    }

    pub(super) async fn roll_back(self, error: Error) -> Error {
        self.parts.observe.failures.add_sandbox(&self.sandbox, &error);
        let error = with_undo(error, teardown(self.parts, &self.sandbox).await);
        if self.sandbox.known_to_plugins.load(Ordering::SeqCst) {
            plugins::pod_event(self.parts, Event::RemovePodSandbox, &self.sandbox).await;
        }
        error
    }
}

impl Networked<'_> {
    /// Undoes everything.
    pub(super) async fn roll_back(self, error: Error) -> Error {
        self.0.roll_back(error).await
    }

    /// Boots the virtual machine of a pod that is one.
    async fn boot(self) -> Result<Self, Error> {
        let Self(reserved) = self;
        match vm::boot(reserved.parts, &reserved.sandbox).await {
            Ok(processes) => {
                processes.iter().for_each(|id| after_exit::container_started(reserved.parts, id));
                Ok(Self(reserved))
            }
            Err(error) => Err(reserved.roll_back(error).await),
        }
    }

    /// Announces the pod to NRI plugins, any of which may refuse it.
    pub(super) async fn announce(self, required: &[String]) -> Result<Self, Error> {
        let Self(reserved) = self;
        match plugins::run_pod(reserved.parts, &reserved.sandbox, required).await {
            Ok(()) => Ok(Self(reserved)),
            Err(error) => Err(reserved.roll_back(error).await),
        }
    }

    pub(super) async fn publish(self) -> Result<SandboxId, Error> {
        let Self(reserved) = self;
        let published = reserved.parts.registry.update_sandbox(&reserved.sandbox, |record| {
            record.phase = SandboxPhase::Ready;
            record.restored = reserved.sandbox.metadata.restored;
            record.enter("ready");
        });
        match published {
            Ok(()) => Ok(reserved.sandbox.id().clone()),
            Err(error) => Err(reserved.roll_back(error).await),
        }
    }
}

pub(super) fn pod_ref(sandbox: &Sandbox) -> Result<PodRef, Error> {
    let name = sandbox.config().name.clone();
    Ok(PodRef {
        sandbox: sandbox.id().to_string(),
        name: name.name,
        namespace: name.namespace,
        uid: name.uid,
        capability_args: capability_args(sandbox.config())?,
        selection: primary_network(sandbox.config())?,
        named: sandbox.config().named.networks.clone(),
        networks: sandbox.config().annotations.get(annotation::NETWORKS).cloned(),
        require_free_ports: annotation::is_set(&sandbox.config().annotations, annotation::FREE_PORTS),
    })
}
