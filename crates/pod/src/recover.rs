//! Opening of the engine: reconciles the records with what the monitor holds and with the kernel.

mod containers;
mod exec_processes;
mod formats;
mod plugin_host;
mod reconcile;
mod reset;
mod sandboxes;
mod units;

use std::{path::Path, sync::Arc, time::Duration};

use cgroup::Hierarchies;
use monitor_api::{Event, ExitStatus};
use oci::Rlimit;
use rustix::process::{Resource, getpid, set_child_subreaper, setrlimit};
use syscall::resource_limit;
use tokio::sync::{OnceCell, Semaphore, mpsc};

use crate::{
    Config, Error,
    container::{announce_stop::announce_stop, exit, shim, spec::apparmor},
    error::failed,
    monitor::{Inventory, Monitor, Notice, orphans},
    node::{Filters, Handlers, HostFiles, Hypervisor, NamespacePins, Node, Pulls, Units, Wasm, cgroup_names, driver},
    observe::health,
    operation::blocking,
    parts::Parts,
    sandbox::{check_network, connect},
    stdio::PipeRecord,
    store::{Container, Registry, StateDirectory},
};

pub use formats::{FORMATS, Format, check_format};
pub use reset::check_reset;
pub(crate) use reset::reset;

/// Number of exits of containers that are recorded at the same time.
const EXITS: usize = 16;
/// How long the start waits for the rollback of what an earlier daemon left over. The rest continues while requests are
/// served.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(3);

pub(crate) async fn open(config: Config) -> Result<Arc<Parts>, Error> {
    set_child_subreaper(Some(getpid())).map_err(failed("become a subreaper"))?;
    let nofile = raise_open_files()?;
    let directory = config.state_dir.clone();
    let (state, records, state_lock, pipes) = blocking(move || {
        let state = StateDirectory::open(&directory)?;
        let state_lock = state.lock()?;
        state.discard_other_boot()?;
        let records = state.records();
        Ok((state, records, state_lock, pipe_record(&directory)))
    })
    .await?;
    // Runs while the store, the network and the monitor are opened.
    let loading = {
        let records = records.clone();
        tokio::spawn(blocking(move || Ok((records.load()?, records.load()?))))
    };
    let images = {
        let (directory, registries) = (config.data_dir.clone(), config.registries.clone());
        blocking(move || Ok(image::Store::open(&directory, registries)?)).await?
    };
    let network = network::Network::open(config.network.clone()).map_err(failed("open the pods' network"))?;
    let pins = netns::PinDir::open(&state.netns(), &config.netns_dir).map_err(failed("open the pins"))?;
    let namespace_pins = {
        let (store, public) = (state.namespaces(), config.namespaces_dir.clone());
        blocking(move || Ok(NamespacePins::open(&store, public.as_deref()))).await?
    };
    let trees = Hierarchies::open().map_err(failed("open the cgroup trees"))?;
    let driver = driver(config.cgroup_driver, &trees)?;
    cgroup_names::check_default_parent(driver, &config.default_cgroup_parent)?;
    let units = Units::new(&trees, units::owner(&config));
    #[expect(clippy::disallowed_methods, reason = "one notice per container that the monitor holds")]
    let (notices, notice_receiver) = mpsc::unbounded_channel();
    let (monitor, inventory) = Monitor::open(config.state_dir.clone(), config.monitor.clone(), notices).await?;
    let node = Node {
        images,
        pulls: Pulls::default(),
        network,
        pool: netns::Pool::new(config.netns_pool),
        pins,
        namespace_pins,
        trees,
        driver,
        units,
        filters: Filters::default(),
        handlers: Arc::new(Handlers::new(
            config.default_runtime_handler.clone(),
            config.handlers.clone(),
            config.shim_handlers.clone(),
            config
                .vm_handlers
                .iter()
                .map(|handler| Hypervisor::new(handler.clone(), &config.state_dir, &config.data_dir)),
            config.wasm.clone().map(|wasm| Wasm::new(wasm, &config.data_dir)),
            &config.state_dir,
        )),
        cdi: cdi::Registry::new(config.cdi_dirs.clone()),
        host_files: HostFiles::default(),
        user_namespaces: OnceCell::new(),
        nofile,
        config,
        _state_lock: state_lock,
    };
    let parts = Arc::new(Parts::new(node, Registry::new(records), monitor, pipes));
    let loaded = loading.await.unwrap_or_else(|e| Err(Error::internal(format!("a bug: {e}"))))?;
    restore(&parts, loaded, inventory).await;
    tokio::spawn(listen(Arc::downgrade(&parts), notice_receiver));
    // Not waited for here: a container that needs AppArmor waits for it.
    offload::blocking(apparmor::prepare);
    health::watch(&parts.observe.health);
    let handlers = Arc::clone(&parts.node.handlers);
    tokio::spawn(async move { handlers.examine().await });
    connect::undo_unrecorded(&parts).await;
    connect::complete(&parts).await;
    let (first, first_done) = tokio::sync::oneshot::channel();
    offload::spawn(reconcile::run(Arc::downgrade(&parts), first));
    let _ = tokio::time::timeout(SETTLE_TIMEOUT, first_done).await;
    listen_to_shims(&parts);
    plugin_host::start(&parts).await?;
    offload::spawn(exec_processes::kill_orphaned(Arc::downgrade(&parts)));
    offload::spawn(check_network::check_recovered(Arc::downgrade(&parts)));
    tokio::spawn(parts.node.network.run_overlays());
    Ok(parts)
}

