//! What goes on beside the answering of requests.

use std::{path::PathBuf, sync::Arc, time::Duration};

use tokio::{signal::unix::Signal, task::JoinSet};

use super::{config::MonitorUpgrade, limits, live::Live, notify, reload};

/// How often the line of status is told where no watchdog wants it more often.
const STATUS: Duration = Duration::from_secs(60);

/// How often memory that is free goes back to the kernel: what is freed and needed again within seconds should stay.
const RELEASE: Duration = Duration::from_secs(60);

/// All of it; ends with the returned set.
pub(super) fn spawn(live: &Arc<Live>, hangup: Signal, monitor: PathBuf) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    tasks.spawn(reload::on_request(Arc::clone(live), hangup));
    tasks.spawn(signs_of_life());
    tasks.spawn(status_line(Arc::clone(live)));
    tasks.spawn(release_memory());
    if live.config().upgrade.monitor == MonitorUpgrade::Auto {
        tasks.spawn(upgrade_monitor(Arc::clone(live), monitor));
    }
    tasks
}

/// The monitor that runs may be of an earlier installation.
async fn upgrade_monitor(live: Arc<Live>, program: PathBuf) {
    match live.engine.upgrade_monitor(&program).await {
        Ok(now) if now.upgraded => tracing::info!(version = now.version, pid = now.pid, "the monitor was upgraded"),
        Ok(_) => {}
        Err(error) => tracing::warn!("{error}"),
    }
}

/// Reports to the service manager that tasks are run. Nothing that a container, a disk or the monitor can delay is
/// asked here: `Status` and `pinion info` report those.
async fn signs_of_life() {
    let Some(wanted) = notify::watchdog() else { return };
    loop {
        notify::alive();
        tokio::time::sleep(wanted / 3).await;
    }
}

/// What the start needed and what requests left.
async fn release_memory() {
    let mut freed = 0;
    loop {
        freed = offload::hand_over(|| limits::release_memory(freed));
        tokio::time::sleep(RELEASE).await;
    }
}

/// Keeps the line of `systemctl status`.
async fn status_line(live: Arc<Live>) {
    let every = notify::watchdog().map_or(STATUS, |wanted| wanted / 3);
    loop {
        let status = live.engine.status().await;
        let (pods, containers) = (live.engine.sandboxes().len(), live.engine.containers().len());
        let trouble = [status.runtime, status.network].into_iter().find(|part| !part.ready);
        let trouble = trouble.map_or_else(String::new, |part| format!("; {}: {}", part.reason, part.message));
        notify::status(&format!("{pods} pods, {containers} containers{trouble}"));
        tokio::time::sleep(every).await;
    }
}
