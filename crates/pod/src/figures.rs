//! What the engine tells of itself in figures; it knows nothing of who reads them.

use netns::PoolFigures;
use telemetry::Counter;

use crate::{Engine, MonitorFigures, container::ContainerPhase, sandbox::SandboxPhase};

/// Ways in which a container ends, as [`Figures::ended`] counts them.
pub const ENDS: [&str; 4] = ["Completed", "Error", "OOMKilled", "Unknown"];

/// Version of the contract between daemon and monitor, major and minor.
pub const MONITOR_CONTRACT: (u32, u32) = (monitor_api::MAJOR, monitor_api::MINOR);

/// Counted since the daemon started.
#[derive(Debug, Default)]
pub struct Figures {
    /// Containers that ended, by how (the index in [`ENDS`]).
    pub ended: [Counter; ENDS.len()],
    /// Bytes of output that no log has: its file could not be written.
    pub log_dropped: Counter,
}

impl Figures {
    pub(crate) fn count_end(&self, status: &monitor_api::ExitStatus) {
        let how = match (status.oom_killed, status.code) {
            (true, _) => 2,
            (false, Some(0)) => 0,
            (false, Some(_)) => 1,
            (false, None) => 3,
        };
        self.ended[how].add(1);
    }
}

/// How many there are, at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Population {
    /// Sandboxes that are being made.
    pub sandboxes_making: u64,
    /// Sandboxes with a network.
    pub sandboxes_ready: u64,
    /// Sandboxes that were stopped.
    pub sandboxes_stopped: u64,
    /// Containers that are being made.
    pub containers_making: u64,
    /// Containers that wait for their start.
    pub containers_created: u64,
    /// Containers whose program runs.
    pub containers_running: u64,
    /// Containers that ended.
    pub containers_exited: u64,
}

/// The monitor, as it is connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MonitorIdentity {
    /// Its process.
    pub pid: u32,
    /// Its version.
    pub version: String,
}

impl Engine {
    /// What happened.
    #[must_use]
    pub fn figures(&self) -> &Figures {
        &self.0.figures
    }

    /// Requests to the monitor.
    #[must_use]
    pub fn monitor_figures(&self) -> &MonitorFigures {
        self.0.monitor.figures()
    }

    /// The monitor, while one is connected.
    #[must_use]
    pub fn monitor_identity(&self) -> Option<MonitorIdentity> {
        let welcome = self.0.monitor.welcome().ok()?;
        Some(MonitorIdentity { pid: welcome.pid, version: welcome.version })
    }

    /// Network namespaces that are made ahead.
    #[must_use]
    pub fn pool_figures(&self) -> PoolFigures {
        self.0.pool.figures()
    }

    /// The pods' network.
    #[must_use]
    pub fn network_figures(&self) -> &network::Figures {
        self.0.network.figures()
    }

    /// How many sandboxes and containers there are, by state. Waits for nobody.
    #[must_use]
    pub fn population(&self) -> Population {
        let mut all = Population::default();
        for sandbox in self.0.sandboxes() {
            *match sandbox.record().phase {
                SandboxPhase::Reserved | SandboxPhase::Networked => &mut all.sandboxes_making,
                SandboxPhase::Ready => &mut all.sandboxes_ready,
                SandboxPhase::Stopped => &mut all.sandboxes_stopped,
            } += 1;
        }
        for container in self.0.containers() {
            *match container.record().phase {
                ContainerPhase::Creating => &mut all.containers_making,
                ContainerPhase::Created | ContainerPhase::Starting => &mut all.containers_created,
                ContainerPhase::Running => &mut all.containers_running,
                ContainerPhase::Exited => &mut all.containers_exited,
            } += 1;
        }
        all
    }
}
