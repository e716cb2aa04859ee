//! Health checks of components that may hang: the monitor, the network's configuration and sockets, the data disk.
//!
//! | component | checked | if it hangs |
//! |---|---|---|
//! | monitor | a heartbeat every 2 s | after 10 s the runtime is not ready: no container can be started or stopped, and no command executed |
//! | connection to the monitor | on every `Status` | if it is not restored within 800 ms, the runtime is not ready |
//! | container logs | with the monitor's heartbeat | it is reported, and the node stays ready: other containers are not affected |
//! | network | on every `Status`, by a separate thread | the last result is used for 30 s, then the network is not ready |
//! | data disk | a byte is written and synchronized every 10 s, by a separate thread | it is reported, and the node stays ready: containers run, start and stop without the disk |
//!
//! Once a component has responded, no caller of `Status` waits longer than one second for it.

mod disk;
mod heartbeat;
mod probe;

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use monitor_api::StuckWriter;

use crate::{Condition, monitor::Monitor};
use disk::DataDisk;
use heartbeat::Heartbeat;
use probe::Probe;

/// How long `Status` waits for a connection to the monitor that is being restored.
pub(crate) const RECONNECT_TIMEOUT: Duration = Duration::from_millis(800);
/// How long `Status` waits for a new check of the network.
const NETWORK_TIMEOUT: Duration = Duration::from_secs(1);
/// How long `Status` waits for the first check of the network.
const FIRST_NETWORK_TIMEOUT: Duration = Duration::from_secs(5);
/// Running time of a network check after which the last result is not used any longer.
const NETWORK_HUNG: Duration = Duration::from_secs(30);

/// Results of the health checks.
pub(crate) struct Health {
    monitor: Monitor,
    pub(crate) heartbeat: Heartbeat,
    network: Arc<Probe<NetworkResult>>,
    data: DataDisk,
}

/// For how long components have not responded; zero if they do.
#[derive(Clone, Copy, Debug)]
pub struct Silence {
    /// The monitor.
    pub monitor: Duration,
    /// The data disk.
    pub data_disk: Duration,
    /// Number of log writers that wait for their file system.
    pub log_writers: usize,
}

/// Results of the health checks, for people.
#[derive(Clone, Debug)]
pub struct HealthInfo {
    /// Log writers that wait for their file system.
    pub stuck_logs: Vec<StuckLog>,
    /// Whether the data disk accepts writes.
    pub data_disk: Condition,
    /// For how long the monitor has not responded; zero if it does.
    pub monitor_silence: Duration,
    /// For how long the data disk has not responded; zero if it does.
    pub data_disk_silence: Duration,
}

/// A log writer that waits for its file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StuckLog {
    /// Device of the file system as `major:minor`, or `none`.
    pub device: String,
    /// How long it has been waiting, in milliseconds.
    pub silent_ms: u64,
    /// Number of containers whose output it writes.
    pub containers: u32,
}

#[derive(Clone)]
struct NetworkResult {
    ready: Result<(), String>,
    description: String,
}

impl Health {
    pub(crate) fn new(monitor: &Monitor, network: &network::Network, data_dir: &std::path::Path) -> Self {
        let network = network.clone();
        let check = move || NetworkResult {
            ready: network.ready().map_err(|error| error.to_string()),
            description: network.describe(),
        };
        Self {
            monitor: monitor.clone(),
            heartbeat: Heartbeat::default(),
            network: Probe::new("pinion-network", check),
            data: DataDisk::new(data_dir),
        }
    }

    /// Reports whether pods can be attached to the network, and describes the network.
    pub(crate) async fn network(&self) -> (Condition, String) {
        let timeout = if self.network.state().latest.is_none() { FIRST_NETWORK_TIMEOUT } else { NETWORK_TIMEOUT };
        let state = self.network.check(timeout).await;
        let hung = state.running.filter(|running| state.latest.is_none() || *running >= NETWORK_HUNG);
        if let Some(running) = hung {
            let message = format!("the network's check has been running for {} s", running.as_secs());
            return (Condition::from_result(Err(&message), "NetworkUnavailable"), message);
        }
        let Some(NetworkResult { ready, description }) = state.latest else {
            let message = "the network cannot be checked: no thread can be started".to_owned();
            return (Condition::from_result(Err(&message), "NetworkUnavailable"), message);
        };
        (Condition::from_result(ready, "NetworkUnavailable"), description)
    }

    pub(crate) fn silence(&self) -> Silence {
        Silence {
            monitor: self.heartbeat.silence(),
            data_disk: self.data.silence(),
            log_writers: self.heartbeat.stuck_writers().len(),
        }
    }

    /// Checks whether the data disk accepts writes now.
    pub(crate) async fn data_disk(&self) -> Condition {
        self.data.check_now().await
    }

    /// Returns the details for `Status` and `pinion info`.
    pub(crate) fn info(&self) -> HealthInfo {
        let stuck = |writer: &StuckWriter| StuckLog {
            device: heartbeat::device(writer),
            silent_ms: writer.since_ms,
            containers: writer.containers,
        };
        HealthInfo {
            stuck_logs: self.heartbeat.stuck_writers().iter().map(stuck).collect(),
            data_disk: self.data.condition(),
            monitor_silence: self.heartbeat.silence(),
            data_disk_silence: self.data.silence(),
        }
    }
}

/// Starts the background checks, which run as long as the engine exists.
pub(crate) fn watch(health: &Arc<Health>) {
    tokio::spawn(ping(Arc::downgrade(health)));
    tokio::spawn(check_data_disk(Arc::downgrade(health)));
}

/// Pings the monitor periodically.
async fn ping(health: Weak<Health>) {
    loop {
        let Some(monitor) = health.upgrade().map(|health| {
            health.heartbeat.begin();
            health.monitor.clone()
        }) else {
            return;
        };
        let answer = monitor.ping(heartbeat::SILENT_MAX).await;
        drop(monitor);
        let Some(health) = health.upgrade() else { return };
        health.heartbeat.end(answer);
        drop(health);
        tokio::time::sleep(heartbeat::INTERVAL).await;
    }
}

/// Checks the data disk periodically, and logs changes of its condition.
async fn check_data_disk(health: Weak<Health>) {
    let mut last_reason = String::new();
    loop {
        // Sleeps first: the start of the daemon has priority.
        tokio::time::sleep(disk::INTERVAL).await;
        let Some(health) = health.upgrade() else { return };
        let condition = health.data.condition();
        health.data.begin();
        drop(health);
        if condition.reason != last_reason {
            match condition.ready {
                true => tracing::info!("the data disk responds again"),
                false => tracing::error!(reason = condition.reason, "{}", condition.message),
            }
            last_reason = condition.reason;
        }
    }
}
