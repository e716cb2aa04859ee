//! The running daemon as others ask it: what holds, a reload, an upgrade.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

use serde_json::{Value, json};
use tokio::sync::Notify;

use super::{
    config::{Config, Layers},
    monitor, notify, reexec, reload,
    source::{Source, Stamp},
};

/// Why a reload is done that a client asked for.
const ASKED: &str = "asked for";

/// See the head of this file.
pub(crate) struct Live {
    pub(crate) engine: pod::Engine,
    pub(crate) source: Source,
    pub(crate) log: super::logging::Control,
    pub(crate) metrics: super::metrics::Endpoint,
    holds: Mutex<Holds>,
    /// One reload at a time.
    turn: tokio::sync::Mutex<()>,
    /// Told when the daemon is to give way.
    pub(crate) give_way: Notify,
}

/// What holds now.
struct Holds {
    config: Arc<Config>,
    layers: Layers,
    /// What the files were when they were read last, for better or worse.
    stamp: Stamp,
    since: SystemTime,
    reloads: u64,
    /// Why the last reload changed nothing, and when.
    refused: Option<(String, SystemTime)>,
}

impl Live {
    pub(crate) fn new(
        engine: pod::Engine,
        (log, metrics): (super::logging::Control, super::metrics::Endpoint),
        source: Source,
        (config, layers): (Config, Layers),
    ) -> Self {
        let stamp = source.stamp();
        let (since, config) = (SystemTime::now(), Arc::new(config));
        let holds = Mutex::new(Holds { config, layers, stamp, since, reloads: 0, refused: None });
        Self { engine, log, metrics, source, holds, turn: tokio::sync::Mutex::default(), give_way: Notify::new() }
    }

    fn holds(&self) -> MutexGuard<'_, Holds> {
        self.holds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The configuration that holds.
    pub(crate) fn config(&self) -> Arc<Config> {
        Arc::clone(&self.holds().config)
    }

    /// Resolves with the reason when the installed program was found good and is to take over.
    pub(crate) async fn gives_way(&self, replace: &mut tokio::signal::unix::Signal) -> &'static str {
        loop {
            tokio::select! {
                () = self.give_way.notified() => return "asked for",
                _ = replace.recv() => match self.may_give_way().await {
                    Ok(()) => return "SIGUSR2",
                    Err(why) => tracing::error!("give way to the installed program: {why}"),
                },
            }
        }
    }

    /// Whether the installed program is good, and could open what this one has open.
    async fn may_give_way(&self) -> Result<(), String> {
        reexec::check_data_disk(&self.engine.data_disk().await)?;
        let holders = || offload::hand_over(|| self.engine.pipe_holders());
        reexec::check_pipes(self.engine.blocked_pipe_calls(), &holders())?;
        reexec::check(&self.source).await?;
        // The check took time.
        reexec::check_pipes(self.engine.blocked_pipe_calls(), &holders())
    }

    /// Takes up the files as they are, wholly or not at all; gives the keys that changed.
    pub(crate) async fn reload(&self, why: &'static str) -> Result<Vec<String>, String> {
        let _turn = self.turn.lock().await;
        notify::reloading();
        // The files are on a disk, which may hang.
        let (stamp, outcome) = offload::hand_over(|| (self.source.stamp(), self.try_reload()));
        notify::ready();
        let mut holds = self.holds();
        holds.stamp = stamp;
        match outcome {
            Ok((config, layers, changed)) => {
                holds.refused = None;
                holds.layers = layers;
                if !changed.is_empty() {
                    holds.config = Arc::new(config);
                    holds.since = SystemTime::now();
                    holds.reloads += 1;
                }
                tracing::info!(why, changed = changed.join(", "), "configuration reloaded");
                Ok(changed)
            }
            Err(error) => {
                holds.refused = Some((error.clone(), SystemTime::now()));
                // Who asked is told, and the request's own line says it.
                if why != ASKED {
                    tracing::error!(why, "reload: the configuration stays as it was: {error}");
                }
                Err(error)
            }
        }
    }

    fn try_reload(&self) -> Result<(Config, Layers, Vec<String>), String> {
        let (config, layers) = self.source.load().map_err(|error| error.to_string())?;
        let changed = reload::apply(self, &self.config(), &config)?;
        Ok((config, layers, changed))
    }

    /// Reloads if a file is another than at the last attempt.
    pub(crate) async fn look_again(&self) {
        let stamp = offload::hand_over(|| self.source.stamp());
        if stamp != self.holds().stamp {
            // It is told in the log and kept.
            let _ = self.reload("a file changed").await;
        }
    }
}

/// A hold of it that answers the CRI's socket.
pub(crate) struct Answering(pub(crate) Arc<Live>);

impl cri::Daemon for Answering {
    fn facts(&self) -> Value {
        let holds = self.0.holds();
        let config = &holds.config;
        let seconds = |at: SystemTime| at.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
        json!({
            "socket": config.socket,
            "stateDir": config.state_dir,
            "dataDir": config.data_dir,
            "cgroupParent": config.cgroup_parent,
            "configuration": {
                "files": holds.layers.files,
                "since": seconds(holds.since),
                "reloads": holds.reloads,
                "refused": holds.refused.as_ref().map(|(why, _)| why),
                "refusedAt": holds.refused.as_ref().map(|(_, at)| seconds(*at)),
            },
        })
    }

    fn config(&self, origin: bool) -> Result<String, String> {
        let holds = self.0.holds();
        let layers = origin.then_some(&holds.layers);
        holds.config.shown(layers).map_err(|error| error.to_string())
    }

    fn reload(&self) -> cri::Pending<Vec<String>> {
        let live = Arc::clone(&self.0);
        Box::pin(async move { live.reload(ASKED).await })
    }

    fn monitor(&self) -> Result<PathBuf, String> {
        monitor::find(self.0.config().monitor.as_deref()).map_err(|error| error.to_string())
    }

    fn upgrade(&self) -> cri::Pending<()> {
        let live = Arc::clone(&self.0);
        Box::pin(async move {
            live.may_give_way().await?;
            live.give_way.notify_one();
            Ok(())
        })
    }
}
