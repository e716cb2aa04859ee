//! The state of the running daemon: its active configuration, reloads and upgrades.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

use tokio::sync::Notify;

use super::{
    config::{Config, Layers},
    monitor, notify, reexec, reload,
    source::{Source, Stamp},
};

/// Cause of a reload or an upgrade.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trigger {
    /// A client requested it.
    Request,
    /// A signal of this name.
    Signal(&'static str),
    /// A file of the configuration changed.
    FileChange,
}

impl Trigger {
    /// Returns the value of the log field `reason`.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Signal(name) => name,
            Self::FileChange => "a file changed",
        }
    }
}

/// The running daemon.
pub(crate) struct RunningDaemon {
    pub(crate) engine: pod::Engine,
    pub(crate) source: Source,
    pub(crate) log: super::logging::Control,
    pub(crate) metrics: super::metrics::Endpoint,
    active: Mutex<ActiveConfig>,
    /// Held during a reload.
    reload_lock: tokio::sync::Mutex<()>,
    /// Notified when the installed program is to replace the daemon.
    pub(crate) replace: Notify,
}

/// The active configuration.
struct ActiveConfig {
    config: Arc<Config>,
    layers: Layers,
    /// State of the files at the last reload, whether or not it succeeded.
    stamp: Stamp,
    since: SystemTime,
    reloads: u64,
    /// Error and time of the last reload, if it failed.
    refused: Option<(String, SystemTime)>,
}

impl RunningDaemon {
    pub(crate) fn new(
        engine: pod::Engine,
        (log, metrics): (super::logging::Control, super::metrics::Endpoint),
        source: Source,
        (config, layers): (Config, Layers),
    ) -> Self {
        let stamp = source.stamp();
        let (since, config) = (SystemTime::now(), Arc::new(config));
        let active = Mutex::new(ActiveConfig { config, layers, stamp, since, reloads: 0, refused: None });
        let reload_lock = tokio::sync::Mutex::default();
        Self { engine, log, metrics, source, active, reload_lock, replace: Notify::new() }
    }

    fn active(&self) -> MutexGuard<'_, ActiveConfig> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the active configuration.
    pub(crate) fn config(&self) -> Arc<Config> {
        Arc::clone(&self.active().config)
    }

    /// Waits until the daemon is to be replaced by the installed program and that has passed the checks.
    pub(crate) async fn replacement(&self, signal: &mut tokio::signal::unix::Signal) -> Trigger {
        loop {
            tokio::select! {
                () = self.replace.notified() => return Trigger::Request,
                _ = signal.recv() => match self.check_replacement().await {
                    Ok(()) => return Trigger::Signal("SIGUSR2"),
                    Err(error) => tracing::error!("execute the installed program: {error}"),
                },
            }
        }
    }

    /// Checks that the installed program works, and that it could open the state of this daemon.
    async fn check_replacement(&self) -> Result<(), String> {
        reexec::check_data_disk(&self.engine.data_disk().await)?;
        let holders = || offload::hand_over(|| self.engine.pipe_holders());
        reexec::check_pipes(self.engine.blocked_pipe_calls(), &holders())?;
        reexec::check(&self.source).await?;
        // Pipes may have been locked while the program was checked.
        reexec::check_pipes(self.engine.blocked_pipe_calls(), &holders())
    }

    /// Reads the files and applies the configuration as a whole, or changes nothing on error. Returns the keys that
    /// changed.
    pub(crate) async fn reload(&self, trigger: Trigger) -> Result<Vec<String>, String> {
        let reason = trigger.reason();
        let _reload_lock = self.reload_lock.lock().await;
        notify::reloading();
        // The files are on a disk, which may hang.
        let (stamp, outcome) = offload::hand_over(|| (self.source.stamp(), self.try_reload()));
        notify::ready();
        let mut active = self.active();
        active.stamp = stamp;
        match outcome {
            Ok((config, layers, changed)) => {
                active.refused = None;
                active.layers = layers;
                if !changed.is_empty() {
                    active.config = Arc::new(config);
                    active.since = SystemTime::now();
                    active.reloads += 1;
                }
                tracing::info!(reason, changed = changed.join(", "), "configuration reloaded");
                Ok(changed)
            }
            Err(error) => {
                active.refused = Some((error.clone(), SystemTime::now()));
                // A client that requested the reload gets the error, and the log line of its request contains it.
                if trigger != Trigger::Request {
                    tracing::error!(reason, "reload the configuration: {error}");
                }
                Err(error)
            }
        }
    }

    fn try_reload(&self) -> Result<(Config, Layers, Vec<String>), String> {
        let (config, layers) = self.source.load().map_err(|error| error.to_string())?;
        let parts = reload::Parts { engine: &self.engine, log: &self.log, metrics: &self.metrics };
        let changed = reload::apply(&parts, &self.config(), &config)?;
        Ok((config, layers, changed))
    }

    /// Reloads the configuration if a file has changed since the last reload.
    pub(crate) async fn reload_if_changed(&self) {
        let stamp = offload::hand_over(|| self.source.stamp());
        if stamp != self.active().stamp {
            // `reload` logs and stores the error.
            let _ = self.reload(Trigger::FileChange).await;
        }
    }
}

/// A handle to the daemon for the server of the CRI socket.
pub(crate) struct DaemonHandle(pub(crate) Arc<RunningDaemon>);

impl cri::Daemon for DaemonHandle {
    fn facts(&self) -> cri::DaemonFacts {
        let active = self.0.active();
        let config = &active.config;
        let seconds = |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
        cri::DaemonFacts {
            socket: config.socket.clone(),
            state_dir: config.state_dir.clone(),
            data_dir: config.data_dir.clone(),
            cgroup_parent: config.cgroup_parent.clone(),
            configuration_files: active.layers.files.clone(),
            configuration_since: seconds(active.since),
            reloads: active.reloads,
            refused: active.refused.as_ref().map(|(error, time)| (error.clone(), seconds(*time))),
        }
    }

    fn config(&self, origin: bool) -> Result<String, String> {
        let active = self.0.active();
        let layers = origin.then_some(&active.layers);
        active.config.to_toml(layers).map_err(|error| error.to_string())
    }

    fn reload(&self) -> cri::Pending<Vec<String>> {
        let daemon = Arc::clone(&self.0);
        Box::pin(async move { daemon.reload(Trigger::Request).await })
    }

    fn monitor(&self) -> Result<PathBuf, String> {
        monitor::find(self.0.config().monitor.as_deref()).map_err(|error| error.to_string())
    }

    fn upgrade(&self) -> cri::Pending<()> {
        let daemon = Arc::clone(&self.0);
        Box::pin(async move {
            daemon.check_replacement().await?;
            daemon.replace.notify_one();
            Ok(())
        })
    }
}
