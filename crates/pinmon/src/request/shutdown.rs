use monitor_api::{Failure, FailureKind, Reply};

use super::Answer;
use crate::monitor::Monitor;

/// Ends the monitor if it holds nothing.
pub(super) fn shutdown(monitor: &mut Monitor) -> Answer {
    if !monitor.holds_nothing() {
        let (containers, keys) = (monitor.containers.len(), monitor.keyed_descriptors.len());
        let message = format!(
            "shut down the monitor: it holds {containers} containers and {keys} keys; delete and release them first"
        );
        return Err(Failure::new(FailureKind::State, message));
    }
    monitor.should_exit = true;
    Ok(Some(Reply::Done))
}
