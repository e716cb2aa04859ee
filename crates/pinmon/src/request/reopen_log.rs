use monitor_api::{Attachments, Reply, Role};

use super::Answer;
use crate::{
    failure::{invalid, no_container},
    monitor::Monitor,
};

impl Monitor {
    /// Continues in another file: between two batches, so no line is in both or in none.
    pub(super) fn reopen_log(&mut self, id: &str, attachments: &mut Attachments) -> Answer {
        let file = attachments
            .take(Role::Log)
            .ok_or_else(|| invalid(format!("reopen log of container {id}: no Log descriptor is attached")))?;
        let child = self.find(id).and_then(|serial| self.containers.get_mut(&serial));
        child.ok_or_else(|| no_container("reopen log of", id))?.output.sink.reopen(file);
        Ok(Some(Reply::Done))
    }
}
