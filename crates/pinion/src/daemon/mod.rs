//! `pinion serve`: what stands between the operating system and the engine.
//!
//! ```text
//! configuration → log → limits → lock → monitor program → engine (recovers what runs) → socket → READY=1 → requests
//!                                                                                          │
//!               SIGTERM, SIGINT: answers what runs, ends; containers go on ◀───────────────┤
//!               SIGHUP, a changed file: reload.rs takes up the configuration ◀─────────────┤
//!               SIGUSR2, `pinion upgrade`: reexec.rs, the installed program goes on ◀──────┘
//! ```
//!
//! Up to the lock nothing is made on disk, so that a daemon that cannot start leaves nothing behind.

pub(crate) mod config;
mod engine;
mod handed;
mod limits;
mod live;
mod lock;
mod logging;
mod metrics;
mod monitor;
mod notify;
mod priority;
pub(crate) mod reexec;
mod reload;
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
use handed::Handed;
use live::{Answering, Live};
pub(crate) use source::Source;

/// Most threads that serve requests: the engine's work is the kernel's, more threads only cost memory.
const THREADS_MAX: usize = 8;

/// How a daemon ends.
enum Ended {
    /// For good.
    Over,
    /// For the installed program, which is to listen on this.
    GivesWay(UnixListener),
}

/// What the daemon is started with.
struct Start {
    source: Source,
    loaded: (Config, Layers),
    log: logging::Control,
    handed: Handed,
}

/// Runs the daemon until it is told to end.
pub(crate) fn serve(source: Source) -> Result<(), Failure> {
    let handed = Handed::take();
    reexec::remember();
    let loaded = source.load().map_err(|error| Failure::daemon(error.to_string()))?;
    let log = logging::start(&loaded.0.log)?;
    let config = loaded.0.clone();
    let start = Start { source, loaded, log: log.clone(), handed };
    let ended = on_threads(&config, async |monitor| run(start, monitor).await);
    log.finish();
    let failure = match ended {
        Ok(Ended::Over) => return Ok(()),
        Ok(Ended::GivesWay(listener)) => reexec::become_installed(&listener),
        Err(failure) => failure,
    };
    Err(log.last_words(&failure))
}

/// Takes away all that a daemon with this configuration made. It must have ended.
pub(crate) fn reset(source: &Source) -> Result<(), Failure> {
    let (config, _) = source.load().map_err(|error| Failure::daemon(error.to_string()))?;
    on_threads(&config, async |monitor| {
        let engine = pod::Engine::open(engine_config(&config, monitor)).await;
        let outcome = match engine {
            Ok(engine) => engine.reset().await,
            Err(error) => Err(error),
        };
        outcome.map_err(|error| Failure::daemon(error.to_string()))
    })
}

fn on_threads<T>(config: &Config, work: impl AsyncFnOnce(PathBuf) -> Result<T, Failure>) -> Result<T, Failure> {
    syscall::signals::keep_ended_children();
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
    let done = runtime.block_on(work(monitor))?;
    // Blocking work that nobody waits for any more must not hold the process.
    runtime.shutdown_timeout(Duration::from_secs(1));
    Ok(done)
}

async fn run(start: Start, monitor: PathBuf) -> Result<Ended, Failure> {
    let Start { source, loaded, log, handed } = start;
    let config = loaded.0.clone();
    log.trace(&config.tracing)?;
    let mut stop = Box::pin(told_to_end()?);
    // From the start: either would end a process that does not catch it.
    let (hangup, mut replace) = (caught(SignalKind::hangup())?, caught(SignalKind::user_defined2())?);
    tracing::info!(version = cri::RUNTIME_VERSION, state = %config.state_dir.display(), data = %config.data_dir.display(), "starting");
    let open = pod::Engine::open(engine_config(&config, monitor.clone()));
    let engine = tokio::select! {
        engine = open => engine.map_err(|error| Failure::daemon(error.to_string()))?,
        signal = &mut stop => {
            tracing::info!(signal, "ended while starting");
            return Ok(Ended::Over);
        }
    };
    let streaming = cri::Streaming::bind(streaming_options(&config), engine.clone());
    let streaming = streaming.await.map_err(|error| Failure::daemon(error.to_string()))?;
    let listener = match handed.listener(&config.socket) {
        Some(listener) => listener,
        None => socket::listen(&config.socket)?,
    };
    let accepting = socket::accepting(&listener)?;
    let read = metrics::Sources { engine: engine.clone(), streaming: streaming.clone(), log: log.clone() };
    let metrics = metrics::Endpoint::new(read);
    metrics.listen(config.metrics.address)?;
    let live = Arc::new(Live::new(engine.clone(), (log, metrics), source, loaded));
    tracing::info!(socket = %config.socket.display(), pid = std::process::id(), "ready");
    let kept = notify::store(&listener);
    notify::ready();
    let (tell, told) = tokio::sync::oneshot::channel();
    let answering = Arc::new(Answering(Arc::clone(&live)));
    let closed = CancellationToken::new();
    let mut served = tokio::spawn(cri::serve(accepting, engine, streaming, answering, closed.clone(), async {
        // A dropped sender means the same as a sent word.
        let _: Result<(), _> = told.await;
    }));
    let tasks = tasks::spawn(&live, hangup, monitor);
    let (ended, gives_way) = tokio::select! {
        ended = &mut served => (Some(ended), false),
        why = live.gives_way(&mut replace) => {
            tracing::info!(why, "giving way to the installed program; containers go on");
            let _ = tell.send(());
            // Who is told, and connects then, is served by the next program.
            closed.cancelled().await;
            notify::reloading();
            (timeout(live.config().upgrade.grace, &mut served).await.ok(), true)
        }
        signal = &mut stop => {
            tracing::info!(signal, "ending; containers go on");
            notify::stopping();
            let _ = tell.send(());
            (timeout(live.config().upgrade.grace, &mut served).await.ok(), false)
        }
    };
    drop(tasks);
    live.log.flush().await;
    // A socket that the service manager keeps is for the next daemon.
    if !gives_way && !kept {
        socket::remove(&config.socket);
    }
    match ended {
        None => tracing::info!(after = ?live.config().upgrade.grace, "requests were left unanswered"),
        Some(Ok(served)) => served.map_err(|error| Failure::daemon(error.to_string()))?,
        Some(Err(panic)) => return Err(Failure::daemon(format!("serve: {panic}"))),
    }
    Ok(if gives_way { Ended::GivesWay(listener) } else { Ended::Over })
}

fn caught(kind: SignalKind) -> Result<Signal, Failure> {
    signal(kind).map_err(|error| Failure::daemon(format!("catch signal {}: {error}", kind.as_raw_value())))
}

/// Resolves with the name of the signal that asks for the end.
fn told_to_end() -> Result<impl Future<Output = &'static str>, Failure> {
    let (mut terminate, mut interrupt) = (caught(SignalKind::terminate())?, caught(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
        }
    })
}
