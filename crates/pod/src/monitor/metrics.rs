//! Metrics of the connection to the monitor.

use monitor_api::Request;
use telemetry::{Counter, Gauge, Histogram, bounds};

/// Kinds of requests: the indices of [`MonitorMetrics::requests`].
pub const MONITOR_REQUESTS: [&str; 16] = [
    "Hello",
    "Inventory",
    "Adopt",
    "Create",
    "Start",
    "Kill",
    "Exec",
    "Attach",
    "CloseStdin",
    "ReopenLog",
    "ResizeTerminal",
    "Delete",
    "PodInit",
    "Keep",
    "Release",
    "Other",
];

/// Requests to the monitor since the daemon started.
#[derive(Debug)]
pub struct MonitorMetrics {
    /// Requests by kind (the index in [`MONITOR_REQUESTS`]).
    pub requests: [Counter; MONITOR_REQUESTS.len()],
    /// Requests without a response: the connection was lost, or the monitor hung.
    pub unanswered: Counter,
    /// Requests that wait for a response.
    pub waiting: Gauge,
    /// Time from sending a request to its first response.
    pub round_trip: Histogram,
    /// How often a connection was restored, to the same monitor or to another one.
    pub restored: Counter,
}

impl Default for MonitorMetrics {
    fn default() -> Self {
        Self {
            requests: Default::default(),
            unanswered: Counter::new(),
            waiting: Gauge::new(),
            round_trip: Histogram::new(&bounds::MESSAGE),
            restored: Counter::new(),
        }
    }
}

/// Returns the index of a request's kind.
pub(super) fn kind(request: &Request) -> usize {
    match request {
        Request::Hello { .. } => 0,
        Request::Inventory => 1,
        Request::Adopt(_) => 2,
        Request::Create(_) => 3,
        Request::Start { .. } => 4,
        Request::Kill(_) => 5,
        Request::Exec(_) => 6,
        Request::Attach(_) => 7,
        Request::CloseStdin { .. } => 8,
        Request::ReopenLog { .. } => 9,
        Request::ResizeTerminal { .. } => 10,
        Request::Delete { .. } => 11,
        Request::PodInit(_) => 12,
        Request::Keep { .. } => 13,
        Request::Release { .. } => 14,
        _ => 15,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_a_name() {
        let start = Request::Start { container: "x".into(), has_started: false };
        assert_eq!(MONITOR_REQUESTS[kind(&start)], "Start");
        assert_eq!(MONITOR_REQUESTS[kind(&Request::Release { key: "x".into() })], "Release");
        assert_eq!(MONITOR_REQUESTS[kind(&Request::Shutdown)], "Other");
    }
}
