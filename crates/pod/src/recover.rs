//! Opening the engine: records, what the monitor holds, and what the kernel says, made one again.

mod commands;
mod containers;
mod sandboxes;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use cgroup::Hierarchies;
use monitor_api::Event;
use oci::Rlimit;
use rustix::process::{Resource, getpid, getrlimit, set_child_subreaper, setrlimit};
use tokio::sync::{RwLock, mpsc};

use crate::{
    Config, Error,
    container::end,
    engine::{Inner, blocking},
    error::failed,
    failures::Failures,
    filter::Filters,
    joined::Joined,
    lanes::Lanes,
    monitor::{Inventory, Monitor, Notice},
    names::Names,
    pulls::Pulls,
    reconcile,
    state::StateFolder,
    stats::Sampler,
};

/// How long the start waits for what an earlier daemon left to be taken back; the rest goes on while requests are served.
const SETTLE: Duration = Duration::from_secs(3);

pub(crate) async fn open(config: Config) -> Result<Arc<Inner>, Error> {
    set_child_subreaper(Some(getpid())).map_err(failed("become a subreaper"))?;
    let nofile = raise_open_files();
    let folder = config.state_dir.clone();
    let (state, alone) = blocking(move || {
        let state = StateFolder::open(&folder)?;
        let alone = state.lock()?;
        state.void_another_boot()?;
        Ok((state, alone))
    })
    .await?;
    let images = {
        let (folder, registries) = (config.data_dir.clone(), config.registries.clone());
        blocking(move || Ok(image::Store::open(&folder, registries)?)).await?
    };
    let network = network::Network::open(config.network.clone()).map_err(failed("open the pods' network"))?;
    let pins = netns::PinDir::open(&state.netns(), &config.netns_dir).map_err(failed("open the pins"))?;
    let trees = Hierarchies::open().map_err(failed("open the cgroup trees"))?;
    let (notices, heard) = mpsc::unbounded_channel();
    let (monitor, inventory) = Monitor::open(config.state_dir.clone(), config.monitor.clone(), notices).await?;
    let engine = Arc::new(Inner {
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
        records: state.records(),
        _alone: alone,
        nofile,
        sandbox_names: Names::default(),
        container_names: Names::default(),
        joined: Joined::default(),
        lanes: Lanes::default(),
        failures: Failures::default(),
        pulls: Pulls::default(),
        stats: Sampler::default(),
        making: RwLock::new(()),
        sandboxes: Mutex::new(BTreeMap::new()),
        containers: Mutex::new(BTreeMap::new()),
        config,
    });
    restore(&engine, inventory).await?;
    tokio::spawn(listen(Arc::downgrade(&engine), heard));
    let (first, done) = tokio::sync::oneshot::channel();
    tokio::spawn(reconcile::every_minute(Arc::downgrade(&engine), first));
    let _ = tokio::time::timeout(SETTLE, done).await;
    Ok(engine)
}

async fn restore(engine: &Arc<Inner>, mut found: Inventory) -> Result<(), Error> {
    sandboxes::load(engine)?;
    let mut begun = containers::load(engine, &mut found).await?;
    begun.extend(sandboxes::restore(engine, &mut found).await);
    drop_strangers(engine, found).await;
    commands::end_left(engine).await;
    // As a rule they take milliseconds, and then what is served is settled.
    let _ = tokio::time::timeout(SETTLE, futures_util::future::join_all(begun)).await;
    Ok(())
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
    while let Some(notice) = heard.recv().await {
        let Some(engine) = engine.upgrade() else { return };
        match notice {
            Notice::Event(Event::Exited { container, status }) => match engine.container(&container) {
                Ok(of) => {
                    if let Err(error) = end::ended(&engine, &of, status) {
                        tracing::warn!("container {container} ended: {error}");
                    }
                }
                Err(_) => sandboxes::init_ended(&engine, &container),
            },
            Notice::Event(Event::LogFailed { container, message, dropped }) => {
                engine.figures.log_dropped.add(dropped);
                tracing::error!("the log of container {container} lost {dropped} bytes: {message}");
            }
            Notice::Event(Event::ExecExited { .. }) => {}
            Notice::Replaced => {
                for id in engine.monitor.custody().ids() {
                    end::reap_when_over(&engine, &id);
                }
            }
        }
    }
}

/// A node of many pods needs many descriptors here; containers get the limit this process was started with.
fn raise_open_files() -> Rlimit {
    let limit = getrlimit(Resource::Nofile);
    let raised = rustix::process::Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!("raise the limit of open files: {error}");
    }
    let value = |n: Option<u64>| n.unwrap_or(u64::MAX);
    Rlimit { kind: "RLIMIT_NOFILE".into(), soft: value(limit.current), hard: value(limit.maximum) }
}
