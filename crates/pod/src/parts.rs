//! The parts of the engine, which operations work with.

mod names;

use std::sync::{Arc, atomic::AtomicBool};

use tokio::sync::RwLock;

use crate::{
    ContainerId, Metrics, Name, SandboxId,
    monitor::Monitor,
    node::Node,
    observe::{Failures, Health, Statistics},
    operation::{ConcurrencyLimits, SingleFlight},
    stdio::{AttachedClients, PipeRecord},
    store::{Container, ContainerName, Registry, Sandbox},
};

/// The parts of the engine. Each knows only those below it: see [`crate`].
pub(crate) struct Parts {
    pub(crate) observe: Observers,
    pub(crate) flights: Flights,
    pub(crate) concurrency: ConcurrencyLimits,
    /// Held for reading by operations that create objects, for writing while the parent cgroup of all pods is removed.
    pub(crate) creation_lock: RwLock<()>,
    /// Set if the removal of an object failed; the reconciler retries soon.
    pub(crate) cleanup_pending: AtomicBool,
    /// Set while the disk removes unowned writable layers.
    pub(crate) layer_sweep_running: AtomicBool,
    pub(crate) monitor: Monitor,
    /// Clients that a removal after the exit waits for.
    pub(crate) attached_clients: AttachedClients,
    /// NRI plugins; absent if the interface is disabled.
    pub(crate) plugins: Option<Arc<nri::Plugins>>,
    /// Inode numbers of the pipes of exec'd processes.
    pub(crate) pipes: Arc<PipeRecord>,
    pub(crate) registry: Arc<Registry>,
    /// The last one: with it the lock of the state directory is released.
    pub(crate) node: Arc<Node>,
}

/// What observes objects and changes none.
pub(crate) struct Observers {
    pub(crate) health: Arc<Health>,
    pub(crate) stats: Statistics,
    pub(crate) metrics: Metrics,
    pub(crate) failures: Failures,
}

/// Operations that concurrent callers share.
#[derive(Default)]
pub(crate) struct Flights {
    pub(crate) run_sandbox: SingleFlight<Name, SandboxId>,
    pub(crate) create_container: SingleFlight<ContainerName, ContainerId>,
    pub(crate) change: SingleFlight<Change, ()>,
}

/// A change of an existing object, by its id.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Change {
    StopSandbox(SandboxId),
    RemoveSandbox(SandboxId),
    StartContainer(ContainerId),
    RemoveContainer(ContainerId),
}

impl Parts {
    pub(crate) fn new(node: Node, registry: Registry, monitor: Monitor, pipes: PipeRecord) -> Self {
        let (node, registry) = (Arc::new(node), Arc::new(registry));
        let observe = Observers {
            health: Arc::new(Health::new(&monitor, &node.network, &node.config.data_dir)),
            stats: Statistics::new(&node, &registry),
            metrics: Metrics::default(),
            failures: Failures::default(),
        };
        Self {
            observe,
            flights: Flights::default(),
            concurrency: ConcurrencyLimits::default(),
            creation_lock: RwLock::new(()),
            cleanup_pending: AtomicBool::new(false),
            layer_sweep_running: AtomicBool::new(false),
            monitor,
            attached_clients: AttachedClients::default(),
            plugins: node.config.plugins.clone().map(nri::Plugins::new),
            pipes: Arc::new(pipes),
            registry,
            node,
        }
    }

    /// Forgets a sandbox: the last step of its removal.
    pub(crate) fn forget_sandbox(&self, sandbox: &Sandbox) {
        self.registry.forget_sandbox(sandbox);
        self.observe.stats.forget_sandbox(sandbox.id());
    }

    /// Forgets a container: the last step of its removal.
    pub(crate) fn forget_container(&self, container: &Container) {
        self.registry.forget_container(container);
        let (sandbox, id) = (container.metadata.sandbox.as_str(), container.id().as_str());
        self.node.network.names().set_container(sandbox, id, Vec::new());
        self.observe.stats.forget_container(container.id());
    }
}
