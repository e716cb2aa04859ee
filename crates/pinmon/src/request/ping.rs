use monitor_api::Reply;

use super::Answer;
use crate::monitor::Monitor;

/// Answers the heartbeat, and reports the log file systems that hang.
pub(super) fn ping(monitor: &Monitor) -> Answer {
    Ok(Some(Reply::Pong(monitor.outputs.pong())))
}
