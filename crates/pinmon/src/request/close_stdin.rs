use monitor_api::Reply;

use super::Answer;
use crate::{failure::no_container, monitor::Monitor};

impl Monitor {
    /// Drops the write end of the container's standard input. Another process closes it.
    pub(super) fn close_stdin(&mut self, id: &str) -> Answer {
        let child = self.find(id).and_then(|serial| self.containers.get_mut(&serial));
        child.ok_or_else(|| no_container("close stdin of", id))?.stdin = None;
        Ok(Some(Reply::Done))
    }
}
