//! Whether the parts answer that may hang: the monitor, the network's configuration and sockets, the data disk.
//!
//! | part | checked | when it hangs |
//! |---|---|---|
//! | monitor | a heartbeat every 2 s | after 10 s the runtime is not ready: nothing can be started, stopped or executed |
//! | the connection to it | on every `Status` | when it is not restored within 800 ms the runtime is not ready |
//! | container logs | with the monitor's heartbeat | reported; the node stays ready: other containers are not concerned |
//! | network | on every `Status`, by a thread of its own | the last answer counts for 30 s, then the network is not ready |
//! | data disk | a written and synchronised byte every 10 s, by a thread of its own | reported; the node stays ready: containers run, start and stop without it |
//!
//! No caller of `Status` waits longer than a second for any of them, once they have answered.

mod disk;
mod heartbeat;
mod probe;

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use monitor_api::StuckWriter;
use serde_json::{Value, json};

use crate::{Condition, engine::Inner};
use disk::DataDisk;
use heartbeat::Heartbeat;
use probe::Probe;

/// How long `Status` waits for a connection to the monitor that is being restored.
pub(crate) const RESTORED: Duration = Duration::from_millis(800);
/// How long it waits for the network to be checked again.
const FRESH: Duration = Duration::from_secs(1);
/// How long it waits for the first answer about the network.
const FIRST: Duration = Duration::from_secs(5);
/// How long the last answer about the network counts.
const NETWORK_MAX: Duration = Duration::from_secs(30);

/// What is known of each part.
pub(crate) struct Health {
    pub(crate) monitor: Heartbeat,
    network: Arc<Probe<NetworkAnswer>>,
    data: DataDisk,
}

/// How long parts have not answered; zero for one that does.
#[derive(Clone, Copy, Debug)]
pub struct Silence {
    /// The monitor.
    pub monitor: Duration,
    /// The data disk.
    pub data_disk: Duration,
    /// How many writers of container logs wait for their file system.
    pub log_writers: usize,
}

#[derive(Clone)]
struct NetworkAnswer {
    ready: Result<(), String>,
    description: String,
}

impl Health {
    pub(crate) fn new(network: &network::Network, data_dir: &std::path::Path) -> Self {
        let network = network.clone();
        let check = move || NetworkAnswer {
            ready: network.ready().map_err(|error| error.to_string()),
            description: network.describe(),
        };
        Self {
            monitor: Heartbeat::default(),
            network: Probe::new("pinion-network", check),
            data: DataDisk::new(data_dir),
        }
    }

    /// Whether pods can be attached, and to what.
    pub(crate) async fn network(&self) -> (Condition, String) {
        let patience = if self.network.seen().latest.is_none() { FIRST } else { FRESH };
        let seen = self.network.look(patience).await;
        let stuck = seen.running.filter(|running| seen.latest.is_none() || *running >= NETWORK_MAX);
        if let Some(running) = stuck {
            let message = format!("the network's check has been running for {} s", running.as_secs());
            return (Condition::of(Err(&message), "NetworkUnavailable"), message);
        }
        let Some(NetworkAnswer { ready, description }) = seen.latest else {
            let message = "the network cannot be checked: no thread can be started".to_owned();
            return (Condition::of(Err(&message), "NetworkUnavailable"), message);
        };
        (Condition::of(ready, "NetworkUnavailable"), description)
    }

    pub(crate) fn silence(&self) -> Silence {
        Silence {
            monitor: self.monitor.silence(),
            data_disk: self.data.silence(),
            log_writers: self.monitor.stuck().len(),
        }
    }

    /// Whether the data disk takes what is written now.
    pub(crate) async fn data_disk(&self) -> Condition {
        self.data.check_now().await
    }

    /// For `Status` and `pinion info`.
    pub(crate) fn info(&self) -> Value {
        let Condition { ready, reason, message } = self.data.condition();
        let stuck = |writer: &StuckWriter| json!({"device": device(writer), "silentMs": writer.since_ms, "containers": writer.containers});
        json!({
            "stuckLogs": self.monitor.stuck().iter().map(stuck).collect::<Vec<_>>(),
            "dataDisk": {"ready": ready, "reason": reason, "message": message},
            "silentSeconds": {
                "monitor": self.monitor.silence().as_secs(),
                "dataDisk": self.data.silence().as_secs(),
            },
        })
    }
}

/// Checks in the background as long as the engine lives.
pub(crate) fn watch(engine: &Arc<Inner>) {
    tokio::spawn(heartbeat::beat(Arc::downgrade(engine)));
    tokio::spawn(disk::check(Arc::downgrade(engine), |engine| &engine.health.data));
}

/// `8:1`, as in `/proc/self/mountinfo`.
fn device(writer: &StuckWriter) -> String {
    writer.device.map_or_else(|| "none".to_owned(), |device| format!("{}:{}", device.major, device.minor))
}

/// The engine, if it lives and for as long as it is looked at.
type Engine = Weak<Inner>;
