//! Metrics of the engine. Exporting them is left to the caller.

use telemetry::Counter;

use crate::store::{ContainerPhase, Registry, SandboxPhase};

/// Reasons with which a container exits: the indices of [`Metrics::exits`].
pub const EXIT_REASONS: [&str; 4] = ["Completed", "Error", "OOMKilled", "Unknown"];

/// Version of the contract between daemon and monitor: major and minor.
pub const MONITOR_CONTRACT: (u32, u32) = (monitor_api::MAJOR, monitor_api::MINOR);

/// Counters since the start of the daemon.
#[derive(Debug, Default)]
pub struct Metrics {
    /// Containers that exited, by reason (the index in [`EXIT_REASONS`]).
    pub exits: [Counter; EXIT_REASONS.len()],
    /// Bytes of output that were lost because the log file could not be written, and of log entries that were removed
    /// because the log reached its maximum size.
    pub log_dropped: Counter,
}

impl Metrics {
    pub(crate) fn count_exit(&self, status: &monitor_api::ExitStatus) {
        let reason = match (status.oom_killed, status.code) {
            (true, _) => 2,
            (false, Some(0)) => 0,
            (false, Some(_)) => 1,
            (false, None) => 3,
        };
        self.exits[reason].add(1);
    }
}

/// Numbers of sandboxes and containers at one moment, by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObjectCounts {
    /// Sandboxes that are being created.
    pub sandboxes_creating: u64,
    /// Sandboxes that are ready.
    pub sandboxes_ready: u64,
    /// Sandboxes that were stopped.
    pub sandboxes_stopped: u64,
    /// Containers that are being created.
    pub containers_creating: u64,
    /// Containers that were created and not started.
    pub containers_created: u64,
    /// Running containers.
    pub containers_running: u64,
    /// Containers that exited.
    pub containers_exited: u64,
}

/// Identity of the monitor that is connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MonitorIdentity {
    /// Pid of the monitor.
    pub pid: u32,
    /// Version of the monitor.
    pub version: String,
}

impl ObjectCounts {
    /// Counts sandboxes and containers by state. Does not block.
    pub(crate) fn of(registry: &Registry) -> Self {
        let mut counts = Self::default();
        for sandbox in registry.sandboxes() {
            *match sandbox.record().phase {
                SandboxPhase::Reserved | SandboxPhase::Networked => &mut counts.sandboxes_creating,
                SandboxPhase::Ready => &mut counts.sandboxes_ready,
                SandboxPhase::Stopped => &mut counts.sandboxes_stopped,
            } += 1;
        }
        for container in registry.listed_containers() {
            *match container.record().phase {
                ContainerPhase::Creating => &mut counts.containers_creating,
                ContainerPhase::Created | ContainerPhase::Starting => &mut counts.containers_created,
                ContainerPhase::Running => &mut counts.containers_running,
                ContainerPhase::Exited => &mut counts.containers_exited,
            } += 1;
        }
        counts
    }
}
