//! Opening the engine: records, what the monitor holds, and what the kernel says, made one again.

mod commands;
mod containers;
mod sandboxes;

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, Mutex, atomic::AtomicBool},
    time::Duration,
};

use cgroup::Hierarchies;
use monitor_api::{Event, ExitStatus};
use oci::Rlimit;
use rustix::process::{Resource, getpid, set_child_subreaper, setrlimit};
use syscall::resource_limit;
use tokio::sync::{RwLock, Semaphore, mpsc};

use crate::{
    Config, Error,
    container::{Container, apparmor, end},
    engine::{Inner, blocking},
    error::failed,
    failures::Failures,
    filter::Filters,
    health::{self, Health},
    host_files::HostFiles,
    joined::Joined,
    lanes::Lanes,
    monitor::{Inventory, Monitor, Notice},
    names::Names,
    orphans,
    pulls::Pulls,
    reconcile,
    session::PipeRecord,
    state::{Kind, StateDirectory},
    stats::Sampler,
};

/// How many ends of containers are recorded at once.
const ENDS: usize = 16;
/// How long the start waits for what an earlier daemon left to be taken back; the rest goes on while requests are
/// served.
const SETTLE: Duration = Duration::from_secs(3);

pub(crate) async fn open(config: Config) -> Result<Arc<Inner>, Error> {
    set_child_subreaper(Some(getpid())).map_err(failed("become a subreaper"))?;
    let nofile = raise_open_files()?;
    let directory = config.state_dir.clone();
    let (state, records, alone, pipes) = blocking(move || {
        let state = StateDirectory::open(&directory)?;
        let alone = state.lock()?;
        state.void_another_boot()?;
        let records = state.records();
        Ok((state, records, alone, pipe_record(&directory)))
    })
    .await?;
    // Beside what the store, the network and the monitor need.
    let loading = {
        let records = records.clone();
        tokio::spawn(blocking(move || Ok((records.load(Kind::Sandbox)?, records.load(Kind::Container)?))))
    };
    let images = {
        let (directory, registries) = (config.data_dir.clone(), config.registries.clone());
        blocking(move || Ok(image::Store::open(&directory, registries)?)).await?
    };
    let network = network::Network::open(config.network.clone()).map_err(failed("open the pods' network"))?;
    let pins = netns::PinDir::open(&state.netns(), &config.netns_dir).map_err(failed("open the pins"))?;
    let trees = Hierarchies::open().map_err(failed("open the cgroup trees"))?;
    let (notices, heard) = mpsc::unbounded_channel();
    let (monitor, inventory) = Monitor::open(config.state_dir.clone(), config.monitor.clone(), notices).await?;
    let engine = Arc::new(Inner {
        health: Health::new(&network, &config.data_dir),
        images,
        network,
        pool: netns::Pool::new(config.netns_pool),
        pins,
        trees,
        filters: Filters::default(),
        cdi: cdi::Registry::new(config.cdi_dirs.clone()),
        user_namespaces: Default::default(),
        monitor,
        figures: crate::Figures::default(),
        records,
        _alone: alone,
        nofile,
        sandbox_names: Names::default(),
        container_names: Names::default(),
        joined: Joined::default(),
        lanes: Lanes::default(),
        host_files: HostFiles::default(),
        failures: Failures::default(),
        pulls: Pulls::default(),
        stats: Sampler::default(),
        pipes: Arc::new(pipes),
        unfinished: AtomicBool::new(false),
        sweeps: AtomicBool::new(false),
        making: RwLock::new(()),
        sandboxes: Mutex::new(BTreeMap::new()),
        containers: Mutex::new(BTreeMap::new()),
        config,
    });
    let loaded = loading.await.unwrap_or_else(|e| Err(Error::internal(format!("a bug: {e}"))))?;
    restore(&engine, loaded, inventory).await;
    tokio::spawn(listen(Arc::downgrade(&engine), heard));
    // Not waited for: a container that needs it does.
    tokio::task::spawn_blocking(apparmor::prepare);
    health::watch(&engine);
    let (first, done) = tokio::sync::oneshot::channel();
    offload::spawn(reconcile::every_minute(Arc::downgrade(&engine), first));
    let _ = tokio::time::timeout(SETTLE, done).await;
    offload::spawn(commands::end_left(Arc::downgrade(&engine)));
    Ok(engine)
}

