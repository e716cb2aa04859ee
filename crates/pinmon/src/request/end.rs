use monitor_api::{ExitStatus, Reply};

use super::Answer;
use crate::{failure::state, monitor::Monitor};

/// Records the exit of a container that has no process of its own. Its output is drained, and then the exit is reported.
pub(super) fn end(monitor: &mut Monitor, id: &str, status: ExitStatus) -> Answer {
    let (serial, container) = monitor.containers.require("end", id)?;
    if !container.description.external {
        return Err(state("end", id, "it has a process, whose exit the kernel reports"));
    }
    monitor.ended(serial, status);
    Ok(Some(Reply::Done))
}
