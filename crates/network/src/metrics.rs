//! Metrics of the pod network.

use telemetry::{Counter, Gauge, Histogram};

/// Metrics since the network was opened.
#[derive(Debug, Default)]
pub struct Metrics {
    /// Time that attaching a pod took, including the rollback of failed attempts.
    pub attach_duration: Histogram,
    /// Attachments that failed.
    pub attach_failed: Counter,
    /// Time that detaching a pod took.
    pub detach_duration: Histogram,
    /// Calls of detach that failed; a pod can be counted more than once.
    pub detach_failed: Counter,
    /// CNI plugin programs that are running.
    pub plugins_running: Gauge,
    /// Time that a plugin call took.
    pub plugin_duration: Histogram,
    /// Plugin calls that failed, including those that timed out.
    pub plugin_failed: Counter,
}