/// Creates the record of pipes. Without it everything works, except that the next daemon cannot find processes that
/// keep this one from exiting by holding a pipe of an exec session.
fn pipe_record(state_dir: &Path) -> PipeRecord {
    PipeRecord::create(state_dir).unwrap_or_else(|error| {
        tracing::warn!("{error}; pipes of exec sessions are not recorded");
        PipeRecord::default()
    })
}

async fn restore(
    parts: &Arc<Parts>,
    (sandboxes, containers): (sandboxes::Records, containers::Records),
    mut inventory: Inventory,
) {
    sandboxes::load(parts, sandboxes);
    let mut rollbacks = containers::load(parts, containers, &mut inventory).await;
    rollbacks.extend(sandboxes::restore(parts, &mut inventory).await);
    remove_unknown(parts, inventory).await;
    // Usually they take milliseconds, and requests are then served from a settled state.
    let _ = tokio::time::timeout(SETTLE_TIMEOUT, futures_util::future::join_all(rollbacks)).await;
}

/// Removes what the monitor holds and no record mentions.
async fn remove_unknown(parts: &Parts, inventory: Inventory) {
    for id in inventory.objects.into_keys() {
        tracing::warn!("the monitor held {id}, which is not on record: removing it");
        if let Err(error) = parts.monitor.delete(&id).await {
            tracing::warn!("remove {id}: {error}");
        }
    }
    for key in inventory.keys {
        if let Err(error) = parts.monitor.release(&key).await {
            tracing::warn!("release {key}: {error}");
        }
    }
}

/// Receives the events of shims, if there may be any: a shim does not start without the socket.
fn listen_to_shims(parts: &Arc<Parts>) {
    let has_shim = |container: &Arc<Container>| container.metadata.shim.is_some();
    if !parts.node.handlers.has_shims() && !parts.registry.containers().iter().any(has_shim) {
        return;
    }
    match shim::listen(&parts.node.config.state_dir) {
        Ok(events) => drop(tokio::spawn(shim::handle_events(Arc::downgrade(parts), events))),
        Err(error) => tracing::warn!("{error}; containers of shims cannot be created"),
    }
}

/// Handles what happens outside of operations.
async fn listen(parts: std::sync::Weak<Parts>, mut notices: mpsc::UnboundedReceiver<Notice>) {
    let permits = Arc::new(Semaphore::new(EXITS));
    while let Some(notice) = notices.recv().await {
        let Some(parts) = parts.upgrade() else { return };
        match notice {
            Notice::Event(Event::Exited { container, status }) => match parts.registry.container(&container) {
                Ok(container) => record_exit(&parts, container, status, &permits),
                Err(_) => sandboxes::init_exited(&parts, &container),
            },
            Notice::Event(Event::LogFailed { container, message, dropped }) => {
                report_log_failure(&parts, &container, &message, dropped);
            }
            Notice::Event(Event::OutputPending { container }) => {
                tracing::warn!("container {container} exited, but its log hangs: its last output follows");
                parts.monitor.custody().output_pending(&container);
            }
            Notice::Event(Event::Drained { container }) => parts.monitor.custody().drained(&container),
            Notice::Event(Event::ExecExited { .. }) => {}
            Notice::Replaced => {
                for id in parts.monitor.custody().ids() {
                    exit::reap_on_exit(&parts, &id);
                }
                // A process that the dead monitor was cloning delays the end of the PID namespace that it is in.
                offload::spawn(orphans::reap_soon());
            }
        }
    }
}

/// Counts and logs what the log of a container lost. `total` is the number of bytes lost so far: zero or an unchanged
/// one is a failure that lost nothing.
fn report_log_failure(parts: &Parts, container: &str, message: &str, total: u64) {
    let new = parts.registry.container(container).map_or(total, |container| container.log_loss.update(total));
    if new == 0 {
        tracing::warn!("output of container {container}: {message}");
        return;
    }
    parts.observe.metrics.log_dropped.add(new);
    tracing::error!("the log of container {container} lost {total} bytes: {message}");
}

/// Records an exit in a task of its own, so that it does not wait for the record of another container.
fn record_exit(parts: &Arc<Parts>, container: Arc<Container>, status: ExitStatus, permits: &Arc<Semaphore>) {
    // Done here, because the next event of the container may refer to the custody.
    let status = exit::give_up_custody(parts, &container, status);
    let (parts, permits) = (Arc::clone(parts), Arc::clone(permits));
    tokio::spawn(async move {
        let permit = permits.acquire().await;
        let recorded = offload::in_place(|| exit::record_exit(&parts, &container, status));
        recorded.unwrap_or_else(|error| tracing::warn!("container {} exited: {error}", container.id()));
        drop(permit);
        announce_stop(&parts, &container).await;
    });
}

/// Raises the soft limit of open files: a node with many pods needs many descriptors here. Returns the original limit,
/// which containers get.
fn raise_open_files() -> Result<Rlimit, Error> {
    let limit = resource_limit::get(Resource::Nofile).map_err(failed("read the limit of open files"))?;
    let raised = rustix::process::Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!("raise the limit of open files: {error}");
    }
    let value = |n: Option<u64>| n.unwrap_or(u64::MAX);
    Ok(Rlimit { kind: "RLIMIT_NOFILE".into(), soft: value(limit.current), hard: value(limit.maximum) })
}