/// Without it everything works but the next daemon's look for those who keep this one from its end.
fn pipe_record(state_dir: &Path) -> PipeRecord {
    PipeRecord::create(state_dir).unwrap_or_else(|error| {
        tracing::warn!("{error}; pipes of commands are not recorded");
        PipeRecord::default()
    })
}

async fn restore(
    engine: &Arc<Inner>,
    (sandboxes, containers): (sandboxes::Records, containers::Records),
    mut found: Inventory,
) {
    sandboxes::load(engine, sandboxes);
    let mut begun = containers::load(engine, containers, &mut found).await;
    begun.extend(sandboxes::restore(engine, &mut found).await);
    drop_strangers(engine, found).await;
    // As a rule they take milliseconds, and then what is served is settled.
    let _ = tokio::time::timeout(SETTLE, futures_util::future::join_all(begun)).await;
}

/// What the monitor holds that no record knows.
async fn drop_strangers(engine: &Inner, found: Inventory) {
    for id in found.objects.into_keys() {
        tracing::warn!("the monitor held {id}, which no record knows: it is ended");
        if let Err(error) = engine.monitor.delete(&id).await {
            tracing::warn!("end {id}: {error}");
        }
    }
    for key in found.keys {
        if let Err(error) = engine.monitor.release(&key).await {
            tracing::warn!("release {key}: {error}");
        }
    }
}

/// What happens outside of operations.
async fn listen(engine: std::sync::Weak<Inner>, mut heard: mpsc::UnboundedReceiver<Notice>) {
    let places = Arc::new(Semaphore::new(ENDS));
    while let Some(notice) = heard.recv().await {
        let Some(engine) = engine.upgrade() else { return };
        match notice {
            Notice::Event(Event::Exited { container, status }) => match engine.container(&container) {
                Ok(of) => note_end(&engine, of, status, &places),
                Err(_) => sandboxes::init_ended(&engine, &container),
            },
            Notice::Event(Event::LogFailed { container, message, dropped }) => {
                engine.figures.log_dropped.add(dropped);
                tracing::error!("the log of container {container} lost {dropped} bytes: {message}");
            }
            Notice::Event(Event::OutputPending { container }) => {
                tracing::warn!("container {container} ended, and its log hangs: its last output follows");
                engine.monitor.custody().output_pending(&container);
            }
            Notice::Event(Event::Drained { container }) => engine.monitor.custody().drained(&container),
            Notice::Event(Event::ExecExited { .. }) => {}
            Notice::Replaced => {
                for id in engine.monitor.custody().ids() {
                    end::reap_when_over(&engine, &id);
                }
                // One that the dead monitor was just making holds up the end of the PID namespace it is in.
                offload::spawn(orphans::reap_soon());
            }
        }
    }
}

/// By itself: no container's end waits for the record of another's.
fn note_end(engine: &Arc<Inner>, container: Arc<Container>, status: ExitStatus, places: &Arc<Semaphore>) {
    // Its next event may be of what is in custody.
    let status = end::give_up_custody(engine, &container, status);
    let (engine, places) = (Arc::clone(engine), Arc::clone(places));
    tokio::spawn(async move {
        let _place = places.acquire().await;
        let noted = offload::here(|| end::record(&engine, &container, status));
        noted.unwrap_or_else(|error| tracing::warn!("container {} ended: {error}", container.id()));
    });
}

/// A node of many pods needs many descriptors here; containers get the limit this process was started with.
fn raise_open_files() -> Result<Rlimit, Error> {
    let limit = resource_limit::get(Resource::Nofile).map_err(failed("read the limit of open files"))?;
    let raised = rustix::process::Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!("raise the limit of open files: {error}");
    }
    let value = |n: Option<u64>| n.unwrap_or(u64::MAX);
    Ok(Rlimit { kind: "RLIMIT_NOFILE".into(), soft: value(limit.current), hard: value(limit.maximum) })
}
