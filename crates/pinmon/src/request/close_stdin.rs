use monitor_api::Reply;

use super::Answer;
use crate::monitor::Monitor;

/// Drops the write end of the container's standard input. Another process closes it.
pub(super) fn close_stdin(monitor: &mut Monitor, id: &str) -> Answer {
    monitor.containers.require("close stdin of", id)?.1.stdin = None;
    Ok(Some(Reply::Done))
}
