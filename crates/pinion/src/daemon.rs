//! `pinion serve`: the daemon process around the engine.
//!
//! ```text
//! configuration → log → limits → lock → monitor program → engine (recovers state) → socket → READY=1 → requests
//!                                                                                          │
//!         SIGTERM, SIGINT: completes running requests and exits; containers keep running ◀─┤
//!         SIGHUP, a changed file: reload.rs applies the configuration ◀────────────────────┤
//!         SIGUSR2, `pinion upgrade`: reexec.rs executes the installed program ◀────────────┘
//! ```
//!
//! Nothing is created on disk before the lock is taken, so that a daemon that cannot start leaves nothing behind.

mod cadvisor;
pub(crate) mod config;
mod engine;
mod http;
mod inherited;
mod limits;
mod lock;
mod log_filter;
mod logging;
mod metrics;
pub(crate) mod monitor;
mod notify;
mod priority;
pub(crate) mod reexec;
mod reload;
mod running;
mod socket;
mod source;
mod tasks;
mod watch;

use std::{future::Future, os::unix::net::UnixListener, path::PathBuf, sync::Arc, time::Duration};

use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use crate::Failure;
use config::{Config, Layers};
use engine::{engine_config, streaming_options};
use inherited::InheritedSockets;
use running::{DaemonHandle, RunningDaemon};
pub(crate) use source::Source;

/// Maximum number of threads that serve requests. Most of the work is done by the kernel; more threads only cost
/// memory.
const THREADS_MAX: usize = 8;

/// How the daemon exits.
enum Exit {
    /// It was stopped.
    Stopped,
    /// The installed program replaces it and listens on this socket.
    Replaced(UnixListener),
}

/// The inputs of [`run`].
struct Startup {
    source: Source,
    loaded: (Config, Layers),
    log: logging::Control,
    inherited: InheritedSockets,
}

/// Runs the daemon until it is stopped or replaced.
pub(crate) fn serve(source: Source) -> Result<(), Failure> {
    let inherited = InheritedSockets::take();
    reexec::remember();
    let loaded = source.load().map_err(|error| Failure::daemon(error.to_string()))?;
    let log = logging::start(&loaded.0.log)?;
    let config = loaded.0.clone();
    let startup = Startup { source, loaded, log: log.clone(), inherited };
    let exit = on_threads(&config, async |monitor| run(startup, monitor).await);
    log.finish();
    let failure = match exit {
        Ok(Exit::Stopped) => return Ok(()),
        Ok(Exit::Replaced(listener)) => reexec::execute_installed(&listener),
        Err(failure) => failure,
    };
    Err(log.report(&failure))
}

/// Removes everything that a daemon with this configuration created. That daemon must not be running.
pub(crate) fn reset(source: &Source, keep_data: bool) -> Result<(), Failure> {
    let (config, _) = source.load().map_err(|error| Failure::daemon(error.to_string()))?;
    let is_unused =
        std::fs::symlink_metadata(&config.state_dir).is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound);
    if keep_data && is_unused {
        // For the removal of a package: a daemon has not run since the node booted, and perhaps cannot run here.
        return Ok(());
    }
    pod::check_reset(&config.state_dir).map_err(|error| Failure::daemon(error.to_string()))?;
    on_threads(&config, async |monitor| {
        // Plugins are not needed to remove everything, and their socket may serve another engine by now.
        let config = pod::Config { plugins: None, ..engine_config(&config, monitor) };
        let engine = pod::Engine::open(config).await;
        let outcome = match engine {
            Ok(engine) => engine.reset(keep_data).await,
            Err(error) => Err(error),
        };
        outcome.map_err(|error| Failure::daemon(error.to_string()))
    })
}

/// Locks the state directory and runs `task` with the path of the monitor program on a new async runtime.
fn on_threads<T>(config: &Config, task: impl AsyncFnOnce(PathBuf) -> Result<T, Failure>) -> Result<T, Failure> {
    syscall::signals::reset_sigchld();
    limits::remember_open_files();
    limits::bound_memory();
    priority::run_before_containers();
    priority::raise_autogroup();
    let monitor = monitor::find(config.monitor.as_deref())?;
    let threads = std::thread::available_parallelism().map_or(2, std::num::NonZero::get).min(THREADS_MAX);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_all()
        .on_thread_start(|| {
            metrics::thread_started();
            priority::run_before_containers();
        })
        .on_thread_stop(metrics::thread_ended)
        .build()
        .map_err(|error| Failure::daemon(format!("start {threads} threads: {error}")))?;
    let _lock = lock::Lock::take(&config.state_dir)?;
    let result = runtime.block_on(task(monitor))?;
    // Blocking tasks that nothing waits for any longer must not keep the process alive.
    runtime.shutdown_timeout(Duration::from_secs(1));
    Ok(result)
}

