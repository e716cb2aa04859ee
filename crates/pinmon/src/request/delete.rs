use monitor_api::Reply;
use rustix::process::{Signal, pidfd_send_signal};

use super::Answer;
use crate::{connection::RequestId, monitor::Monitor};

impl Monitor {
    /// Removes the cgroup and the record of a container. A running one is killed first. Answered when it is removed.
    pub(super) fn delete(&mut self, request_id: RequestId, id: &str) -> Answer {
        self.forget_mounts(id);
        let Some(serial) = self.find(id) else {
            self.journals.forget(id);
            return Ok(Some(Reply::Done));
        };
        let Some(child) = self.containers.get_mut(&serial) else { return Ok(Some(Reply::Done)) };
        child.deletes.push(request_id);
        if !child.has_ended() {
            if let Some(group) = child.group()
                && let Err(error) = group.kill()
            {
                eprintln!("pinmon: delete container {id}: {error}");
            }
            if let Some(pidfd) = child.pidfd() {
                let _ = pidfd_send_signal(pidfd, Signal::KILL);
            }
            self.thaw_later(serial);
        }
        self.try_remove(serial);
        Ok(None)
    }
}
