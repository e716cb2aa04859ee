use monitor_api::{Attachments, Role};

use super::Answer;
use crate::{
    connection::Asked,
    failure::{invalid, no_container},
    monitor::Monitor,
    timer::Timer,
};

/// How long a log that hangs may hold up the answer: it is continued in the other file whenever it goes on.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(2);

impl Monitor {
    /// Continues in another file: between two batches, so no line is in both or in none. Answered when it is so.
    pub(super) fn reopen_log(&mut self, asked: Asked, id: &str, attachments: &mut Attachments) -> Answer {
        let file = attachments
            .take(Role::Log)
            .ok_or_else(|| invalid(format!("reopen log of container {id}: no Log descriptor is attached")))?;
        let serial = self.find(id).ok_or_else(|| no_container("reopen log of", id))?;
        let Some(child) = self.containers.get_mut(&serial) else { return Err(no_container("reopen log of", id)) };
        let was_awaited = child.output.awaits_log;
        child.log.awaited = false;
        child.output.reopen(file);
        child.output.reopens.push(asked);
        if was_awaited {
            // No batch is in another file.
            self.hand_over(serial);
            self.reopened(serial);
        } else if child.output.is_open() {
            self.timers.after(PATIENCE, Timer::Reopen(serial));
            self.hand_over(serial);
        } else {
            self.reopened(serial);
        }
        Ok(None)
    }
}
