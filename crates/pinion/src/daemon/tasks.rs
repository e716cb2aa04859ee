//! Background tasks of the daemon.

use std::{path::PathBuf, sync::Arc, time::Duration};

use tokio::{signal::unix::Signal, task::JoinSet};

use super::{
    config::MonitorUpgrade,
    limits, notify,
    running::{RunningDaemon, Trigger},
    watch::Watch,
};

/// Interval of the status line, unless the watchdog interval is shorter.
const STATUS_INTERVAL: Duration = Duration::from_secs(60);

/// Interval at which free memory is returned to the kernel. Memory that is needed again within seconds should be kept.
const RELEASE_INTERVAL: Duration = Duration::from_secs(60);

/// Starts all background tasks. They are aborted when the returned set is dropped.
pub(super) fn spawn(daemon: &Arc<RunningDaemon>, hangup: Signal, monitor: PathBuf) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    tasks.spawn(reload_on_request(Arc::clone(daemon), hangup));
    tasks.spawn(notify_watchdog());
    tasks.spawn(status_line(Arc::clone(daemon)));
    tasks.spawn(release_memory());
    if daemon.config().upgrade.monitor == MonitorUpgrade::Auto {
        tasks.spawn(upgrade_monitor(Arc::clone(daemon), monitor));
    }
    tasks
}

/// Reloads on SIGHUP and when a file changes. Never returns.
async fn reload_on_request(daemon: Arc<RunningDaemon>, mut hangup: Signal) {
    loop {
        let mut watch = offload::hand_over(|| Watch::new(&daemon.source.directories()))
            .inspect_err(|error| tracing::warn!("watch the configuration's directories: {error}; use SIGHUP"))
            .ok();
        // A file may have changed before the watch was set up.
        daemon.reload_if_changed().await;
        let changed = async {
            match &mut watch {
                Some(watch) => watch.changed().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = hangup.recv() => drop(daemon.reload(Trigger::Signal("SIGHUP")).await),
            changed = changed => match changed {
                Ok(()) => daemon.reload_if_changed().await,
                Err(error) => {
                    tracing::warn!("watch the configuration's directories: {error}; use SIGHUP");
                    hangup.recv().await;
                }
            },
        }
    }
}

/// Upgrades the running monitor, which may have been started from an earlier installation.
async fn upgrade_monitor(daemon: Arc<RunningDaemon>, program: PathBuf) {
    match daemon.engine.upgrade_monitor(&program).await {
        Ok(monitor) if monitor.upgraded => {
            tracing::info!(version = monitor.version, pid = monitor.pid, "the monitor was upgraded");
        }
        Ok(_) => {}
        Err(error) => tracing::warn!("{error}"),
    }
}

/// Notifies the watchdog of the service manager that the daemon runs its tasks. Does nothing that a container, a disk
/// or the monitor could delay: `Status` and `pinion info` report those.
async fn notify_watchdog() {
    let Some(interval) = notify::watchdog_interval() else { return };
    loop {
        notify::alive();
        tokio::time::sleep(interval / 3).await;
    }
}

/// Returns memory to the kernel that was freed after the start and after requests.
async fn release_memory() {
    let mut freed = 0;
    loop {
        freed = offload::hand_over(|| limits::release_memory(freed));
        tokio::time::sleep(RELEASE_INTERVAL).await;
    }
}

/// Updates the status line of `systemctl status`.
async fn status_line(daemon: Arc<RunningDaemon>) {
    let interval = notify::watchdog_interval().map_or(STATUS_INTERVAL, |watchdog| watchdog / 3);
    loop {
        let status = daemon.engine.status().await;
        let (pods, containers) = (daemon.engine.sandboxes().len(), daemon.engine.containers().len());
        let problem = [status.runtime, status.network].into_iter().find(|part| !part.ready);
        let problem = problem.map_or_else(String::new, |part| format!("; {}: {}", part.reason, part.message));
        notify::status(&format!("{pods} pods, {containers} containers{problem}"));
        tokio::time::sleep(interval).await;
    }
}
