use monitor_api::Reply;
use rustix::process::{Signal, pidfd_send_signal};

use super::Answer;
use crate::{link::RequestId, monitor::Monitor, process::ProcessExit};

/// Removes the cgroup and the record of a container. A running one is killed first. Answered when it is removed.
pub(super) fn delete(monitor: &mut Monitor, request_id: RequestId, id: &str) -> Answer {
    monitor.mounts.forget(id);
    let Ok((serial, container)) = monitor.containers.require("delete", id) else {
        monitor.outputs.journals.forget(id);
        return Ok(Some(Reply::Done));
    };
    container.deletes.push(request_id);
    if !container.has_ended() {
        if let Some(group) = container.group()
            && let Err(error) = group.kill()
        {
            eprintln!("pinmon: delete container {id}: {error}");
        }
        if let Some(pidfd) = container.pidfd() {
            let _ = pidfd_send_signal(pidfd, Signal::KILL);
        }
        let is_external = container.description.external;
        monitor.runtime_commands.cancel(serial);
        monitor.thaws.schedule(serial, &mut monitor.services.timers);
        if is_external {
            monitor.process_ended(serial, ProcessExit::UNKNOWN);
        }
    }
    monitor.try_remove(serial);
    Ok(None)
}
