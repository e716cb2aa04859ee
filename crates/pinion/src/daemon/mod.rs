//! `pinion serve`: what stands between the operating system and the engine.
//!
//! ```text
//! configuration → log → limits → lock → monitor program → engine (recovers what runs) → socket → READY=1 → requests
//! ```
//!
//! Up to the lock nothing is made on disk, so that a daemon that cannot start leaves nothing behind.

pub(crate) mod config;
mod limits;
mod lock;
mod logging;
mod monitor;
mod notify;
mod socket;

use std::{future::Future, path::PathBuf, time::Duration};

use tokio::{
    signal::unix::{SignalKind, signal},
    time::timeout,
};

use crate::Failure;
use config::Config;

/// How long requests that run may take once the daemon was told to end. Containers go on all the same.
const LAST_REQUESTS: Duration = Duration::from_secs(5);
/// Most threads that serve requests: the engine's work is the kernel's, more threads only cost memory.
const THREADS_MAX: usize = 8;

/// Runs the daemon until it is told to end.
pub(crate) fn serve(config: Config) -> Result<(), Failure> {
    logging::start(&config.log)?;
    on_threads(config, run)
}

/// Takes away all that a daemon with this configuration made. It must have ended.
pub(crate) fn reset(config: Config) -> Result<(), Failure> {
    on_threads(config, async |config, monitor| {
        let engine = pod::Engine::open(engine_config(&config, monitor)).await;
        let outcome = match engine {
            Ok(engine) => engine.reset().await,
            Err(error) => Err(error),
        };
        outcome.map_err(|error| Failure::daemon(error.to_string()))
    })
}

fn on_threads(config: Config, work: impl AsyncFnOnce(Config, PathBuf) -> Result<(), Failure>) -> Result<(), Failure> {
    limits::raise_open_files();
    limits::bound_memory();
    let monitor = monitor::find(config.monitor.as_deref())?;
    let threads = std::thread::available_parallelism().map_or(2, std::num::NonZero::get).min(THREADS_MAX);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_all()
        .build()
        .map_err(|error| Failure::daemon(format!("start {threads} threads: {error}")))?;
    let _lock = lock::Lock::take(&config.state_dir)?;
    runtime.block_on(work(config, monitor))?;
    // Blocking work that nobody waits for any more must not hold the process.
    runtime.shutdown_timeout(Duration::from_secs(1));
    Ok(())
}

async fn run(config: Config, monitor: PathBuf) -> Result<(), Failure> {
    let mut stop = Box::pin(told_to_end()?);
    tracing::info!(version = cri::RUNTIME_VERSION, state = %config.state_dir.display(), data = %config.data_dir.display(), "starting");
    let open = pod::Engine::open(engine_config(&config, monitor));
    let engine = tokio::select! {
        engine = open => engine.map_err(|error| Failure::daemon(error.to_string()))?,
        signal = &mut stop => {
            tracing::info!(signal, "ended while starting");
            return Ok(());
        }
    };
    let listener = socket::listen(&config.socket)?;
    tracing::info!(socket = %config.socket.display(), pid = std::process::id(), "ready");
    notify::ready();
    let (tell, told) = tokio::sync::oneshot::channel();
    let mut served = tokio::spawn(cri::serve(listener, engine, facts(&config), async {
        // A dropped sender means the same as a sent word.
        let _: Result<(), _> = told.await;
    }));
    let ended = tokio::select! {
        ended = &mut served => Some(ended),
        signal = &mut stop => {
            tracing::info!(signal, "ending; containers go on");
            notify::stopping();
            let _ = tell.send(());
            timeout(LAST_REQUESTS, &mut served).await.ok()
        }
    };
    socket::remove(&config.socket);
    match ended {
        None => tracing::info!(after = ?LAST_REQUESTS, "requests were left unanswered"),
        Some(Ok(served)) => served.map_err(|error| Failure::daemon(error.to_string()))?,
        Some(Err(panic)) => return Err(Failure::daemon(format!("serve: {panic}"))),
    }
    Ok(())
}

/// What `pinion info` tells of this program.
fn facts(config: &Config) -> serde_json::Value {
    serde_json::json!({"socket": config.socket, "stateDir": config.state_dir, "dataDir": config.data_dir, "cgroupParent": config.cgroup_parent})
}

/// Resolves with the name of the signal that asks for the end.
fn told_to_end() -> Result<impl Future<Output = &'static str>, Failure> {
    let wrong = |error| Failure::daemon(format!("catch SIGTERM and SIGINT: {error}"));
    let mut terminate = signal(SignalKind::terminate()).map_err(wrong)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(wrong)?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
        }
    })
}

fn engine_config(config: &Config, monitor: PathBuf) -> pod::Config {
    let network = &config.network;
    let registries = &config.registries;
    pod::Config {
        state_dir: config.state_dir.clone(),
        data_dir: config.data_dir.clone(),
        monitor,
        netns_dir: config.netns_dir.clone(),
        default_cgroup_parent: config.cgroup_parent.clone(),
        registries: pod::Registries {
            mirrors: registries.mirrors.clone(),
            plain_http: registries.plain_http.clone(),
            default_registry: Some(registries.default_registry.clone()),
            max_layer_bytes: Some(registries.max_layer_bytes),
            config_dir: Some(registries.config_dir.clone()),
            auth_file: registries.auth_file.clone(),
        },
        network: pod::NetworkConfig {
            cni_conf_dir: network.cni_conf_dir.clone(),
            cni_bin_dirs: network.cni_bin_dirs.clone(),
            state_dir: config.state_dir.clone(),
            bridge: network.bridge.clone(),
            subnet: network.subnet.clone(),
            subnet6: network.subnet6.clone(),
        },
        netns_pool: network.pool,
        default_runtime_handler: String::new(),
        cdi_dirs: config.cdi.dirs.clone(),
        device_ownership_from_security_context: config.containers.device_ownership_from_security_context,
        log_line_max: config.containers.log_line_max,
    }
}