async fn run(startup: Startup, monitor: PathBuf) -> Result<Exit, Failure> {
    let Startup { source, loaded, log, inherited } = startup;
    let config = loaded.0.clone();
    log.trace(&config.tracing)?;
    let mut stop = Box::pin(termination_signal()?);
    // Caught from the start, because the default action of both is to terminate the process.
    let (hangup, mut replace) = (catch(SignalKind::hangup())?, catch(SignalKind::user_defined2())?);
    tracing::info!(version = cri::RUNTIME_VERSION, state = %config.state_dir.display(), data = %config.data_dir.display(), "starting");
    let open = pod::Engine::open(engine_config(&config, monitor.clone()));
    let engine = tokio::select! {
        engine = open => engine.map_err(|error| Failure::daemon(error.to_string()))?,
        signal = &mut stop => {
            tracing::info!(signal, "stopped during startup");
            return Ok(Exit::Stopped);
        }
    };
    let streaming = cri::Streaming::bind(streaming_options(&config), engine.clone());
    let streaming = streaming.await.map_err(|error| Failure::daemon(error.to_string()))?;
    let listener = match inherited.listener(&config.socket) {
        Some(listener) => listener,
        None => socket::listen(&config.socket)?,
    };
    let acceptor = socket::acceptor(&listener)?;
    let sources = metrics::Sources { engine: engine.clone(), streaming: streaming.clone(), log: log.clone() };
    let metrics = metrics::Endpoint::new(sources);
    metrics.listen(config.metrics.address)?;
    // The kubelet looks for it once it has connected to the CRI.
    let cadvisor = match &config.cadvisor.socket {
        Some(path) => Some(cadvisor::Server::start(path, engine.clone()).await?),
        None => None,
    };
    let daemon = Arc::new(RunningDaemon::new(engine.clone(), (log, metrics), source, loaded));
    tracing::info!(socket = %config.socket.display(), pid = std::process::id(), "ready");
    let is_stored = notify::store(&listener);
    notify::ready();
    let (stop_sender, stop_receiver) = tokio::sync::oneshot::channel();
    let handle = Arc::new(DaemonHandle(Arc::clone(&daemon)));
    let closed = CancellationToken::new();
    let mut server = tokio::spawn(cri::serve(acceptor, engine, streaming, handle, closed.clone(), async {
        // A dropped sender stops the server, too.
        let _: Result<(), _> = stop_receiver.await;
    }));
    let tasks = tasks::spawn(&daemon, hangup, monitor);
    let (served, is_replaced) = tokio::select! {
        served = &mut server => (Some(served), false),
        trigger = daemon.replacement(&mut replace) => {
            tracing::info!(reason = trigger.reason(), "executing the installed program; containers keep running");
            let _ = stop_sender.send(());
            // A client that connects after the notification is served by the next program.
            closed.cancelled().await;
            notify::reloading();
            (timeout(daemon.config().upgrade.grace, &mut server).await.ok(), true)
        }
        signal = &mut stop => {
            tracing::info!(signal, "stopping; containers keep running");
            notify::stopping();
            let _ = stop_sender.send(());
            (timeout(daemon.config().upgrade.grace, &mut server).await.ok(), false)
        }
    };
    drop(tasks);
    daemon.log.flush().await;
    if let Some(cadvisor) = cadvisor {
        cadvisor.stop();
    }
    // A socket that the service manager stores is for the next daemon.
    if !is_replaced && !is_stored {
        socket::remove(&config.socket);
    }
    match served {
        None => tracing::info!(after = ?daemon.config().upgrade.grace, "requests were not completed in time"),
        Some(Ok(result)) => result.map_err(|error| Failure::daemon(error.to_string()))?,
        Some(Err(panic)) => return Err(Failure::daemon(format!("serve: {panic}"))),
    }
    Ok(if is_replaced { Exit::Replaced(listener) } else { Exit::Stopped })
}

fn catch(kind: SignalKind) -> Result<Signal, Failure> {
    signal(kind).map_err(|error| Failure::daemon(format!("catch signal {}: {error}", kind.as_raw_value())))
}

/// Catches SIGTERM and SIGINT. The future resolves with the name of the one that arrives.
fn termination_signal() -> Result<impl Future<Output = &'static str>, Failure> {
    let (mut terminate, mut interrupt) = (catch(SignalKind::terminate())?, catch(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
        }
    })
}
