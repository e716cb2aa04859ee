use monitor_api::{Attachments, Role};

use super::Answer;
use crate::{
    connection::RequestId,
    failure::{invalid, no_container},
    monitor::Monitor,
    timer::Timer,
};

/// Time after which the request is answered although the log hangs. The log continues in the new file as soon as
/// possible.
const ANSWER_AFTER: std::time::Duration = std::time::Duration::from_secs(2);

impl Monitor {
    /// Continues the log in another file. The switch is between two batches, so every line is in exactly one of the
    /// files. Answered after the switch.
    pub(super) fn reopen_log(&mut self, request_id: RequestId, id: &str, attachments: &mut Attachments) -> Answer {
        let file = attachments
            .take(Role::Log)
            .ok_or_else(|| invalid(format!("reopen log of container {id}: no Log descriptor is attached")))?;
        let serial = self.find(id).ok_or_else(|| no_container("reopen log of", id))?;
        let Some(child) = self.containers.get_mut(&serial) else { return Err(no_container("reopen log of", id)) };
        let had_no_log = child.output.awaits_log;
        child.log.awaited = false;
        child.output.reopen(file);
        child.output.reopens.push(request_id);
        if had_no_log {
            // No batch was written to another file.
            self.hand_over(serial);
            self.reopened(serial);
        } else if child.output.is_open() {
            self.timers.after(ANSWER_AFTER, Timer::Reopen(serial));
            self.hand_over(serial);
        } else {
            self.reopened(serial);
        }
        Ok(None)
    }
}
